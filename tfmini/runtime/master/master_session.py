"""A master's side of one client session: its graph, placement, plans and running steps.

Nothing here waits. A client in the same process drives the reactor until its callback has been called. For a remote
client `master_service` sends the answer from the callback.
"""

from __future__ import annotations

import collections
import itertools
import logging
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tfmini import errors
from tfmini.graph.node import MADE_BY_PASSES, Node, Nodes, by_name, check_edges
from tfmini.graph.omission import omit
from tfmini.graph.prune import prune, training_ops
from tfmini.locks import Guarded, lock
from tfmini.memory import collector_at_rest
from tfmini.placement.decision import Decision, moved_from
from tfmini.placement.placer import ColocationLeaders, place, with_neighbours
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import FanOut, fan_out, first_error
from tfmini.rpc.messages import SettleVariables
from tfmini.rpc.transport import MakeError
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.master.cluster import ClusterView
from tfmini.runtime.master.following import VariableGroup, followed, groups_on
from tfmini.runtime.master.registration import (
    Plan,
    Registration,
    SessionOnTasks,
    Signature,
    build_plan,
    endpoint_of,
    forget_when_unused,
)
from tfmini.runtime.master.step import OnDone, Step, StepCounts, Told, TracedStep, TraceRequest
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.worker.departures import Forwarding, NewPlace, VariablesMoved
from tfmini.text import printable

_log = logging.getLogger("tfmini.runtime")

OnPlan = Callable[[errors.OpError | None, Plan | None], None]
OnStep = Callable[[Step], Any]
OnOutcome = Callable[[Outcome[Plan]], None]
_PlanKey = tuple[Signature, bool, frozenset[str]]  # with whether it is traced, and the updates that it omits

PLAN_LIMIT = 4096  # of a session; the oldest are forgotten, and made again when they are needed
_MOST_FOLLOWS = 100  # of one plan: as often may its variables have moved from task to task
CLOSED_BY_CLIENT = "Step was cancelled by an explicit call to `Session::Close()`."


class HeldSteps:
    """A hold on the steps of a session: variables that some of them use are about to move.

    Args:
      uses: whether a plan uses them.
      source: the task that they move away from.

    Attributes:
      plans: those that do.
      waiting: the steps that wait for the end of the hold, with their fed values.
    """

    def __init__(self, uses: Callable[[Plan], bool], source: str) -> None:
        self.uses, self.source = uses, source
        self.plans: list[Plan] = []
        self.waiting: list[tuple[Step, Sequence[Any]]] = []

    def judge(self, plan: Plan) -> None:
        """Halts a plan if it uses them."""
        if not plan.halted and self.uses(plan):
            plan.moves_from = self.source
            plan.halt(True)
            self.plans.append(plan)


