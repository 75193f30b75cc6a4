"""``tf.profiler``: how many parameters and float operations a graph has, and what its ops take in traced steps.

Float operations are counted by the static shapes, for the ops for which TensorFlow counts them. Times and memory come
from a RunMetadata of a step with ``RunOptions.FULL_TRACE``. The tree goes by name scopes or by op types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor

if TYPE_CHECKING:
    from tfmini.protos import RunMetadata

# ---- float operations ------------------------------------------------------------------------------------------------


def _sizes(tensor: Tensor) -> list[Any]:
    return tensor.shape.as_list()


def _size(tensor: Tensor) -> int:
    """How many elements a tensor has; raises TypeError where a size is not known."""
    return int(math.prod(_sizes(tensor)))


def _window(op: Operation) -> int:
    return int(math.prod(op.get_attr("ksize")))


def _matrix_product(op: Operation) -> int:
    return 2 * _size(op.outputs[0]) * int(_sizes(op.inputs[0])[0 if op.get_attr("transpose_a") else 1])


def _convolution(outputs: Tensor, kernel: Tensor) -> int:
    return 2 * _size(outputs) * int(math.prod(_sizes(kernel)[:-1]))


def _each(factor: float) -> Callable[[Operation], int]:
    return lambda op: int(factor * _size(op.outputs[0]))


_ONE_EACH = (
    "Reciprocal Square Log Neg AssignSub AssignAdd Add Sub Mul RealDiv BiasAdd Maximum Minimum Pow Greater "
    "GreaterEqual Less LessEqual Equal NotEqual"
)
_COUNTS: dict[str, Callable[[Operation], int]] = {
    **dict.fromkeys(_ONE_EACH.split(), _each(1)),
    **dict.fromkeys(("Rsqrt", "SquaredDifference", "RsqrtGrad"), _each(2)),
    "Softmax": _each(5),
    "L2Loss": lambda op: 3 * _size(op.inputs[0]) - 1,
    "AddN": lambda op: _size(op.outputs[0]) * (len(op.inputs) - 1),
    "Sum": lambda op: _size(op.inputs[0]) - _size(op.outputs[0]),
    "Mean": lambda op: _size(op.inputs[0]),
    "ArgMax": lambda op: _size(op.inputs[0]) - _size(op.outputs[0]),
    "ArgMin": lambda op: _size(op.inputs[0]) - _size(op.outputs[0]),
    "BiasAddGrad": lambda op: _size(op.inputs[0]) - _size(op.outputs[0]),
    "MatMul": _matrix_product,
    "BatchMatMul": lambda op: 2 * _size(op.outputs[0]) * int(_sizes(op.inputs[0])[-1]),
    "Conv2D": lambda op: _convolution(op.outputs[0], op.inputs[1]),
    "Conv3D": lambda op: _convolution(op.outputs[0], op.inputs[1]),
    "Conv2DBackpropInput": lambda op: _convolution(op.inputs[2], op.inputs[1]),
    "Conv2DBackpropFilter": lambda op: _convolution(op.inputs[2], op.outputs[0]),
    "DepthwiseConv2dNative": lambda op: 2 * _size(op.outputs[0]) * math.prod(_sizes(op.inputs[1])[:2]),
    "Dilation2D": lambda op: 2 * _size(op.outputs[0]) * math.prod(_sizes(op.inputs[1])[:2]),
    "MaxPool": lambda op: _window(op) * _size(op.outputs[0]),
    "AvgPool": lambda op: _window(op) * _size(op.outputs[0]),
    "MaxPoolGrad": lambda op: _window(op) * _size(op.inputs[1]) + _size(op.inputs[1]),
    "AvgPoolGrad": lambda op: (_window(op) + 1) * _size(op.inputs[1]) + _size(op.outputs[0]),
}


def _float_ops(op: Operation) -> int:
    try:
        return _COUNTS[op.type](op) if op.type in _COUNTS else 0
    except (TypeError, ValueError):  # a size that the graph does not tell counts nothing
        return 0


# ---- what is known of each op, and the tree --------------------------------------------------------------------------

_FIELDS = ("exec_micros", "requested_bytes", "parameters", "float_ops")
_SHOWN = {"micros": "exec_micros", "bytes": "requested_bytes", "params": "parameters", "float_ops": "float_ops"}
_UNITS = {"micros": "us", "bytes": "B", "params": "params", "float_ops": "flops"}
_HEADS = {"micros": "execution time", "bytes": "requested bytes", "params": "# parameters", "float_ops": "# float_ops"}


@export("tf.profiler.GraphNodeProto")
@dataclass
class GraphNodeProto:
    """An op or a name scope of a profile, or the ops of one type (``tf.profiler.GraphNodeProto``).

    Attributes:
      name: of the op, the scope or the type.
      exec_micros, requested_bytes, parameters, float_ops: of the op alone.
      total_exec_micros, total_requested_bytes, total_parameters, total_float_ops: with all that is below it.
      children: the nodes below.
    """

    name: str
    exec_micros: int = 0
    requested_bytes: int = 0
    parameters: int = 0
    float_ops: int = 0
    total_exec_micros: int = 0
    total_requested_bytes: int = 0
    total_parameters: int = 0
    total_float_ops: int = 0
    children: list[GraphNodeProto] = field(default_factory=list)
    shape: str = ""
    types: frozenset[str] = frozenset()

    def total(self) -> GraphNodeProto:
        """This node, with its totals from its children."""
        for name in _FIELDS:
            setattr(
                self, f"total_{name}", getattr(self, name) + sum(getattr(c, f"total_{name}") for c in self.children)
            )
        return self


MultiGraphNodeProto = GraphNodeProto
export_names("tf.profiler", "MultiGraphNodeProto")


def _times(run_meta: RunMetadata | None) -> dict[str, tuple[int, int]]:
    """Node -> (microseconds, bytes of its outputs), of a traced step."""
    found: dict[str, tuple[int, int]] = {}
    for device in run_meta.step_stats.dev_stats if run_meta is not None else ():
        for entry in device.node_stats:
            size = sum(o.tensor_description.allocation_description.requested_bytes for o in entry.output)
            micros, before = found.get(entry.node_name, (0, 0))
            found[entry.node_name] = micros + entry.all_end_rel_micros, before + size
    return found


def _ops(graph: Graph, run_meta: RunMetadata | None) -> Iterator[GraphNodeProto]:
    trained = {v.op.name for v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES) if hasattr(v, "op")}
    shapes = {v.op.name: v.shape for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if hasattr(v, "op")}
    times = _times(run_meta)
    for op in graph.get_operations():
        shape: Any = shapes.get(op.name)
        known = shape is not None and shape.is_fully_defined()
        micros, size = times.get(op.name, (0, 0))
        yield GraphNodeProto(
            op.name, micros, size, math.prod(shape.as_list()) if known else 0, _float_ops(op),
            shape="x".join(map(str, shape.as_list())) if known else "",
            types=frozenset({op.type, op.device} | ({"_trainable_variables"} if op.name in trained else set())),
        )  # fmt: skip


def _matches(patterns: Iterable[str], texts: Iterable[str]) -> bool:
    return any(re.search(rf"^(?:{pattern})$", text) for text in texts for pattern in patterns)


def _is_shown(node: GraphNodeProto, options: Mapping[str, Any]) -> bool:
    least = {"exec_micros": "min_micros", "requested_bytes": "min_bytes", "parameters": "min_params",
             "float_ops": "min_float_ops"}  # fmt: skip
    return (
        all(getattr(node, name) >= options.get(option, 0) for name, option in least.items())
        and _matches(options["show_name_regexes"], [node.name])
        and not _matches(options["hide_name_regexes"], [node.name])
    )


def _sorted(nodes: list[GraphNodeProto], options: Mapping[str, Any]) -> list[GraphNodeProto]:
    key = _SHOWN.get(options["order_by"])
    if key is None:
        return sorted(nodes, key=lambda node: node.name)
    return sorted(nodes, key=lambda node: -getattr(node, f"total_{key}"))


def _by_scope(ops: list[GraphNodeProto], options: Mapping[str, Any]) -> GraphNodeProto:
    """The tree of name scopes; what is not shown leaves its place to what is below it."""
    nodes = {op.name: op for op in ops}
    below: dict[str, dict[str, None]] = {"": {}}
    for path in (path for op in ops for path in _paths(op.name)):
        below.setdefault(path.rpartition("/")[0], {})[path] = None
        below.setdefault(path, {})

    def shown(name: str, depth: int) -> list[GraphNodeProto]:
        if depth > options["max_depth"]:
            return []
        node = nodes.get(name, GraphNodeProto(name))
        inner = () if _matches(options["trim_name_regexes"], [name]) else below[name]
        children = [found for child in inner for found in shown(child, depth + 1)]
        if not _is_shown(node, options):
            return children
        node.children = _sorted(children, options)
        return [node.total()]

    def starts(name: str) -> Iterator[str]:
        if _matches(options["start_name_regexes"], [name]):
            yield name
        else:
            for child in below[name]:
                yield from starts(child)

    # The root has the depth 1; what is hidden counts as well.
    tops = [found for name in below[""] for start in starts(name) for found in shown(start, 2)]
    return GraphNodeProto("_TFProfRoot", children=_sorted(tops, options)).total()


def _by_type(ops: list[GraphNodeProto], types: Mapping[str, str], options: Mapping[str, Any]) -> GraphNodeProto:
    """A chain of op types, each with the totals of all after it, as TensorFlow has it."""
    merged: dict[str, GraphNodeProto] = {}
    for op in ops:
        node = merged.setdefault(types[op.name], GraphNodeProto(types[op.name]))
        for name in _FIELDS:
            setattr(node, name, getattr(node, name) + getattr(op, name))
    nodes = _sorted([node.total() for node in merged.values() if _is_shown(node, options)], options)
    after: list[GraphNodeProto] = []
    for node in reversed(nodes):
        node.children = after
        after = [node.total()]
    return GraphNodeProto("_TFProfRoot", children=after).total()


# ---- the report ------------------------------------------------------------------------------------------------------


def _short(number: int) -> str:
    for size, unit in ((10**9, "b"), (10**6, "m"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return str(number)


def _lines(node: GraphNodeProto, what: list[str], depth: int = 0) -> Iterator[str]:
    parts = [node.shape] if node.shape and "params" in what else []
    for name in what:
        own, total = getattr(node, _SHOWN[name]), getattr(node, f"total_{_SHOWN[name]}")
        parts.append(f"{_short(own) if node.types else '--'}/{_short(total)} {_UNITS[name]}")
    yield f"{'  ' * depth}{node.name} ({', '.join(parts)})"
    for child in node.children:
        yield from _lines(child, what, depth + 1)


def _type_lines(node: GraphNodeProto, what: list[str]) -> Iterator[str]:
    total = {name: getattr(node, f"total_{_SHOWN[name]}") for name in what}
    while node.children:
        node = node.children[0]
        parts = []
        for name in what:
            own, rest, whole = getattr(node, _SHOWN[name]), getattr(node, f"total_{_SHOWN[name]}"), total[name] or 1
            parts.append(f"{own:8d} {_UNITS[name]} ({rest / whole:.2%}, {own / whole:.2%})")
        yield f"{node.name:24s} {', '.join(parts)}"


def _report(root: GraphNodeProto, cmd: str, options: Mapping[str, Any]) -> None:
    what = [name for name in options["select"] if name in _SHOWN]
    lines = _lines(root, what) if cmd == "scope" else _type_lines(root, what)
    head = "==================Model Analysis Report======================"
    text = "\n".join(["", head, "", f"node name | {' | '.join(_HEADS[name] for name in what)}", *lines, "",
                      "======================End of Report=========================="])  # fmt: skip
    kind, _, path = str(options["output"]).partition(":outfile=")
    if kind == "file":
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    elif kind == "stdout":
        print(text)
    elif kind != "none":
        raise errors.UnimplementedError.of(
            f"The profiler has no output {kind!r}: use stdout, none or a file; `tfmini trace` draws timelines."
        )


# ---- the public functions --------------------------------------------------------------------------------------------

_Names = Iterable[str] | None
_ALL = [".*"]
_DEFAULTS: dict[str, Any] = {
    "max_depth": 100, "min_bytes": 0, "min_micros": 0, "min_params": 0, "min_float_ops": 0, "min_occurrence": 0,
    "order_by": "name", "account_type_regexes": _ALL, "start_name_regexes": _ALL, "trim_name_regexes": [],
    "show_name_regexes": _ALL, "hide_name_regexes": [], "account_displayed_op_only": False, "select": ["micros"],
    "step": -1, "output": "stdout",
}  # fmt: skip


@export("tf.profiler.ProfileOptionBuilder")
class ProfileOptionBuilder:
    """Builds the options of a profile (``tf.profiler.ProfileOptionBuilder``).

    Args:
      options: a dictionary of options to begin with.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = {**_DEFAULTS, **(options or {})}

    def build(self) -> dict[str, Any]:
        """The options, a dictionary."""
        return dict(self._options)

    def _with(self, **options: Any) -> ProfileOptionBuilder:
        self._options.update(options)
        return self

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Options for the numbers of parameters of the trainable variables, by name."""
        return {**_DEFAULTS, "max_depth": 10000, "account_type_regexes": ["_trainable_variables"],
                "account_displayed_op_only": True, "select": ["params"]}  # fmt: skip

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Options for the numbers of float operations, the largest first."""
        return {**_DEFAULTS, "max_depth": 10000, "min_float_ops": 1, "order_by": "float_ops",
                "account_displayed_op_only": True, "select": ["float_ops"]}  # fmt: skip

    @staticmethod
    def time_and_memory(
        min_micros: int = 1, min_bytes: int = 1, min_accelerator_micros: int = 0, min_cpu_micros: int = 0,
        min_peak_bytes: int = 0, min_residual_bytes: int = 0, min_output_bytes: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        """Options for times and memory in a traced step, the slowest first."""
        return {
            **_DEFAULTS, "max_depth": 10000, "min_micros": min_micros, "min_bytes": min_bytes,
            "min_accelerator_micros": min_accelerator_micros, "min_cpu_micros": min_cpu_micros,
            "min_peak_bytes": min_peak_bytes, "min_residual_bytes": min_residual_bytes,
            "min_output_bytes": min_output_bytes, "order_by": "micros", "account_displayed_op_only": True,
            "select": ["micros", "bytes"],
        }  # fmt: skip

    def with_max_depth(self, max_depth: int) -> ProfileOptionBuilder:
        """Shows nodes down to a depth; that of the root is 1."""
        return self._with(max_depth=max_depth)

    def with_min_memory(
        self, min_bytes: int = 0, min_peak_bytes: int = 0, min_residual_bytes: int = 0, min_output_bytes: int = 0
    ) -> ProfileOptionBuilder:
        """Shows nodes that ask for so much memory."""
        return self._with(min_bytes=min_bytes, min_peak_bytes=min_peak_bytes, min_residual_bytes=min_residual_bytes,
                          min_output_bytes=min_output_bytes)  # fmt: skip

    def with_min_execution_time(
        self, min_micros: int = 0, min_accelerator_micros: int = 0, min_cpu_micros: int = 0
    ) -> ProfileOptionBuilder:
        """Shows nodes that take so long."""
        return self._with(min_micros=min_micros, min_accelerator_micros=min_accelerator_micros,
                          min_cpu_micros=min_cpu_micros)  # fmt: skip

    def with_min_parameters(self, min_params: int) -> ProfileOptionBuilder:
        """Shows nodes with so many parameters."""
        return self._with(min_params=min_params)

    def with_min_occurrence(self, min_occurrence: int) -> ProfileOptionBuilder:
        """Sets the number for views of code, which tfmini does not have."""
        return self._with(min_occurrence=min_occurrence)

    def with_min_float_operations(self, min_float_ops: int) -> ProfileOptionBuilder:
        """Shows nodes with so many float operations."""
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: list[str]) -> ProfileOptionBuilder:
        """Counts ops whose type or device matches; ``_trainable_variables`` is the type of these."""
        return self._with(account_type_regexes=list(account_type_regexes))

    def with_node_names(
        self, start_name_regexes: _Names = None, show_name_regexes: _Names = None, hide_name_regexes: _Names = None,
        trim_name_regexes: _Names = None,
    ) -> ProfileOptionBuilder:  # fmt: skip
        """Starts at nodes whose names match, shows them, hides them, or hides what is below them (trims)."""
        given = {"start_name_regexes": start_name_regexes, "show_name_regexes": show_name_regexes,
                 "hide_name_regexes": hide_name_regexes, "trim_name_regexes": trim_name_regexes}  # fmt: skip
        return self._with(**{name: list(patterns) for name, patterns in given.items() if patterns is not None})

    def account_displayed_op_only(self, is_true: bool) -> ProfileOptionBuilder:
        """Whether totals count what is shown alone; tfmini's always do."""
        return self._with(account_displayed_op_only=is_true)

    def with_empty_output(self) -> ProfileOptionBuilder:
        """Prints nothing."""
        return self._with(output="none")

    def with_stdout_output(self) -> ProfileOptionBuilder:
        """Prints the report."""
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> ProfileOptionBuilder:
        """Writes the report to a file."""
        return self._with(output=f"file:outfile={outfile}")

    def with_step(self, step: int) -> ProfileOptionBuilder:
        """Profiles one step of a `Profiler`; -1: the latest."""
        return self._with(step=step)

    def order_by(self, attribute: str) -> ProfileOptionBuilder:
        """Sorts by name, micros, bytes, params or float_ops."""
        return self._with(order_by=attribute)

    def select(self, attributes: list[str]) -> ProfileOptionBuilder:
        """Shows these: micros, bytes, params, float_ops."""
        return self._with(select=list(attributes))


