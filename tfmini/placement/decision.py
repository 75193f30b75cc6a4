"""The result of the placer: for every op its device and the reasons for it, or the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfmini.core_types import TensorLike
from tfmini.devices import ParsedDevice, matches, parse
from tfmini.dtypes import DType
from tfmini.errors import InvalidArgumentError
from tfmini.graph.device_types import BACKENDS, device_type, known_types, why_missing
from tfmini.graph.node import Node
from tfmini.graph.op_types import KERNELS

EXPLICIT = "explicit"
COLOCATED = "colocated"
REFERENCE = "reference"
IGNORED = "ignored"
SET_APART = "set apart"
DEFAULT = "default"
MEETING = "meeting"
FOLLOWS_CONSUMER = "follows consumer"
FOLLOWS_INPUT = "follows input"
SOFT_PLACEMENT = "soft placement"
KEPT = "kept"
PRESET = "preset"
LOOP_VARIABLE = "loop variable"
MOVED_FROM = "moved"


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


def meeting(device: str, shared_name: str) -> Reason:
    """The op requested no task, and belongs to state that sessions of several tasks find by its shared name."""
    text = f"no task is requested for '{shared_name}', which sessions share, so the first one that all choose: {device}"
    return Reason(MEETING, text)


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


def moved_from(task: str) -> Reason:
    """The variables of the op's group have moved while the session ran."""
    return Reason(MOVED_FROM, f"moved here from {task} during the run")


kept = Reason(KEPT, "kept from an earlier placement of this session")
preset = Reason(PRESET, "set by the graph pass that made it")


def kept_with(other: str) -> Reason:
    """The op's group was placed by an earlier extension of the graph."""
    return Reason(KEPT, f"{other} was placed earlier and keeps its device", other)


# ---- The errors of the placer: TensorFlow's wording, followed by the remedy ----------------------------------------


def no_device(
    node: Node,
    own: ParsedDevice,
    request: ParsedDevice,
    available: Sequence[str],
    fitting: Sequence[str],
    hidden: Sequence[str],
) -> InvalidArgumentError:
    """Makes the error for a request that no device meets.

    Args:
      node: the op to name.
      own: the op's own request.
      request: the request of its group.
      available: all devices.
      fitting: the devices that match the request but have no kernel for the op.
      hidden: devices of the cluster that the session's filters leave out.
    """
    if fitting:
        reason = _no_kernel_there(node, request)
    elif own == request:
        reason = (
            f"{{{{node {node.name}}}}} was explicitly assigned to {request.to_string()} but available "
            f"devices are "
            f"[ {', '.join(available)} ]. Make sure the device specification refers to a valid device."
        )
        if request.device_type == "GPU" and not any("device:GPU" in name for name in available):
            reason += " The requested device appears to be a GPU, but CUDA is not enabled."
    else:
        reason = (
            f"Could not satisfy explicit device specification '{own.to_string()}' because the node "
            f"{{{{colocation_node {node.name}}}}} was colocated with a group of nodes that required "
            f"incompatible "
            f"device '{request.to_string()}'. All available devices [{', '.join(available)}]. "
        )
    return _cannot_assign(node, reason + (_filtered(request, hidden) or _remedy(request, available)))


def no_kernel(node: Node, registered: Sequence[str]) -> InvalidArgumentError:
    """Makes the error for an op type without a kernel for any device of this process."""
    text = (
        f"No OpKernel was registered to support Op '{node.op}' used by {{{{node {node.name}}}}}with "
        f"these attrs: "
        f"[{_attrs(node)}]\nRegistered devices: [{', '.join(registered)}]\nRegistered "
        f"kernels:\n{_kernels(node)}\n"
        f"\t [[{{{{node {node.name}}}}}]]"
    )
    if node.handle is None:
        text += f"\nNo imported module declares the op '{node.op}'; import it in the client and in every task."
    return _at(node, text)


def no_common_type(node: Node, members: Sequence[Node]) -> InvalidArgumentError:
    """Makes the error for a group whose members have no device type in common."""
    others = next((m.name for m in members if m.name != node.name), node.name)
    lines = "\n".join(sorted({f"{m.op}: {', '.join(_kernel_types(m)) or 'none'}" for m in members}))
    text = (
        f"Cannot colocate nodes {{{{colocation_node {node.name}}}}} and "
        f"{{{{colocation_node {others}}}}} because no "
        "device type supports both of those nodes and the other nodes colocated with them.\n"
        f"Colocation Debug Info:\n{lines}\n\t [[{{{{node {node.name}}}}}]]"
    )
    return _at(node, text)


