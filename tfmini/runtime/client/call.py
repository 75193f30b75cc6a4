"""`Call`: the fetches and feeds of a ``Session.run``, worked out once for all runs of the same pair.

A `PartialRun` makes several of one step; what a step has done that was cut off is asked from its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.graph.attr_checks import output_context
from tfmini.graph.graph import Graph
from tfmini.graph.node import Endpoint, Nodes
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import EXIT_OPS
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.prune import prune
from tfmini.rpc.messages import GetStepOutcome
from tfmini.rpc.peer import State
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.client.feeds import Convert, TensorHandle, converter, flatten_feed
from tfmini.runtime.client.fetches import Fetches, conversion_of
from tfmini.runtime.executor.registered_graph import StepOutcome
from tfmini.runtime.master.registration import Signature
from tfmini.runtime.master.step import Step

if TYPE_CHECKING:
    from tfmini.runtime.master.registration import Part, Plan


class Call:
    """See the module.

    Attributes:
      converters: per feed, the function that turns a fed value into an array.
      signature: of the step that the call needs.
      ops: those that are fed, fetched or run.
      needs_step: false when all fetches are fed.
      plan: of the signature, once it has been prepared.
    """

    __slots__ = ("converters", "signature", "ops", "needs_step", "plan", "_build", "_feeds", "_from_feeds")

    def __init__(self, fetches: Fetches, feeds: Sequence[Tensor], converters: list[Convert]) -> None:
        self.converters = converters
        self._build = fetches.build
        self._feeds = feeds
        positions = {tensor: i for i, tensor in enumerate(feeds)}
        sources = [positions.get(tensor) for tensor in fetches.tensors]
        # Per fetched tensor the position of its feed, or None where it is not fed; None if no fetched tensor is fed.
        self._from_feeds = None if all(i is None for i in sources) else sources
        wanted = tuple(tensor.name for tensor, i in zip(fetches.tensors, sources) if i is None)
        targets = tuple(op.name for op in fetches.targets)
        self.signature: Signature = (tuple(tensor.name for tensor in feeds), wanted, targets)
        self.ops = tuple({*(tensor.op for tensor in (*feeds, *fetches.tensors)), *fetches.targets})
        self.needs_step = bool(wanted or targets)
        self.plan: Any = None

    def result(self, found: Sequence[Any], values: Sequence[Any], feed_dict: Any) -> Any:
        """The result of ``Session.run``: a value of rank 0 as a numpy scalar (bytes for a string), in the structure.

        Args:
          found: the values that the step has fetched.
          values: the converted fed values.
          feed_dict: as it was given; a fed text that is fetched stays text.
        """
        if self._from_feeds is not None:
            rest = iter(found)
            if any(tensor.dtype is dtypes.string for tensor in self._feeds):
                values = self._with_texts(values, feed_dict)
            found = [next(rest) if i is None else own_copy(values[i]) for i in self._from_feeds]
        return self._build([v[()] if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in found])

    def _with_texts(self, values: Sequence[Any], feed_dict: Any) -> list[Any]:
        """The converted fed values, but texts as they were fed: steps get them as bytes."""
        given = [pair for k, v in feed_dict.items() for pair in flatten_feed(self._feeds[0].graph, k, v)]
        return [
            np.asarray(fed, dtype=object)
            if tensor.dtype is dtypes.string and not isinstance(fed, TensorHandle)
            else value
            for (tensor, fed), value in zip(given, values)
        ]


# A session finds an earlier call by a key, which must be equal for calls of the same structure alone. But Python's
# containers compare by their elements: a namedtuple equals a tuple, and the key 1 of a dictionary True.


def quick_key(fetches: Any, feeds: tuple[Any, ...] | None) -> Any:
    """The key of a call whose fetches are one element or a flat list or tuple, with the keys of its feed_dict.

    Raises:
      TypeError: something in it cannot be hashed.
    """
    return tuple(fetches) if type(fetches) is list else fetches, type(fetches), feeds


def nested_key(fetches: Any, feeds: tuple[Any, ...] | None) -> Any:
    """The key of a call whose fetches are nested, as those of hooks are."""
    return _frozen(fetches), dict, feeds


def _frozen(fetches: Any) -> Any:
    """Fetches as a hashable value with the types of all containers and of the keys of dictionaries."""
    kind = type(fetches)
    if kind is Tensor:  # a quick look first
        return fetches
    if kind is dict:
        return (dict, tuple(fetches), *map(type, fetches), *map(_frozen, fetches.values()))
    if kind is list or isinstance(fetches, tuple):
        return (kind, *map(_frozen, fetches))
    return fetches


def key_to_remember(fetches: Any, feeds: tuple[Any, ...] | None) -> Any:
    """The key by which a new call may be found again, None for fetches that another structure might equal."""
    try:
        if _is_element(fetches) or isinstance(fetches, (list, tuple)) and all(map(_is_element, fetches)):
            key = quick_key(fetches, feeds)
        elif _is_told_apart(fetches):
            key = nested_key(fetches, feeds)
        else:
            return None
        hash(key)
    except TypeError:
        return None
    return key


def _is_told_apart(fetches: Any) -> bool:
    if type(fetches) is dict:
        return all(map(_is_key, fetches)) and all(map(_is_told_apart, fetches.values()))
    if type(fetches) is list or isinstance(fetches, tuple):
        return all(map(_is_told_apart, fetches))
    return _is_element(fetches)


def _is_key(key: Any) -> bool:
    return type(key) in (str, bytes, int, bool) or _equals_itself_alone(key)


def _is_element(fetch: Any) -> bool:
    """Whether a fetch is a name, or an object without parts that another may take the place of."""
    if type(fetch) in (str, bytes):
        return True
    has_parts = hasattr(fetch, "__attrs_attrs__") or conversion_of(fetch) is not None
    return _equals_itself_alone(fetch) and not has_parts


_IDENTITY: Any = object.__eq__


def _equals_itself_alone(value: Any) -> bool:
    return isinstance(value, Tensor) or type(value).__eq__ is _IDENTITY


def own_copy(value: Any) -> Any:
    """A fed value that is fetched: the caller may change the one without changing the other."""
    return value.copy() if isinstance(value, np.ndarray) else value


# ---- ``Session.partial_run``: one step whose feeds and fetches come in several goes --------------------------------
# Each go is an ordinary step of its own that runs the ops its fetches need and that no earlier go ran. The
# tensors on the border, which a later go will need, are fetched along and fed to that go. So every op runs
# at most once, wherever it is placed, and nothing waits on a server between two goes.
#
# What cannot cross a border is refused by name: a reference or a handle that an op with inputs made, the
# inside of a loop or conditional, and the order that a control edge asks for.

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
        try:
            self._advance(wanted)
        except errors.UnimplementedError:  # nothing has run: another call may feed the same and fetch more
            for tensor, _ in fed:
                del self._values[tensor]
            raise
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
        new |= self._other_results(new)
        new -= {op for op in new if op in self._ran and _is_source(op)}
        self._check_order(new)
        border = self._border(new)
        inputs = {t for op in new for t in op.inputs if t in self._values and (t in self._feeds or not _is_state(t))}
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

    def _other_results(self, new: set[Operation]) -> set[Operation]:
        """What the loops that run now need for their results for later goes, unless that waits for feeds."""
        loops = {op._control_flow_context for op in new if op.type in EXIT_OPS}
        exits = [op for op in self._all - new if op.type in EXIT_OPS and op._control_flow_context in loops]
        more = _needed((op.outputs[0] for op in exits), [], self._values.keys())
        waits = any(t in self._feeds and t not in self._values for op in more for t in op.inputs)
        return set() if waits else more

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
            if output_context(tensor.op) is not None:
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


# ---- A step that a lost connection has cut off: what it has done, and the same step without that -------------------

_ASK_S = 30.0
_COMPUTES_S = 600.0  # seconds for which a task that answers otherwise may compute on before nobody waits any more


class UnfinishedStep:
    """The ``unfinished`` of the error of such a step. Its session may be closed meanwhile."""

    def __init__(self, step: Step) -> None:
        self._session = step.session.handle
        self._cluster = step.session.cluster
        self._parts = step.plan.parts
        self._step_id = step.step_id

    def updates_made(self) -> frozenset[str]:
        """Asks all tasks of the step for the updates that the step has made there; a restarted task has none.

        Raises:
          UnavailableError, DeadlineExceededError: when a task does not answer.
          UnknownError: when a task does not know whether it has made an update.
        """
        made: frozenset[str] = frozenset()
        for part in self._parts:
            outcome = self._outcome(part)
            if outcome.uncertain:
                names = ", ".join(sorted(outcome.uncertain))
                raise errors.UnknownError(None, None, (
                    f"Step {self._step_id} was cut off while {part.task} made its updates ({names}), and nobody knows"
                    " which of them it has made. The step is not repeated, since an update could be made twice. Go on"
                    " from the last checkpoint, or run the step again if that does no harm."
                ), task=part.task)  # fmt: skip
            made |= outcome.made
        return made

    def _outcome(self, part: Part) -> StepOutcome:
        """The outcome of one part. A task that still computes the step answers when it has done so."""
        now, reactor = self._cluster.worker.now, self._cluster.reactor
        end = now() + _COMPUTES_S
        while True:
            answer: Answer[StepOutcome] = Answer(reactor)
            self._ask(part, answer)
            try:
                return answer.result(describe=lambda told: told(
                    f"step {self._step_id} was cut off, and {part.task} has not ended its part; its updates must be"
                    " known before the step is repeated"
                ))  # fmt: skip
            except errors.AbortedError:  # another incarnation
                return StepOutcome()
            except errors.DeadlineExceededError:
                if part.peer.state is not State.READY or now() > end:
                    raise

    def _ask(self, part: Part, answer: Answer[StepOutcome]) -> None:
        def answered(reply: Any) -> None:
            if isinstance(reply, errors.OpError):
                answer.done(reply)
            else:
                answer.done(None, StepOutcome(frozenset(reply.made), frozenset(reply.uncertain)))

        if part.peer is None:
            self._cluster.worker.final_outcome(self._session, self._step_id, lambda found: answer.done(None, found))
            return
        part.peer.call(
            GetStepOutcome(self._session, self._step_id), answered, timeout_s=_ASK_S, incarnation=part.incarnation,
            wait_for_ready=True,
        )  # fmt: skip


class FinishedStep:
    """The same for a step that has come to its end, before something failed that follows from it."""

    def __init__(self, plan: Plan | None, omitted: frozenset[str]) -> None:
        parts = [] if plan is None else plan.parts
        nodes = [node for part in parts for node in part.task_graph.nodes.values()]
        self._updates = frozenset(node.name for node in nodes if is_update(node)) | omitted

    def updates_made(self) -> frozenset[str]:
        """All updates of the step."""
        return self._updates


class RemoteStep:
    """The same for a step whose master is in another process, which does not tell what the step has done.

    Args:
      nodes: the nodes of the session's graph, by name.
      what: the event after which nobody knows.
    """

    def __init__(self, nodes: Nodes, signature: Signature, what: str) -> None:
        self._nodes = nodes
        self._signature = signature
        self._what = what

    def updates_made(self) -> frozenset[str]:
        """Nothing for a step without updates.

        Raises:
          UnknownError: for others; it names the tasks and the updates.
        """
        feeds, fetches, targets = self._signature
        needed = prune(self._nodes, [_endpoint(t) for t in fetches], targets, [_endpoint(t) for t in feeds])
        updates = [node for node in needed.values() if is_update(node)]
        if not updates:
            return frozenset()
        places = sorted({node.device or "a task that its master chose" for node in updates})
        names = sorted(node.name for node in updates)
        raise errors.UnknownError(None, None, (
            f"A step was cut off ({self._what}), and nobody knows which of its updates it has made on"
            f" {', '.join(places)}: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}. Its master is in"
            " another process, which does not tell. The step is not repeated, since an update could be made twice."
            " Go on from the last checkpoint. A script with the target of its own tf.train.Server recovers by itself."
        ))  # fmt: skip


def _endpoint(name: str) -> Endpoint:
    node, _, index = name.rpartition(":")
    return node, int(index)
