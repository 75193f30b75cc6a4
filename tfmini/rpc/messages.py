"""The message kinds: those of the connection itself, and those of the services.

Frame 0 is msgpack ``[protocol_version, kind, request_id, field, ...]``, the fields in the order
below. A reply is a message of the request's reply kind, or `Status`, with the request's id. One-way
messages have id 0. The layout of the first three entries, and of `Goodbye`, is the same in all
versions, so that both sides can report a version mismatch.

Numbers: 1-15 connection, 16-47 client to master, 48-95 master to worker, 96-115 worker to worker, 116-127 launcher and
agents. Within a service requests are even and the reply of a request is the next odd number. When variables move,
a client asks with 42-45, and tasks tell each other with 72-79, since their own range is full.
"""

from __future__ import annotations

from tfmini import errors
from tfmini.rpc.records import Message, Retry, Structure, Tensors, message
from tfmini.text import printable

# ---- The message kinds of the connection itself: handshake, failure, cancellation, heartbeat and lane switch -------

CONNECTION = "any"


@message(kind=2, direction=CONNECTION, is_reply=True)
class HelloReply(Message):
    """The listener's answer to `Hello`, with the same fields for its identity, and the address of a lane to it.

    ``lane_address`` is ``lane://name`` for a local lane, ``stream://port`` for a stream lane on the
    same host, or empty.
    """

    version: int
    task: str
    incarnation: int
    task_address: str
    host_proof: bytes
    lane_address: str
    lane_token: bytes


@message(kind=1, direction=CONNECTION, reply=HelloReply, retry=Retry.SAFE)
class Hello(Message):
    """The first message of the connecting side.

    ``task`` is its name ("": a client), ``task_address`` the address of that task in its own ClusterSpec.
    ``host_proof`` is a salted hash of its host id, or empty if it does not want a local lane.
    ``wants_stream`` says whether it accepts a stream lane. ``expected_task`` is the task that it wants to
    reach ("": any). ``dialer`` is a secret number of the object that connects: it uses one connection at a
    time, so a new one of the same number replaces the old one. 0: any number of them. ``started`` is the time
    at which this incarnation began, in ns, so that the latest of several is known. 0: not told.
    """

    version: int
    task: str
    incarnation: int
    task_address: str
    host_proof: bytes
    wants_stream: bool
    expected_task: str
    dialer: int
    started: int


@message(kind=3, direction=CONNECTION, is_reply=True)
class Status(Message):
    """A failure, in place of a reply. ``code`` is one of `tfmini.errors`' codes."""

    code: int
    message: str
    node: str
    device: str
    task: str
    derived: bool


@message(kind=8, direction=CONNECTION, is_reply=True)
class Acknowledged(Message):
    """The answer to a request that asks for no value: it has been carried out."""


@message(kind=4, direction=CONNECTION)
class Cancel(Message):
    """The caller has cancelled the request."""

    request_id: int


@message(kind=5, direction=CONNECTION)
class Heartbeat(Message):
    """Sent on a connection that has sent nothing for a second, and every 10 s on others.

    ``handled``: how many messages of this connection its sender has begun to handle. ``doing``: if it has not handled
    the next one for a second, what it computes or receives meanwhile; empty if there is no such reason.
    """

    handled: int
    doing: str


@message(kind=6, direction=CONNECTION)
class Goodbye(Message):
    """The last message on a connection: its sender closes it for this reason."""

    reason: str


@message(kind=7, direction=CONNECTION)
class LaneSwitch(Message):
    """The sender's last message on the old connection: later ones arrive on the lane."""


HANDSHAKE = frozenset({Hello, HelloReply, Goodbye})
"""The kinds that an unauthenticated peer may send."""


# ---- The message kinds between clients, masters and workers --------------------------------------------------------

MASTER, WORKER, PEER = "client->master", "master->worker", "worker->worker"


# ---- client -> master --------------------------------------------------------------------------


@message(kind=17, direction=MASTER, is_reply=True)
class CreateSessionReply(Message):
    session_handle: str
    graph_version: int


@message(kind=16, direction=MASTER, reply=CreateSessionReply, retry=Retry.NEVER)
class CreateSession(Message):
    """Creates a session. ``config``: serialized ConfigProto. ``target``: the address that the client used."""

    graph: Structure
    config: bytes
    target: str


@message(kind=19, direction=MASTER, is_reply=True)
class ExtendSessionReply(Message):
    new_graph_version: int