@export("tf.profiler.profile")
def profile(
    graph: Graph | None = None, run_meta: RunMetadata | None = None, op_log: object = None, cmd: str = "scope",
    options: Mapping[str, Any] | None = None,
) -> GraphNodeProto:  # fmt: skip
    """Prints a profile of a graph, and returns it (``tf.profiler.profile``).

    Args:
      graph: default: the default graph.
      run_meta: the RunMetadata of a traced step, for times and memory.
      op_log: ignored: float operations are counted by the shapes.
      cmd: "scope": by name scopes; "op": by op types.
      options: of a `ProfileOptionBuilder`; default: parameters of the trainable variables.

    Returns:
      the root; its totals are those of all nodes that are shown.

    Raises:
      UnimplementedError: for another ``cmd``.
    """
    options = {**_DEFAULTS, **(options or ProfileOptionBuilder.trainable_variables_parameter())}
    if cmd not in ("scope", "op"):
        raise errors.UnimplementedError.of(f"The profiler has no view {cmd!r}: use 'scope' or 'op'.")
    graph = get_default_graph() if graph is None else graph
    ops = [op for op in _ops(graph, run_meta) if _matches(options["account_type_regexes"], op.types)
           and _matches(options["start_name_regexes"], _paths(op.name))]  # fmt: skip
    types = {op.name: op.type for op in graph.get_operations()} if cmd == "op" else {}
    root = _by_scope(ops, options) if cmd == "scope" else _by_type(ops, types, options)
    _report(root, cmd, options)
    return root


