"""A master's side of one client session: its graph, placement, plans and running steps.

Nothing here waits. A client in the same process drives the reactor until its callback has been called. For a remote
client `master_service` sends the answer from the callback.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfmini import errors
from tfmini.collector import collector_at_rest
from tfmini.graph.node import Node, Nodes
from tfmini.graph.node_types import MADE_BY_PASSES, by_name, check_edges
from tfmini.graph.omission import omit
from tfmini.graph.prune import prune
from tfmini.placement.decision import Decision
from tfmini.placement.neighbours import ColocationLeaders, with_neighbours
from tfmini.placement.placer import place
from tfmini.printable import printable
from tfmini.runtime.master.plan import Plan, build_plan, endpoint_of
from tfmini.runtime.master.plan_wait import PlanWait
from tfmini.runtime.master.registration import Registration, forget_when_unused
from tfmini.runtime.master.step import OnDone, Step
from tfmini.runtime.master.step_waits import Told
from tfmini.runtime.master.traced_step import TracedStep
from tfmini.runtime.options import SessionOptions

if TYPE_CHECKING:
    from tfmini.runtime.master.master import Master

_log = logging.getLogger("tfmini.runtime")

OnPlan = Callable[[errors.OpError | None, Plan | None], None]
_Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_PlanKey = tuple[_Signature, bool, frozenset[str]]  # with whether it is traced, and the updates that it omits

PLAN_LIMIT = 4096  # of a session; the oldest are forgotten, and made again when they are needed
CLOSED_BY_CLIENT = "Step was cancelled by an explicit call to `Session::Close()`."


class MasterSession:
    """See the module. `Master.create_session` makes it.

    Attributes:
      in_process: whether the client is in this process; its thread may then run a local plan by itself.
      opened_at: on the clock of the worker.
      ended, failed: the number of its steps that have ended; of those that have ended with an error.
      asked_tasks: those that were asked to open this session, also if they have not answered.
      holds: functions that stop reconnecting to the tasks where this session is open.
    """

    def __init__(self, master: Master, handle: str, options: SessionOptions, in_process: bool = False) -> None:
        self.master = master
        self.handle = handle
        self.options = options
        self.in_process = in_process
        self.nodes: Nodes = {}
        self.placement: dict[str, str] = {}
        self.decisions: dict[str, Decision] = {}
        self._leaders = ColocationLeaders()
        self.graph_version = 0
        self.closed = False
        self.closed_because = CLOSED_BY_CLIENT
        self._closed_as: Callable[[str], errors.OpError] = errors.CancelledError.of
        self.asked_tasks: dict[str, None] = {}  # ordered: a seed repeats a simulated run exactly
        self.registered_tasks: dict[str, int] = {}
        self.holds: list[Callable[[], None]] = []
        self._names = itertools.count(0)
        self._plans: dict[_PlanKey, Plan] = {}
        self._building: dict[_PlanKey, list[OnPlan]] = {}
        self._steps: dict[int, Step] = {}
        self.opened_at = master.worker.now()
        self.ended = self.failed = 0
        self._registrations: set[Registration] = set()
        self._lock = threading.RLock()

    # ---- graph ------------------------------------------------------------------------------

    def extend(self, nodes: Sequence[Node]) -> int:
        """Adds nodes and places them; returns the new graph version.

        Raises:
          InvalidArgumentError: when a name is known already or a node cannot be placed.
          OpError: `closing_error`, when the session is closed.
        """
        self._check_open()
        with self._lock, collector_at_rest():
            for node in nodes:
                if node.name in self.nodes:
                    text = (
                        f"GraphDef argument to Extend includes node '{node.name}', which was created by a previous call"
                        " to Create or Extend in this session."
                    )
                    raise errors.InvalidArgumentError.of(text)
            if not self.in_process:
                self._check(nodes)
            self._place({node.name: node for node in nodes})
            self.nodes.update((node.name, node) for node in nodes)
            self._leaders.add(nodes)
            self.graph_version += 1
            return self.graph_version

    def _check(self, nodes: Sequence[Node]) -> None:
        """Refuses what a client's own checks exclude."""
        check_edges(nodes, ChainMap(by_name(nodes), self.nodes))
        for node in nodes:
            if node.op in MADE_BY_PASSES:
                text = f"Node {node.name!r} has the op {node.op}, which only the runtime makes."
                raise errors.InvalidArgumentError.of(text)

    def extend_when_known(self, nodes: Sequence[Node], on_done: Callable[[errors.OpError | None], None]) -> None:
        """As `extend`, after asking tasks about devices that the nodes name and that this master does not know."""

        def known() -> None:
            error: errors.OpError | None = None
            try:
                if nodes:
                    self.extend(nodes)
            except errors.OpError as failure:
                error = failure
            on_done(error)

        self.master.learn_devices(nodes, self.options, known)

    def _place(self, nodes: Nodes) -> None:
        """Places new nodes; those placed earlier keep their devices."""
        filters = self.options.device_filters
        devices = self.master.devices(filters)
        placement = place(
            with_neighbours(nodes, self.nodes, self._leaders),
            devices,
            default_device=self.master.default_device,
            soft_placement=self.options.allow_soft_placement,
            assigned=self.placement,
            hidden=[d.name for d in self.master.devices(()) if d not in devices] if filters else (),
        )
        new = {name: placement[name] for name in nodes}
        self.decisions.update(new)
        self.placement.update({name: d.device for name, d in new.items()})
        if self.options.log_device_placement:
            for name, decision in new.items():
                line = printable(f"{name}: ({nodes[name].op}): {decision.device}")  # the graph may be a client's
                print(line)
                _log.info("%s", line)

    def _check_open(self) -> None:
        if self.closed:
            raise self.closing_error()

    # ---- plans ------------------------------------------------------------------------------

    def find_plan(self, signature: _Signature, traced: bool = False) -> Plan | None:
        """The plan of a signature, or None if it is not registered."""
        return self._plans.get((signature, traced, frozenset()))

    def prepare(
        self, signature: _Signature, on_plan: OnPlan, traced: bool = False, timeout_s: float | None = None,
        omitted: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        """Calls back with the plan of (feeds, fetches, targets), built and registered on all tasks.

        After a failure the next call tries again.

        Args:
          traced: asks for the plan whose programs record a trace, which is another plan than the usual one.
          timeout_s: seconds until the callback gets DeadlineExceededError.
          omitted: the names of updates that the plan leaves out.
        """
        key = (signature, traced, omitted)
        if timeout_s is not None and key not in self._plans:
            on_plan = PlanWait(on_plan, timeout_s, self.master.reactor, self._describe_registrations).done
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                others = self._building.get(key)
                if others is not None:
                    others.append(on_plan)
                    return
                self._building[key] = [on_plan]
        if plan is not None:
            on_plan(None, plan)
            return
        try:
            self._check_open()
            plan = self._build(signature, omitted)
            plan.traced = traced
            registration = Registration(self, plan, lambda error: self._prepared(key, error, plan))
            with self._lock:  # either `close` sees the registration or it is never begun
                if self.closed:
                    raise self.closing_error()
                self._registrations.add(registration)
            registration.start()
        except errors.OpError as error:
            self._prepared(key, error, None)
        except BaseException as error:  # even Ctrl-C
            # Others may wait for this plan: they must not wait for ever.
            self._prepared(key, errors.InternalError.of(f"{type(error).__name__}: {error}"), None)
            raise

    def _build(self, signature: _Signature, omitted: frozenset[str]) -> Plan:
        feeds, fetches, targets = signature
        with self._lock, collector_at_rest():
            incarnations = {d.name: d.incarnation for d in self.master.devices(())}
            nodes, placement = self.nodes, self.placement
            if omitted:
                fed, wanted = map(endpoint_of, feeds), map(endpoint_of, fetches)
                nodes, places = omit(nodes, omitted, prune(nodes, list(wanted), targets, list(fed)), placement)
                placement = {**placement, **places}
            return build_plan(
                nodes, placement, feeds, fetches, targets,
                client_device=self.master.default_device, incarnations=incarnations, name_counter=self._names,
            )  # fmt: skip

    def _prepared(self, key: _PlanKey, error: errors.OpError | None, plan: Plan | None) -> None:
        with self._lock:
            self._registrations = {r for r in self._registrations if not r.is_over}
            if error is None and plan is not None and not self.closed:
                self._plans[key] = plan
            old = [self._plans.pop(next(iter(self._plans))) for _ in range(len(self._plans) - PLAN_LIMIT)]
            waiting = self._building.pop(key, [])
        for forgotten in old:
            forget_when_unused(forgotten, self.master)
        for callback in waiting:
            callback(error, None if error is not None else plan)

    # ---- steps ------------------------------------------------------------------------------

    def new_step(self, plan: Plan, on_done: OnDone, timeout_s: float | None) -> Step:
        """A step of a plan, to be started; `Step` has the arguments."""
        return (TracedStep if plan.traced else Step)(self, plan, on_done, timeout_s)

    def add_step(self, step: Step) -> bool:
        """Notes a step that begins; False when the session is closed."""
        with self._lock:  # either `close` sees the step or the step sees that the session is closed
            if not self.closed:
                self._steps[step.step_id] = step
            return not self.closed

    def remove_step(self, step: Step, has_failed: bool) -> None:
        """Forgets a step that has ended, and counts it."""
        self._steps.pop(step.step_id, None)
        self.ended += 1
        self.failed += has_failed
        self.master.step_over(has_failed)

    def steps(self) -> list[Step]:
        """The steps that run now, except those that a client's thread runs alone (`Worker.execute`)."""
        return list(self._steps.values())

    def describe_wait(self, signature: _Signature, told: Told) -> None:
        """Calls back with the waits of a step of that signature, or of its registration."""
        plans = [plan for traced in (False, True) if (plan := self.find_plan(signature, traced)) is not None]
        step = next((step for step in list(self._steps.values()) if step.plan in plans), None)
        if step is not None:
            step.describe(told)
            return
        told(self._describe_registrations())

    def _describe_registrations(self) -> str:
        with self._lock:
            registrations = list(self._registrations)
        return "; ".join(text for r in registrations if (text := r.describe_wait()))

    def closing_error(self) -> errors.OpError:
        """The error of steps and registrations that the end of the session ends."""
        return self._closed_as(self.closed_because)

    def close(
        self, why: str = CLOSED_BY_CLIENT, make_error: Callable[[str], errors.OpError] = errors.CancelledError.of
    ) -> None:
        """Ends running steps and tells the tasks to forget the session.

        Args:
          why: the text of the error that the steps get.
          make_error: makes it.
        """
        with self._lock:
            if self.closed:
                return
            self.closed, self.closed_because, self._closed_as = True, why, make_error
            running = list(self._steps.values())
            registrations = list(self._registrations)
            self._plans.clear()
        for registration in registrations:
            registration.cancel(self.closing_error())
        for step in running:
            step.cancel(self.closing_error())
        self.master.forget(self)