def _no_kernel_there(node: Node, request: ParsedDevice) -> str:
    where = request.device_type or "such"
    lacking = device_type(where).lacks(node) if where in BACKENDS else None
    lacks = f"A {where} cannot run it: {lacking}.\n" if lacking else ""
    types = ", ".join(_kernel_types(node)) or "none"
    return (
        f"Could not satisfy explicit device specification '{request.to_string()}' because no supported "
        f"kernel for {where} devices is available.\n{lacks}Colocation Debug Info:\n{node.op}: {types}\n"
        f"Registered kernels:\n{_kernels(node)}\n"
    )


def _filtered(request: ParsedDevice, hidden: Sequence[str]) -> str:
    """A sentence about a device that is there, but not for this session; "" if there is none."""
    found = next((name for name in hidden if matches(request, parse(name))), None)
    if found is None:
        return ""
    return (
        f" The cluster has {found}, but the device_filters of this session's ConfigProto, or of its server's, leave it"
        " out. Add its task to them, or place the op on a device that passes."
    )


def _remedy(request: ParsedDevice, available: Sequence[str]) -> str:
    jobs = {parse(name).job for name in available}
    if request.job is not None and request.job not in jobs and jobs == {"localhost"}:
        return (
            f" This graph is pinned to a cluster device ({request.to_string()}) but runs in a local "
            f"Session; pass a server's target: tf.Session(server.target). If the graph was imported to run it here,"
            " import it by tf.train.import_meta_graph(..., clear_devices=True)."
        )
    if request.device_type not in (None, "CPU"):
        return (
            " Remove the device request, or set allow_soft_placement=True in ConfigProto to run the op on another"
            f" device of the same task.{_why_missing(request, [parse(name) for name in available])}"
        )
    return _missing_part(request, [parse(name) for name in available])


def _why_missing(request: ParsedDevice, devices: Sequence[ParsedDevice]) -> str:
    """A sentence about a kind of device that nobody has, or that another task has; "" if the task has some."""
    kind = request.device_type or ""
    having = sorted({device.task_name for device in devices if device.device_type == kind})
    if not having:
        text = why_missing(kind)
        return text and f" {text}"
    task = request._replace(device_type=None, device_index=None)
    if any(matches(task, parse(name)) for name in having):
        return ""
    return (
        f" {', '.join(having)} has one. With replica_device_setter(worker_device='…/gpu:0') the groups of updates on a"
        " ps ask for one, too: such scripts set allow_soft_placement=True."
    )


def _missing_part(request: ParsedDevice, devices: Sequence[ParsedDevice]) -> str:
    """A sentence about the job, task or CPU that the devices lack; "" if they have each of them."""
    jobs = sorted({str(device.job) for device in devices})
    if request.job is not None and request.job not in jobs:
        return f" The cluster has no job '{request.job}'; its jobs are {', '.join(jobs)}."
    devices = [device for device in devices if request.job in (None, device.job)]
    tasks = sorted({device.task or 0 for device in devices})
    if request.task is not None and request.task not in tasks:
        there = ", ".join(map(str, tasks)) if len(tasks) < 9 else f"{tasks[0]}, {tasks[1]}, …, {tasks[-1]}"
        return f" The tasks of the job '{request.job or ', '.join(jobs)}' are {there}."
    cpus = [device.device_index or 0 for device in devices if device.device_type == "CPU"]
    if request.device_type == "CPU" and cpus and (request.device_index or 0) > max(cpus):
        return " A task has more CPU devices if its server gets a ConfigProto with device_count={'CPU': N}."
    return ""


def _cannot_assign(node: Node, reason: str) -> InvalidArgumentError:
    return _at(node, f"Cannot assign a device for operation {node.name}: {reason}\n\t [[{{{{node {node.name}}}}}]]")


def _at(node: Node, message: str) -> InvalidArgumentError:
    error = InvalidArgumentError.of(message)
    error.node_name = node.name
    return error


def _kernel_types(node: Node) -> list[str]:
    found = {kind for op, kind in tuple(KERNELS) if op == node.op}
    return sorted(
        found | {kind for kind in known_types() if kind in BACKENDS and device_type(kind).lacks(node) is None}
    )


def _kernels(node: Node) -> str:
    lines = [f"  device='{device_type}'" for device_type in _kernel_types(node)]
    return "\n".join(lines or ["  <no registered kernels>"])


def _attrs(node: Node) -> str:
    shown = sorted((name, _value(value)) for name, value in node.attrs.items() if not name.startswith("_"))
    return ", ".join(f"{name}={value}" for name, value in shown)


def _value(value: TensorLike) -> str:
    if isinstance(value, DType):
        return value.name
    return str(value) if isinstance(value, (bool, int, float, bytes, str)) else type(value).__name__