@message(kind=18, direction=MASTER, reply=ExtendSessionReply, retry=Retry.NEVER)
class ExtendSession(Message):
    """Adds the nodes in ``graph`` to a session that is at ``current_graph_version``."""

    session_handle: str
    graph: Structure
    current_graph_version: int


@message(kind=23, direction=MASTER, is_reply=True)
class RunStepReply(Message):
    """The fetched values. ``metadata``: serialized RunMetadata, or empty."""

    values: Tensors
    metadata: bytes


@message(kind=22, direction=MASTER, reply=RunStepReply, retry=Retry.NEVER)
class RunStep(Message):
    """Runs one step. ``options``: serialized RunOptions, or empty."""

    session_handle: str
    feeds: tuple[str, ...]
    feed_values: Tensors
    fetches: tuple[str, ...]
    targets: tuple[str, ...]
    options: bytes


@message(kind=30, direction=MASTER, reply=Acknowledged, retry=Retry.NEVER)
class CloseSession(Message):
    session_handle: str


@message(kind=33, direction=MASTER, is_reply=True)
class ListDevicesReply(Message):
    devices: Structure


@message(kind=32, direction=MASTER, reply=ListDevicesReply, retry=Retry.SAFE)
class ListDevices(Message):
    session_handle: str


@message(kind=34, direction=MASTER, reply=Acknowledged, retry=Retry.SAFE)
class Reset(Message):
    containers: tuple[str, ...]
    device_filters: tuple[str, ...]


@message(kind=37, direction=MASTER, is_reply=True)
class DescribeWaitReply(Message):
    """``text``: for people; empty when nothing is waited for."""

    text: str


@message(kind=36, direction=MASTER, reply=DescribeWaitReply, retry=Retry.SAFE)
class DescribeWait(Message):
    """Asks what the session's running step with this signature waits for."""

    session_handle: str
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]


# ---- master -> worker --------------------------------------------------------------------------


@message(kind=49, direction=WORKER, is_reply=True)
class GetStatusReply(Message):
    task: str
    incarnation: int
    devices: Structure


@message(kind=48, direction=WORKER, reply=GetStatusReply, retry=Retry.SAFE)
class GetStatus(Message):
    pass


@message(kind=50, direction=WORKER, reply=Acknowledged, retry=Retry.NEVER)
class CreateWorkerSession(Message):
    """Creates a worker session, or tells it more. ``tasks``: the addresses of those to which the receiver will send.
    ``task``: the receiver's task name in the session's cluster; empty: the name that it reports."""

    session_handle: str
    isolate: bool
    tasks: Structure
    task: str


@message(kind=52, direction=WORKER, reply=Acknowledged, retry=Retry.SAFE)
class DeleteWorkerSession(Message):
    session_handle: str


@message(kind=55, direction=WORKER, is_reply=True)
class RegisterGraphReply(Message):
    """``moved``: empty, or the graph was refused since it names variables that are elsewhere now: a `Forwarding`."""

    graph_handle: int
    moved: Structure


@message(kind=54, direction=WORKER, reply=RegisterGraphReply, retry=Retry.NEVER)
class RegisterGraph(Message):
    """Registers what a task runs in a step. ``graph``: a `TaskGraph`. ``traced``: its runs record a trace."""

    session_handle: str
    graph: Structure
    fold_constants: bool
    traced: bool


@message(kind=56, direction=WORKER, reply=Acknowledged, retry=Retry.SAFE)
class DeregisterGraph(Message):
    graph_handle: int


@message(kind=59, direction=WORKER, is_reply=True)
class RunGraphReply(Message):
    """The values that the partition returns."""

    values: Tensors


@message(kind=58, direction=WORKER, reply=RunGraphReply, retry=Retry.NEVER)
class RunGraph(Message):
    """Runs one registered partition. ``step_id``: 56 bits."""

    graph_handle: int
    step_id: int
    feed_values: Tensors


@message(kind=62, direction=WORKER, reply=Acknowledged, retry=Retry.SAFE)
class CleanupAll(Message):
    containers: tuple[str, ...]


@message(kind=65, direction=WORKER, is_reply=True)
class LoggingReply(Message):
    """``clock_ns``: the task's wall clock when it answered, in nanoseconds since 1970. ``stats``: a serialized
    StepStats with times of that clock, or empty."""

    clock_ns: int
    stats: bytes


@message(kind=64, direction=WORKER, reply=LoggingReply, retry=Retry.NEVER)
class Logging(Message):
    """Asks for the time and, unless ``step_id`` is 0, takes the receiver's records of that traced step."""

    step_id: int


