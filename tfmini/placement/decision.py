"""The result of the placer: for every op its device and the reasons for it."""

from __future__ import annotations

from typing import NamedTuple

EXPLICIT = "explicit"
COLOCATED = "colocated"
REFERENCE = "reference"
IGNORED = "ignored"
SET_APART = "set apart"
DEFAULT = "default"
FOLLOWS_CONSUMER = "follows consumer"
FOLLOWS_INPUT = "follows input"
SOFT_PLACEMENT = "soft placement"
KEPT = "kept"
PRESET = "preset"
LOOP_VARIABLE = "loop variable"


class Reason(NamedTuple):
    """One step of an explanation.

    Attributes:
      kind: one of this module's constants.
      text: the sentence for people.
      other: the op that the reason points to, or "".
    """

    kind: str
    text: str
    other: str = ""


class Decision(NamedTuple):
    """The device of an op (a full name) and the reasons for it, nearest reason first."""

    device: str
    reasons: tuple[Reason, ...]


class Placement(dict[str, Decision]):
    """Maps op names to `Decision`s, in the order of the graph."""

    def devices(self) -> dict[str, str]:
        """Maps op names to full device names, as the partitioner takes them."""
        return {name: decision.device for name, decision in self.items()}

    def explain(self, name: str) -> str:
        """Formats an op, its device and the reasons as one line.

        Raises:
          KeyError: the op was not placed.
        """
        decision = self[name]
        return f"{name}: {decision.device} ({'; '.join(reason.text for reason in decision.reasons)})"


def explicit(request: str) -> Reason:
    """The op requested the device."""
    return Reason(EXPLICIT, f"explicit request '{request}'")


def explicit_of(other: str, request: str) -> Reason:
    """Another op of the group requested the device."""
    return Reason(EXPLICIT, f"explicit request '{request}' of {other}", other)


def colocated(other: str, group: str) -> Reason:
    """The op shares a colocation group with ``other``."""
    return Reason(COLOCATED, f"colocated with {other} via {group}", other)


def reference(other: str) -> Reason:
    """The op takes a reference or resource handle that ``other`` gives."""
    return Reason(REFERENCE, f"reference edge to {other}", other)


def ignored(request: str, other: str) -> Reason:
    """The op takes a reference, and its own request contradicts the device of the state."""
    return Reason(IGNORED, f"its own request '{request}' is ignored: the state of {other} is on another device", other)


def variant(other: str) -> Reason:
    """The op takes a value that is no array, which cannot leave its task."""
    return Reason(REFERENCE, f"takes a value of {other} that cannot be sent, such as a dataset", other)


def ignored_for_variant(request: str, other: str) -> Reason:
    """The op makes or takes a value that is no array, and its own request contradicts the place of the others."""
    text = f"its own request '{request}' is ignored: values that cannot be sent join it with {other}"
    return Reason(IGNORED, text, other)


def set_apart(other: str, own: str, others: str) -> Reason:
    """With soft placement a colocation attr is ignored, because the requests contradict each other."""
    text = f"not colocated with {other}, as soft placement allows: '{own}' and '{others}' contradict each other"
    return Reason(SET_APART, text, other)


def default(device: str) -> Reason:
    """The op requested no device."""
    return Reason(DEFAULT, f"no request, so the client's own task: {device}")


def follows_consumer(other: str) -> Reason:
    """An op without inputs is placed with the consumer of its output."""
    return Reason(FOLLOWS_CONSUMER, f"generator follows its consumer {other}", other)


def follows_input(other: str) -> Reason:
    """An op that reads only the shape of a tensor is placed with the tensor."""
    return Reason(FOLLOWS_INPUT, f"reads only the shape of {other}, so it stays there", other)


def soft(request: str) -> Reason:
    """Soft placement dropped the device type and number of the request."""
    return Reason(SOFT_PLACEMENT, f"soft-placement fallback: '{request}' is not available for this op")


def loop_variable(merge: str) -> Reason:
    """The Enter and NextIteration of a loop variable are placed with its Merge."""
    return Reason(LOOP_VARIABLE, f"passes a loop variable to {merge}, so it is placed with it", merge)


kept = Reason(KEPT, "kept from an earlier placement of this session")
preset = Reason(PRESET, "set by the graph pass that made it")


def kept_with(other: str) -> Reason:
    """The op's group was placed by an earlier extension of the graph."""
    return Reason(KEPT, f"{other} was placed earlier and keeps its device", other)
