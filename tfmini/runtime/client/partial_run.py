"""``Session.partial_run``: one step whose feeds and fetches come in several goes.

Each go is an ordinary step of its own that runs the ops its fetches need and that no earlier go ran. The
tensors on the border, which a later go will need, are fetched along and fed to that go. So every op runs
at most once, wherever it is placed, and nothing waits on a server between two goes.

What cannot cross a border is refused by name: a reference or a handle that an op with inputs made, the
inside of a loop or conditional, and the order that a control edge asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini import dtypes, errors
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.runtime.client.call import own_copy
from tfmini.runtime.client.feeds import converter, flatten_feed
from tfmini.runtime.client.fetches import Fetches

# (tensors to fetch, ops to run, feeds) -> values of the tensors
StepFunction = Callable[[list[Tensor], list[Operation], dict[Tensor, Any]], list[Any]]


class PartialRun:
    """The state of one partial run: the values and ops that its calls so far have computed.

    Args:
      graph: of the session.
      fetches: everything that will be fetched.
      feeds: everything that will be fed.
      step: runs a step of the session.

    Raises:
      InvalidArgumentError: without fetches.
    """

    def __init__(self, graph: Graph, fetches: Any, feeds: Iterable[Any], step: StepFunction) -> None:
        wanted = Fetches(graph, fetches)
        if not wanted.tensors and not wanted.targets:
            raise _invalid("Must specify at least one target to fetch or execute.")
        self._graph = graph
        self._step = step
        self._unfetched: set[Tensor | Operation] = {*wanted.tensors, *wanted.targets}
        self._declared: set[Tensor | Operation] = set(self._unfetched)
        self._feeds = {tensor for feed in feeds for tensor, _ in flatten_feed(graph, feed, _blank(feed))}
        self._values: dict[Tensor, Any] = {}
        self._ran: set[Operation] = set()
        self._all = _needed(wanted.tensors, wanted.targets, self._feeds)

    @property
    def done(self) -> bool:
        """Whether everything has been fetched."""
        return not self._unfetched

    def run(self, fetches: Any, feed_dict: Any) -> Any:
        """Takes some feeds and returns the values of ``fetches``, in their structure.

        Raises:
          InvalidArgumentError: a feed or fetch was not declared or comes twice, or a fetch needs a tensor not fed yet.
          UnimplementedError: for a border that no value can cross.
        """
        wanted = Fetches(self._graph, fetches)
        fed = [pair for key, value in (feed_dict or {}).items() for pair in flatten_feed(self._graph, key, value)]
        self._check_feeds([tensor for tensor, _ in fed])
        self._check_fetches([*wanted.tensors, *wanted.targets])
        # Copies: the client may write into its arrays between two calls.
        self._values.update((tensor, own_copy(converter(tensor)(value))) for tensor, value in fed)
        self._advance(wanted)
        self._unfetched -= {*wanted.tensors, *wanted.targets}
        return wanted.build([own_copy(self._values[tensor]) for tensor in wanted.tensors])

    def _check_feeds(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor not in self._feeds:
                raise _invalid(f"The feed {tensor.name} was not specified in partial_run_setup.")
            if tensor in self._values:
                raise _invalid(f"The feed {tensor.name} has already been fed.")

    def _check_fetches(self, elements: Sequence[Tensor | Operation]) -> None:
        for element in elements:
            if element not in self._declared:
                raise _invalid(f"The fetch {element.name} was not specified in partial_run_setup.")
            if element not in self._unfetched:
                raise _invalid(f"The fetch {element.name} has already been fetched.")

    def _advance(self, wanted: Fetches) -> None:
        """Runs the ops that the fetches need and that have not run."""
        targets = [op for op in wanted.targets if op not in self._ran]
        new = _needed([t for t in wanted.tensors if t not in self._values], targets, self._values.keys())
        self._check_fed(new, wanted)
        new -= {op for op in new if op in self._ran and _is_source(op)}
        self._check_order(new)
        border = self._border(new)
        inputs = {t for op in new for t in op.inputs if t in self._values}
        asked = [t for t in wanted.tensors if t not in self._values and t not in border]
        tensors = [*border, *asked]
        if tensors or targets:
            found = self._step(tensors, targets, {t: self._values[t] for t in inputs})
            self._values.update(zip(tensors, found))
        self._ran |= new

    def _check_fed(self, new: set[Operation], wanted: Fetches) -> None:
        waiting = {t for op in new for t in op.inputs if t in self._feeds and t not in self._values}
        waiting |= {t for t in wanted.tensors if t in self._feeds and t not in self._values}
        if waiting:
            fetch = (wanted.tensors[0] if wanted.tensors else wanted.targets[0]).name
            names = ", ".join(sorted(t.name for t in waiting))
            raise _invalid(
                f"Fetch {fetch} can't be computed from the feeds that have been fed so far: still to feed: {names}."
            )

    def _check_order(self, new: set[Operation]) -> None:
        for op in new - self._ran:
            for before in op.control_inputs:
                if before in self._ran:
                    raise _cannot_cross(
                        f"the control edge from {before.name!r}, which an earlier call ran, to {op.name!r}"
                    )
        for op in new & self._ran:
            raise _cannot_cross(f"the values of {op.name!r}, which an earlier call ran,")

    def _border(self, new: set[Operation]) -> list[Tensor]:
        """The tensors made now that a later go needs."""
        later = self._all - new - self._ran
        border = {t: None for op in later for t in op.inputs if t.op in new and t not in self._values}
        kept = [t for t in border if not (_is_source(t.op) and _is_state(t))]
        for tensor in kept:
            if _is_state(tensor):
                raise _cannot_cross(f"the {tensor.dtype.name} {tensor.name!r}")
            if tensor.op._control_flow_context is not None or not self._graph.is_fetchable(tensor):
                raise _cannot_cross(f"{tensor.name!r}, which is inside a loop or conditional,")
        return kept


def _needed(tensors: Iterable[Tensor], targets: Iterable[Operation], known: Iterable[Tensor]) -> set[Operation]:
    """The ops that must run for tensors and targets when the values of ``known`` are there."""
    values = set(known)
    stack = [t.op for t in tensors if t not in values] + list(targets)
    found: set[Operation] = set()
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(t.op for t in op.inputs if t not in values)
            stack.extend(op.control_inputs)
    return found


def _blank(feed: Any) -> Any:
    """A value of the right structure for a feed key."""
    return [_blank(part) for part in feed] if isinstance(feed, tuple) else (None, None, None)


def _is_source(op: Operation) -> bool:
    return not op.inputs and not op.control_inputs


def _is_state(tensor: Tensor) -> bool:
    """Whether a tensor is a reference or a handle: it means the same in every step, but has no value to keep."""
    return tensor.dtype._is_ref_dtype or tensor.dtype in (dtypes.resource, dtypes.variant)


def _invalid(message: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError.of(message)


def _cannot_cross(what: str) -> errors.UnimplementedError:
    return errors.UnimplementedError.of(
        f"partial_run cannot carry {what} from one call to a later one: fetch both in the same call."
    )