@message(kind=69, direction=WORKER, is_reply=True)
class DescribeStepReply(Message):
    """``text``: for people; empty when nothing is waited for."""

    text: str


@message(kind=68, direction=WORKER, reply=DescribeStepReply, retry=Retry.SAFE)
class DescribeStep(Message):
    """Asks what this step waits for in the receiver."""

    step_id: int


@message(kind=71, direction=WORKER, is_reply=True)
class GetStepOutcomeReply(Message):
    """The names of updates (of variables and accumulators) that the step has made, or may have made."""

    made: tuple[str, ...]
    uncertain: tuple[str, ...]


@message(kind=70, direction=WORKER, reply=GetStepOutcomeReply, retry=Retry.SAFE)
class GetStepOutcome(Message):
    """Ends this step, if it runs, and asks what it has done here. The session may be closed."""

    session_handle: str
    step_id: int


# ---- worker -> worker -----------------------------------------------------------------------


@message(kind=96, direction=PEER)
class SendTensors(Message):
    """Tensors that became ready together. Bit i % 8 of byte i // 8 of ``dead`` marks value i as dead.

    ``iteration`` has the iteration number of each enclosing while loop, outermost first: "" or like "3.0".
    """

    step_id: int
    iteration: str
    group: int
    dead: bytes
    values: Tensors


@message(kind=98, direction=PEER)
class AbortStep(Message):
    """The step has ended elsewhere. ``message`` gives the reason, for people."""

    step_id: int
    message: str


@message(kind=101, direction=PEER, is_reply=True)
class CollectiveGroup(Message):
    """All members of a group (full device names, in the order of the ring) and the steps that they have finished.

    ``places`` has the address of each member's shared memory for members on its host; "": none. ``incarnations``: of
    the servers by which they have joined, in hexadecimal; "": not known.
    """

    epoch: int
    members: tuple[str, ...]
    places: tuple[str, ...]
    steps: int
    incarnations: tuple[str, ...]


@message(kind=100, direction=PEER, reply=CollectiveGroup, retry=Retry.NEVER)
class CollectiveJoin(Message):
    """A device waits for its group. ``steps``: finished; -1: none, -2: a part. ``least``: enough members; 0: all."""

    group_key: int
    group_size: int
    device: str
    place: str
    steps: int
    least: int


@message(kind=102, direction=PEER)
class CollectiveData(Message):
    """A part of an exchange, from one rank of a group to another, in the count-th run of that instance."""

    epoch: int
    rank: int
    sender: int
    instance: int
    count: int
    tag: int
    fingerprint: str
    values: Tensors


@message(kind=104, direction=PEER)
class CollectiveProbe(Message):
    """Reports how long the sender has waited for ``rank`` in an exchange.

    In an answer, -1: not called there, and not before other collectives have their results; -2: not yet.
    """

    epoch: int
    rank: int
    sender: int
    instance: int
    count: int
    fingerprint: str
    waited_ms: int
    is_answer: bool


@message(kind=106, direction=PEER)
class CollectiveFailure(Message):
    """This epoch of a group has ended. The other fields describe the failure, as in `Status`."""

    epoch: int
    code: int
    message: str
    node: str
    device: str
    task: str
    derived: bool


@message(kind=108, direction=PEER)
class CollectiveStage(Message):
    """Tells ``rank`` where the sender's parts of a collective are from its count-th run on: `collectives.stages`."""

    epoch: int
    rank: int
    sender: int
    instance: int
    count: int
    serial: int
    offset: int
    nbytes: int


@message(kind=110, direction=PEER)
class CollectiveBell(Message):
    """Wakes ``rank``: the data that it waits for in a collective is in shared memory."""

    epoch: int
    rank: int
    instance: int


@message(kind=114, direction=PEER)
class CollectiveEnd(Message):
    """A task (its server of that incarnation) takes part in no collective any more. The leader passes it on.

    ``is_final``: it will not come back; else its process may start another server.
    """

    task: str
    incarnation: int
    why: str
    is_final: bool


@message(kind=112, direction=PEER, reply=Acknowledged, retry=Retry.SAFE)
class LostTensors(Message):
    """Tensors may be lost: a ``receiver``'s, if only the master can be told; those of a ``sender`` that is lost."""

    step_ids: Structure
    message: str
    receiver: str
    sender: str


# ---- The message kinds by which variables move from one task to another: `tfmini.runtime.moving` -------------------