class SessionBook:
    """The plans, registrations and steps of a session, as long as it is open. Pure.

    Attributes:
      building: the plans that are being made, and who waits for each.
      held: the hold on its steps, if there is one.
      closed: whether it was closed; ``closed_because``: why. ``closed_as`` makes the error that says so.
    """

    def __init__(self) -> None:
        self.plans: dict[_PlanKey, Plan] = {}
        self.building: dict[_PlanKey, list[OnOutcome]] = {}
        self.registrations: dict[Registration, None] = {}
        self.steps: dict[int, Step] = {}
        self.held: HeldSteps | None = None
        self.closed = False
        self.closed_because = CLOSED_BY_CLIENT
        self.closed_as: MakeError = errors.CancelledError.of

    def ask(self, key: _PlanKey, answered: OnOutcome) -> tuple[Plan | None, bool]:
        """Somebody needs a plan: returns it if it is there, and whether the caller is to make it."""
        plan = self.plans.get(key)
        if plan is not None:
            return plan, False
        waiting = self.building.setdefault(key, [])
        waiting.append(answered)
        return None, len(waiting) == 1

    def begin(self, registration: Registration) -> bool:
        """A registration is about to begin; False if it must not: the session is closed."""
        if not self.closed:
            self.registrations[registration] = None
            if self.held is not None:
                self.held.judge(registration.plan)
        return not self.closed

    def made(self, key: _PlanKey, plan: Plan | None) -> tuple[list[Plan], list[OnOutcome]]:
        """A plan has been made, or (None) could not be; returns those to forget, and who waits for this one."""
        for registration in [each for each in self.registrations if each.is_over]:
            del self.registrations[registration]
        is_dead = plan is not None and plan.halted and self.held is None  # its variables moved while it was made
        if plan is not None and not self.closed and not is_dead:
            self.plans[key] = plan
        old = [self.plans.pop(next(iter(self.plans))) for _ in range(len(self.plans) - PLAN_LIMIT)]
        if plan is not None and is_dead:
            old.append(plan)
        return old, self.building.pop(key, [])

    def add_step(self, step: Step) -> bool | None:
        """Notes a step that begins; False when the session is closed, None when its plan is halted."""
        if self.closed:
            return False
        if step.plan.halted:
            return None
        self.steps[step.step_id] = step
        return True

    def hold(self, uses: Callable[[Plan], bool], source: str) -> None:
        """Halts the plans for which ``uses`` holds, those that are being made too; again: further ones."""
        if self.closed:
            return
        held, self.held = self.held, HeldSteps(uses, source)
        if held is not None:
            self.held.plans, self.held.waiting = held.plans, held.waiting
        for plan in [*self.plans.values(), *(registration.plan for registration in self.registrations)]:
            self.held.judge(plan)

    def wait(self, step: Step, values: Sequence[Any]) -> bool:
        """A step of a halted plan is to begin: keeps it until the end of the hold; False: there is no hold."""
        if self.held is not None:
            self.held.waiting.append((step, values))
        return self.held is not None

    def release(self, changed: bool) -> tuple[list[Plan], list[tuple[Step, Sequence[Any]]]]:
        """Ends the hold; returns the plans that are to be made anew, and the steps that have waited.

        Args:
          changed: whether its variables have moved.
        """
        held, self.held = self.held, None
        if held is None:
            return [], []
        for plan in () if changed else held.plans:
            plan.halt(False)
        old = {key: plan for key, plan in self.plans.items() if plan.halted}
        for key in old:
            del self.plans[key]
        return list(old.values()), held.waiting

    def close(self, why: str, make_error: MakeError) -> tuple[list[Registration], list[Step]] | None:
        """Ends the session; returns what runs or waits in a hold. None: it is closed already."""
        if self.closed:
            return None
        self.closed, self.closed_because, self.closed_as = True, why, make_error
        self.plans.clear()
        held, self.held = self.held, None  # nobody releases the steps of a closed session
        waiting = [step for step, _ in held.waiting] if held is not None else []
        return list(self.registrations), [*self.steps.values(), *waiting]


def _identity(node: Node) -> tuple[Any, ...]:
    """What tells a node from another one of its client's graph; it says no more than the attrs do."""
    return node.name, node.op, node.device, node.inputs, node.controls


