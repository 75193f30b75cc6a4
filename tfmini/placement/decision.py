"""What the placer answers: for every op its device and the chain of reasons."""

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
    """Where an op goes (a full device name) and why, nearest reason first."""

    device: str
    reasons: tuple[Reason, ...]


class Placement(dict[str, Decision]):
    """Op name -> `Decision`, in the order of the graph."""

    def devices(self) -> dict[str, str]:
        """Op name -> full device name, as the partitioner wants it."""
        return {name: decision.device for name, decision in self.items()}

    def explain(self, name: str) -> str:
        """One line: the op, its device and the reasons.

        Raises:
          KeyError: the op was not placed.
        """
        decision = self[name]
        return f"{name}: {decision.device} ({'; '.join(reason.text for reason in decision.reasons)})"


def explicit(request: str) -> Reason:
    """The op asked for a device that it got."""
    return Reason(EXPLICIT, f"explicit request '{request}'")


def explicit_of(other: str, request: str) -> Reason:
    """Another op of the group asked for the device."""
    return Reason(EXPLICIT, f"explicit request '{request}' of {other}", other)


def colocated(other: str, group: str) -> Reason:
    """The op shares a colocation group with ``other``."""
    return Reason(COLOCATED, f"colocated with {other} via {group}", other)


def reference(other: str) -> Reason:
    """The op takes a reference or resource that ``other`` hands out."""
    return Reason(REFERENCE, f"reference edge to {other}", other)


def ignored(request: str, other: str) -> Reason:
    """The op's own request lost against the holder of a reference."""
    return Reason(
        IGNORED, f"its own request '{request}' is ignored: the state of {other} lives elsewhere", other
    )


def set_apart(other: str, own: str, others: str) -> Reason:
    """Soft placement set a colocation attr aside, because the requests contradict each other."""
    text = f"not colocated with {other}, as soft placement allows: '{own}' and '{others}' contradict each other"
    return Reason(SET_APART, text, other)


def default(device: str) -> Reason:
    """Nothing was asked for."""
    return Reason(DEFAULT, f"no request, so the client's own task: {device}")


def follows_consumer(other: str) -> Reason:
    """An op without inputs goes to where its output is used."""
    return Reason(FOLLOWS_CONSUMER, f"generator follows its consumer {other}", other)


def follows_input(other: str) -> Reason:
    """An op that reads only a tensor's shape stays with the tensor."""
    return Reason(FOLLOWS_INPUT, f"reads only the shape of {other}, so it stays there", other)


def soft(request: str) -> Reason:
    """The type and number of the request were dropped."""
    return Reason(SOFT_PLACEMENT, f"soft-placement fallback: '{request}' is not available for this op")


def loop_variable(merge: str) -> Reason:
    """What enters a loop or goes round it stays with the Merge that joins the two."""
    return Reason(LOOP_VARIABLE, f"hands a loop variable to {merge}, so it stays with it", merge)


kept = Reason(KEPT, "kept from an earlier placement of this session")
preset = Reason(PRESET, "put there by the pass that made it")


def kept_with(other: str) -> Reason:
    """The op's group was placed by an earlier extension of the graph."""
    return Reason(KEPT, f"{other} was placed earlier and keeps its device", other)