def _paths(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


@export("tf.profiler.Profiler")
class Profiler:
    """Profiles several steps of a graph (``tf.profiler.Profiler``).

    Args:
      graph: default: the default graph.
      op_log: ignored, as in `profile`.
    """

    def __init__(self, graph: Graph | None = None, op_log: object = None) -> None:
        self._graph = get_default_graph() if graph is None else graph
        self._steps: dict[int, Any] = {}

    def add_step(self, step: int, run_meta: RunMetadata | None) -> None:
        """Adds the RunMetadata of a traced step."""
        self._steps[step] = run_meta

    def _profile(self, cmd: str, options: Mapping[str, Any]) -> GraphNodeProto:
        step = options.get("step", -1)
        latest = max(self._steps, default=None) if step == -1 else step
        return profile(self._graph, self._steps.get(latest) if latest is not None else None, None, cmd, options)

    def profile_name_scope(self, options: Mapping[str, Any]) -> GraphNodeProto:
        """The profile by name scopes."""
        return self._profile("scope", options)

    def profile_operations(self, options: Mapping[str, Any]) -> GraphNodeProto:
        """The profile by op types."""
        return self._profile("op", options)


TRAINABLE_VARS_PARAMS_STAT_OPTIONS = ProfileOptionBuilder.trainable_variables_parameter()
FLOAT_OPS_OPTIONS = ProfileOptionBuilder.float_operation()
PRINT_ALL_TIMING_MEMORY = ProfileOptionBuilder.time_and_memory()
export_names(
    "tf.contrib.tfprof.model_analyzer",
    "FLOAT_OPS_OPTIONS PRINT_ALL_TIMING_MEMORY Profiler TRAINABLE_VARS_PARAMS_STAT_OPTIONS",
)


@export("tf.contrib.tfprof.model_analyzer.print_model_analysis")
def print_model_analysis(
    graph: Graph, run_meta: RunMetadata | None = None, op_log: object = None, tfprof_cmd: str = "scope",
    tfprof_options: Mapping[str, Any] | None = None,
) -> GraphNodeProto:  # fmt: skip
    """`profile` by its older name (``tf.contrib.tfprof.model_analyzer.print_model_analysis``)."""
    return profile(graph, run_meta, op_log, tfprof_cmd, tfprof_options)