class MasterSession:
    """See the module. `Master.create_session` makes it.

    Args:
      cluster: as the session sees it.
      on_step_over: called when a step has ended, with whether it is a training step and whether it has failed.
      on_closed: called when the session has been closed.
      in_process: whether the client is in this process.
      others_train: whether the graph of another session of this master has ops that train.

    Attributes:
      opened_at: on the clock of the worker.
      counts: of its steps that have ended.
      book: its plans and steps; see `SessionBook`.
      tasks: where it is open.
      followed: the tasks that have told it where their variables are -> their incarnations.
      on_halted_step_ended: called when a step of a halted plan has ended.
    """

    def __init__(
        self,
        cluster: ClusterView,
        handle: str,
        options: SessionOptions,
        on_step_over: Callable[[bool, bool], None],
        on_closed: Callable[[MasterSession], None],
        in_process: bool = False,
        others_train: Callable[[], bool] = lambda: False,
    ) -> None:
        self.cluster = cluster
        self._others_train = others_train
        self._on_step_over, self._on_closed = on_step_over, on_closed
        self.handle = handle
        self.options = options
        self.in_process = in_process
        self.nodes: Nodes = {}
        self._types: frozenset[str] = frozenset()  # of the ops; replaced, since other sessions' threads go through it
        self.placement: dict[str, str] = {}
        self.decisions: dict[str, Decision] = {}
        self._leaders = ColocationLeaders()
        self.graph_version = 0
        self._sizes = [0]  # of each version: how many nodes it has
        self._book = Guarded("session plans", SessionBook())
        self.book = self._book.state
        self.tasks = SessionOnTasks(cluster, handle, options, in_process)
        self._names = itertools.count(0)
        self.opened_at = cluster.worker.now()
        self.counts = StepCounts()
        self._graph_lock = lock("session graph")  # guards the nodes and their placement
        self.followed: dict[str, int] = {}
        self._told: dict[str, Forwarding] = {}  # what these tasks have told, the latest last
        self._asked: dict[str, str] = {}  # the placement as if nothing had moved; kept from the first move on
        self._follows: collections.Counter[_PlanKey] = collections.Counter()  # of each plan that is being made
        self._had_plans = False
        self.on_halted_step_ended: Callable[[], None] = lambda: None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.book.closed

    @property
    def closed_because(self) -> str:
        """Why it was closed."""
        return self.book.closed_because

    # ---- graph ------------------------------------------------------------------------------

    def extend(self, nodes: Sequence[Node], since: int | None = None) -> int:
        """Adds nodes and places them; returns the new graph version.

        Args:
          since: the last version that the client has heard of. If it has not waited for the answers to later
            extensions, it repeats their nodes, and only further ones are added.

        Raises:
          AbortedError: the nodes do not repeat what was added since then.
          InvalidArgumentError: when a name is known already or a node cannot be placed.
          OpError: `closing_error`, when the session is closed.
        """
        self._check_open()
        with self._graph_lock, collector_at_rest():
            if since is not None and not (nodes := self._added_to(since, nodes)):
                return self.graph_version
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
            self._add_types({node.op for node in nodes})
            self._sizes.append(len(self.nodes))
            self.graph_version += 1
            version = self.graph_version
        if self.options.log_device_placement:
            self._log_placement(nodes)  # without the lock: whoever reads the output may be slow
        return version

    def _added_to(self, since: int, nodes: Sequence[Node]) -> Sequence[Node]:
        """The nodes that an extension of version ``since`` adds to this one; see `extend`."""
        if since == self.graph_version:
            return nodes
        size = self._sizes[since] if 0 <= since < self.graph_version else -1
        repeated = list(itertools.islice(self.nodes.values(), size, None)) if size >= 0 else []
        if size < 0 or [_identity(node) for node in nodes[: len(repeated)]] != [_identity(node) for node in repeated]:
            raise errors.AbortedError.of(f"Current version is {self.graph_version} but caller expected {since}.")
        return nodes[len(repeated) :]

    def _add_types(self, types: set[str]) -> None:
        """Notes the op types of new nodes. The first that train make other steps than before training steps."""
        before = training_ops(self._types)
        self._types |= types
        if training_ops(self._types) != before:
            for plan in list(self.book.plans.values()):
                plan.judge(self._types, False)

    @property
    def has_training(self) -> bool:
        """Whether its graph has ops that train."""
        return bool(training_ops(self._types))

    def _check(self, nodes: Sequence[Node]) -> None:
        """Refuses what a client's own checks exclude."""
        check_edges(nodes, ChainMap(by_name(nodes), self.nodes))
        for node in nodes:
            if node.op in MADE_BY_PASSES:
                text = f"Node {node.name!r} has the op {node.op}, which only the runtime makes."
                raise errors.InvalidArgumentError.of(text)

    def extend_when_known(
        self, nodes: Sequence[Node], on_done: Callable[[errors.OpError | None], None], since: int | None = None
    ) -> None:
        """As `extend`, after asking tasks about devices that the nodes name and that this task does not know."""

        def known() -> None:
            error: errors.OpError | None = None
            try:
                if nodes:
                    self.extend(nodes, since)
            except errors.OpError as failure:
                error = failure
            except BaseException as failure:
                # Without an answer the client would wait for ever.
                on_done(errors.InternalError.of(f"{type(failure).__name__}: {failure}"))
                raise
            on_done(error)

        self.cluster.learn_devices(nodes, self.options, known)

    def _place(self, nodes: Nodes) -> None:
        """Places new nodes; those placed earlier keep their devices."""
        filters = self.options.device_filters
        devices = self.cluster.devices(filters)
        placement = place(
            with_neighbours(nodes, self.nodes, self._leaders),
            devices,
            default_device=self.cluster.default_device,
            soft_placement=self.options.allow_soft_placement,
            assigned=self._asked or self.placement,
            hidden=[d.name for d in self.cluster.devices(()) if d not in devices] if filters else (),
        )
        new = {name: placement[name] for name in nodes}
        self.decisions.update(new)
        chosen = {name: d.device for name, d in new.items()}
        if self._told:
            self._asked.update(chosen)
            self._place_moved({**self.nodes, **nodes})
        else:
            self.placement.update(chosen)

    def _log_placement(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            line = printable(f"{node.name}: ({node.op}): {self.placement[node.name]}")  # the graph may be a client's
            print(line)
            _log.info("%s", line)

    def _check_open(self) -> None:
        if self.closed:
            raise self.closing_error()

    # ---- plans ------------------------------------------------------------------------------

    def find_plan(self, signature: Signature, traced: bool = False) -> Plan | None:
        """The plan of a signature, or None if it is not registered."""
        return self.book.plans.get((signature, traced, frozenset()))

    def prepare(
        self, signature: Signature, on_plan: OnPlan, traced: bool = False, timeout_s: float | None = None,
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

        def done(outcomes: Mapping[str, Outcome[Plan]]) -> None:
            plan = outcomes["plan"]
            if isinstance(plan, errors.OpError):
                on_plan(plan, None)
            else:
                on_plan(None, plan)

        wait = FanOut({"plan": partial(self._prepare, key)}, done)
        reactor = self.cluster.reactor
        if timeout_s is not None and reactor is not None and key not in self.book.plans:
            wait.limit(reactor, timeout_s, lambda: late_plan(timeout_s, self._describe_registrations()))
        wait.begin()

    def _prepare(self, key: _PlanKey, answered: OnOutcome) -> None:
        plan, makes = self._book(SessionBook.ask, key, answered)
        if plan is not None:
            answered(plan)
        elif makes:
            self._make_plan(key)

    def _make_plan(self, key: _PlanKey) -> None:
        signature, traced, omitted = key
        try:
            self._check_open()
            plan = self._build(signature, traced, omitted)
            registration = Registration(self.tasks, plan, partial(self._registered, key, plan))
            if not self._book(SessionBook.begin, registration):
                raise self.closing_error()
            registration.start()
        except errors.OpError as error:
            self._prepared(key, error)
        except BaseException as error:  # even Ctrl-C
            # Others may wait for this plan: they must not wait for ever.
            self._prepared(key, errors.InternalError.of(f"{type(error).__name__}: {error}"))
            raise

    def _build(self, signature: Signature, traced: bool, omitted: frozenset[str]) -> Plan:
        feeds, fetches, targets = signature
        with self._graph_lock, collector_at_rest():
            incarnations = {d.name: d.incarnation for d in self.cluster.devices(())}
            nodes, placement = self.nodes, self.placement
            if omitted:
                fed, wanted = map(endpoint_of, feeds), map(endpoint_of, fetches)
                nodes, places = omit(nodes, omitted, prune(nodes, list(wanted), targets, list(fed)), placement)
                placement = {**placement, **places}
            plan = build_plan(
                nodes, placement, feeds, fetches, targets, traced=traced,
                client_device=self.cluster.default_device, incarnations=incarnations, name_counter=self._names,
            )  # fmt: skip
            plan.judge(self._types, not self._others_train())
            plan.omitted = omitted
            return plan

    def _registered(self, key: _PlanKey, plan: Plan, error: errors.OpError | None) -> None:
        if isinstance(error, VariablesMoved):
            self._follow(key, plan, error)
        else:
            self._prepared(key, error or plan)

    # ---- variables that have moved ------------------------------------------------------------

    def _follow(self, key: _PlanKey, plan: Plan, told: VariablesMoved) -> None:
        """Places the graph by what a task tells of its variables, and makes the plan again if it is another one now."""
        self._follows[key] += 1
        try:
            places = self._relocate(told)
            if self._follows[key] > _MOST_FOLLOWS or not self._is_outdated(plan, told.source):
                raise errors.InternalError.of(f"The variables of the step cannot be found: {told.message}")
            calls = {place: partial(self._settle, place) for place in sorted(places)}
        except errors.OpError as error:
            self._prepared(key, error)
            return
        fan_out(calls, partial(self._followed, key, told))

    def _is_outdated(self, plan: Plan, task: str) -> bool:
        """Whether a node of a task is elsewhere now; else the task would refuse the plan again for the same reason."""
        return any(
            self.placement.get(name, node.device) != node.device
            for part in plan.parts if part.task == task
            for name, node in part.task_graph.nodes.items()
        )  # fmt: skip

    def _relocate(self, told: VariablesMoved) -> set[NewPlace]:
        if self.cluster.worker_name(self.cluster.task):
            raise errors.UnimplementedError.of(
                f"{told.message} A session with a cluster of its own (ConfigProto.cluster_def) cannot follow them."
            )
        with self._graph_lock:
            self._asked = self._asked or dict(self.placement)
            self._told.pop(told.source, None)
            self._told[told.source] = told.forwarding
            places = self._place_moved(self.nodes)
        self.followed[told.source] = told.incarnation
        for new in places:
            if new.task not in self.cluster.addresses():
                self.cluster.set_address(new.task, new.address)
        return places

    def _place_moved(self, nodes: Nodes) -> set[NewPlace]:
        """Finds out where nodes are by what was told, from their places as if nothing had moved.

        Where that is not right, a task will tell again.

        Returns:
          The places to which the latest telling leads.
        """
        placement = dict(self._asked)
        found, places = followed(nodes, placement, self._told)
        for source, devices in found.items():
            placement |= devices
            for name, device in devices.items():
                if name in self.decisions:
                    reasons = moved_from(source), *self.decisions[name].reasons[-1:]
                    self.decisions[name] = Decision(device, reasons)
        self.placement = placement
        return places

    def _settle(self, place: NewPlace, answered: Callable[[Outcome[Any]], None]) -> None:
        """Makes sure that steps find the variables at their new place: who has moved them may have died before."""
        if place.task == self.cluster.task:
            outcome: Outcome[Any] = None
            try:
                self.cluster.worker.resources.unstage(place.move, True)
            except errors.AbortedError as error:  # as the call below would answer
                outcome = error
            answered(outcome)
            return
        limit_s = self.options.operation_timeout_s or self.options.connect_timeout_s
        request = SettleVariables(place.move, True)
        self.cluster.peer(place.task).call(request, answered, limit_s, place.incarnation, wait_for_ready=True)

    def _followed(self, key: _PlanKey, told: VariablesMoved, outcomes: Mapping[NewPlace, Outcome[Any]]) -> None:
        error = first_error(outcomes)
        # Who has used a variable that is lost now must begin anew. A new session finds out what is there.
        if error is not None and (self._had_plans or not isinstance(error, errors.AbortedError)):
            self._prepared(key, error)
        else:
            self._make_plan(key)

    def task_returned(self, task: str, incarnation: int) -> None:
        """A task is there again. If another process has taken its place, nobody knows where its variables were."""
        if self.followed.get(task, incarnation) != incarnation:
            text = f"{task}, which had given variables to other tasks, was restarted, and has forgotten it."
            self.close(f"{text} Make a new session, and restore the model.", errors.AbortedError.of)

    def _prepared(self, key: _PlanKey, outcome: Outcome[Plan]) -> None:
        plan = None if isinstance(outcome, errors.OpError) else outcome
        self._follows.pop(key, None)
        self._had_plans |= plan is not None
        old, waiting = self._book(SessionBook.made, key, plan)
        for forgotten in old:
            forget_when_unused(forgotten, self.cluster)
        for answered in waiting:
            answered(outcome)

    # ---- steps ------------------------------------------------------------------------------

    def run(
        self, signature: Signature, values: Sequence[Any], timeout_s: float | None, plan_timeout_s: float | None,
        traced: bool, request: TraceRequest | None, on_done: OnDone, begun: OnStep,
    ) -> None:  # fmt: skip
        """Makes the plan of a signature if that is needed, and runs a step of it, as `start_step`.

        Args:
          plan_timeout_s: seconds until it fails if the step has not begun.
          request: wants this step to be traced.
        """

        def over(error: errors.OpError | None, found: list[Any], trace: GatheredTrace | None) -> None:
            if request is not None:
                request.done(error, trace)
            on_done(error, found, trace)

        def prepared(error: errors.OpError | None, plan: Plan | None) -> None:
            if plan is None:
                over(error, [], None)
            else:
                self.start_step(plan, values, timeout_s, over, begun)

        self.prepare(signature, prepared, traced or request is not None, plan_timeout_s)

    def start_step(
        self, plan: Plan, values: Sequence[Any], timeout_s: float | None, on_done: OnDone, begun: OnStep
    ) -> None:
        """Runs a step of a plan; ``begun`` gets it before, and an OpError that it raises is the outcome."""
        step = self.new_step(plan, on_done, timeout_s)
        try:
            begun(step)
        except errors.OpError as refusal:
            on_done(refusal, [], None)
        else:
            step.start(values)

    def new_step(self, plan: Plan, on_done: OnDone, timeout_s: float | None) -> Step:
        """A step of a plan, to be started; `Step` has the arguments."""
        return (TracedStep if plan.traced else Step)(self, plan, on_done, timeout_s)

    def add_step(self, step: Step) -> bool | None:
        """Notes a step that begins; False when the session is closed, None when its plan is halted."""
        with self._book.lock:  # as `Guarded.__call__` would
            return self.book.add_step(step)

    def drop_step(self, step: Step) -> None:
        """Forgets a step."""
        self.book.steps.pop(step.step_id, None)
        if step.plan.halted:
            self.on_halted_step_ended()

    def remove_step(self, step: Step, has_failed: bool) -> None:
        """Forgets a step that has ended, and counts it."""
        self.book.steps.pop(step.step_id, None)
        trains = step.plan.trains
        self.counts.add(trains, has_failed)
        self._on_step_over(trains, has_failed)
        if step.plan.halted:
            self.on_halted_step_ended()

    def wait(self, step: Step, values: Sequence[Any]) -> None:
        """A step of a halted plan is to begin: it waits for the end of the hold, or takes the plan of now."""
        if not self._book(SessionBook.wait, step, values):
            self._renew(step, values)

    def _renew(self, step: Step, values: Sequence[Any]) -> None:
        old = step.plan

        def prepared(error: errors.OpError | None, plan: Plan | None) -> None:
            if error is not None:
                step.cancel(error)
            elif plan is not None and step.replan(plan):
                step.start(values)

        self.prepare((old.feeds, old.fetches, old.targets), prepared, old.traced, None, old.omitted)

    def hold(self, uses: Callable[[Plan], bool], source: str) -> None:
        """Lets steps of the plans for which ``uses`` holds wait before they begin; see `SessionBook.hold`."""
        self._book(SessionBook.hold, uses, source)

    def release(self, changed: bool) -> None:
        """Ends `hold`; ``changed``: the plans are made anew."""
        old, waiting = self._book(SessionBook.release, changed)
        for plan in old:
            forget_when_unused(plan, self.cluster)
        for step, values in waiting:
            self._renew(step, values)

    def halted_steps(self) -> list[Step]:
        """The steps of halted plans that run."""
        return [step for step in self.steps() if step.plan.halted]

    def held_steps(self) -> list[Step]:
        """The steps that wait in a hold before they begin."""
        held = self.book.held
        return [step for step, _ in list(held.waiting) if step.waiting_parts()] if held is not None else []

    def groups_on(self, task: str) -> list[VariableGroup]:
        """Which variables of a task its graph keeps together."""
        with self._graph_lock:
            nodes, placement = dict(self.nodes), dict(self.placement)
        return groups_on(nodes, placement, task)

    def steps(self) -> list[Step]:
        """The steps that run now, except those that a client's thread runs alone (`Worker.execute`)."""
        return list(self.book.steps.values())

    def describe_wait(self, signature: Signature, told: Told) -> None:
        """Calls back with the waits of a step of that signature, or of its registration."""
        plans = [plan for traced in (False, True) if (plan := self.find_plan(signature, traced)) is not None]
        step = next((step for step in [*self.steps(), *self.held_steps()] if step.plan in plans), None)
        if step is not None:
            step.describe(told)
            return
        told(self._describe_registrations())

    def _describe_registrations(self) -> str:
        return "; ".join(text for r in list(self.book.registrations) if (text := r.describe_wait()))

    def closing_error(self) -> errors.OpError:
        """The error of steps and registrations that the end of the session ends."""
        return self.book.closed_as(self.book.closed_because)

    def close(self, why: str = CLOSED_BY_CLIENT, make_error: MakeError = errors.CancelledError.of) -> None:
        """Ends running steps and tells the tasks to forget the session.

        Args:
          why: the text of the error that the steps get.
          make_error: makes it.
        """
        running = self._book(SessionBook.close, why, make_error)
        if running is None:
            return
        registrations, steps = running
        for registration in registrations:
            registration.cancel(self.closing_error())
        for step in steps:
            step.cancel(self.closing_error())
        self._on_closed(self)
        self.tasks.close(self.closing_error)


def late_plan(timeout_s: float, cause: str) -> errors.OpError:
    """The error of a step whose plan is not ready at its deadline. ``cause`` names what is missing, or is ""."""
    return errors.DeadlineExceededError.of(
        f"Timed out waiting for notification: the step did not begin within {timeout_s:g} s, since"
        f" {cause or 'its plan is being made'}. If the tasks need longer to start, raise timeout_in_ms of its"
        " RunOptions."
    )