@message(kind=43, direction=MASTER, is_reply=True)
class MoveVariablesReply(Message):
    """``moved``: what has moved (container, name, new task), with all that was colocated. ``held_ms``: how long steps
    that use it could not begin."""

    moved: Structure
    held_ms: int


@message(kind=42, direction=MASTER, reply=MoveVariablesReply, retry=Retry.NEVER)
class MoveVariables(Message):
    """Asks a task to give variables (container, name, new task) away. ``tasks``: the addresses of these tasks.
    ``rest``: "", or the receiver drains, and this task gets what else names it. ``patience_ms``: for so long it looks
    for a moment without steps that use them."""

    variables: Structure
    tasks: Structure
    rest: str
    patience_ms: int


@message(kind=45, direction=MASTER, is_reply=True)
class ListVariablesReply(Message):
    """``groups``: what stays together, and what keeps it there. ``others``: what cannot move."""

    variables: Structure
    groups: Structure
    others: tuple[str, ...]
    forwarding: Structure


@message(kind=44, direction=MASTER, reply=ListVariablesReply, retry=Retry.SAFE)
class ListVariables(Message):
    """Asks a task for its variables, and where those are that it has given away (``forwarding``)."""


@message(kind=73, direction=PEER, is_reply=True)
class HoldStepsReply(Message):
    """No such step runs. ``groups``: as in `ListVariablesReply`, of this master's graphs."""

    groups: Structure


@message(kind=72, direction=PEER, reply=HoldStepsReply, retry=Retry.NEVER)
class HoldSteps(Message):
    """Asks a master to begin no step that uses these variables of ``task`` (``whole``: the task) for ``lease_ms`` (0:
    to hold nothing). Answers with its groups when none runs; an error after ``patience_ms``. `ReleaseSteps` ends it."""

    move: int
    task: str
    variables: Structure
    whole: bool
    lease_ms: int
    patience_ms: int


@message(kind=74, direction=PEER)
class ReleaseSteps(Message):
    """Ends a hold. ``changed``: its variables have moved, or nobody knows: graphs look for them anew."""

    move: int
    changed: bool


@message(kind=76, direction=PEER, reply=Acknowledged, retry=Retry.NEVER)
class StoreVariables(Message):
    """Values for variables (container, name, dtype, static shape, error without a value, shape of the value or None,
    first number that is here, tasks and incarnations that it has come from, of how many numbers the memory is to be got
    instead: these have no value here), which no step sees yet."""

    move: int
    variables: Structure
    values: Tensors


@message(kind=78, direction=PEER, reply=Acknowledged, retry=Retry.SAFE)
class SettleVariables(Message):
    """Lets steps use what `StoreVariables` has brought, or (``keep`` is false) drops it."""

    move: int
    keep: bool


def status_of(error: BaseException, task: str) -> Status:
    """Converts an error to a message; ``task`` is the reporting task, used if the error names none."""
    if not isinstance(error, errors.OpError):
        return Status(errors.INTERNAL, f"{type(error).__name__}: {error}", "", "", task, False)
    node = error.node_name
    return Status(error.error_code, error.message, node, error.device, error.task or task, error.derived)


def error_of(status: Status | CollectiveFailure) -> errors.OpError:
    """Converts a failure message to an exception."""
    names = {"device": status.device, "task": status.task, "node_name": status.node}
    where = {kind: printable(name) for kind, name in names.items()}
    return errors.from_code(status.code, status.message, derived=status.derived, **where)


# ---- The message kinds by which anybody whom a cluster admits asks a task what it does -----------------------------
# They have a way of their own through a busy task: see `Relief`.


@message(kind=39, direction=MASTER, is_reply=True)
class GetTaskStatusReply(Message):
    """``tasks``: full task name -> address, of the whole cluster. ``status``: see `tfmini.runtime.snapshot`."""

    tasks: Structure
    status: Structure


@message(kind=38, direction=MASTER, reply=GetTaskStatusReply, retry=Retry.SAFE)
class GetTaskStatus(Message):
    """Asks for a snapshot of the task. ``stacks``: with the Python stacks of its threads."""

    stacks: bool


@message(kind=41, direction=MASTER, is_reply=True)
class TraceStepReply(Message):
    """``stats``: a serialized StepStats of all tasks of the step, in the time of the master's task."""

    stats: bytes


@message(kind=40, direction=MASTER, reply=TraceStepReply, retry=Retry.NEVER)
class TraceStep(Message):
    """Asks to trace the next training step that a session of the task's master begins."""

    timeout_ms: int
