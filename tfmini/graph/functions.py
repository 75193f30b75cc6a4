"""Functions of a GraphDef's library: a call becomes the nodes of the body, and a graph becomes a function.

tfmini's graphs have no functions. `without_calls` puts the nodes of a function in the place of a node that calls it,
below that node's name, and lowers ``If`` and ``While`` to the ops of conds and loops, as TensorFlow does before it runs
them. The node itself stays, as an ``IdentityN`` of the results, so whatever names its outputs finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tfmini import dtypes, protos
from tfmini.graph.attr_values import shape_proto
from tfmini.graph.op_types import OPS
from tfmini.graph.operation import Operation, Tensor

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_CONDS = ("If", "StatelessIf")
_LOOPS = ("While", "StatelessWhile")
_INSIDE = "inlined"  # the scope of what takes the place of a node, below its name
_BOOL: Any = dtypes.bool.as_datatype_enum
# Bodies in bodies grow like a power: a small message must not ask for all memory.
MOST_NODES = 1_000_000
_DEEPEST = 100


def without_calls(graph_def: Any) -> Any:
    """A copy of a GraphDef without function library, with the bodies of functions in the place of their calls.

    Raises:
      ValueError: a function is absent, calls itself, or gets too few arguments; or there are too many nodes.
    """
    made: Any = protos.GraphDef(versions=graph_def.versions)
    inliner = _Inliner(graph_def.library.function, made)
    for node in graph_def.node:
        inliner.add(node)
    return made


def body_of(library: Any, name: str) -> tuple[Any, list[str], list[str], list[str]]:
    """A function as a graph.

    Args:
      library: a FunctionDefLibrary.
      name: the function's name in it.

    Returns:
      A GraphDef, in which a ``Placeholder`` stands for each argument; the names of these; the tensors of the results;
      the names of the ops that have to run in any case.
    """
    made: Any = protos.GraphDef()
    inliner = _Inliner(library.function, made)
    arguments = inliner.function(name).signature.input_arg
    for argument in arguments:
        node = made.node.add(name=f"argument/{argument.name}", op="Placeholder")
        node.attr["dtype"].type = argument.type
        node.attr["shape"].shape.unknown_rank = True
    names = [f"argument/{argument.name}" for argument in arguments]
    results, ends = inliner.add_body(name, "", names, [])
    return made, names, results, [end.removeprefix("^") for end in ends]


class _Inliner:
    """Writes nodes into a GraphDef; those that call a function of a library become its nodes."""

    def __init__(self, functions: Iterable[Any], made: Any) -> None:
        self._functions = {function.signature.name: function for function in functions}
        self._made = made
        self._open: list[str] = []  # the functions whose bodies are being written

    def function(self, name: str) -> Any:
        if name not in self._functions:
            raise ValueError(f"Function {name} is not defined in the library of the graph.")
        return self._functions[name]

    def add(self, node: Any) -> None:
        """Adds a node, whose inputs have the names that they have in the made graph."""
        data = [text for text in node.input if not text.startswith("^")]
        controls = [text for text in node.input if text.startswith("^")]
        if node.op in _CALLS:
            self._add_call(node, node.attr["f"].func.name, data, controls)
        elif node.op in self._functions:
            self._add_call(node, node.op, data, controls)
        elif node.op in _CONDS:
            self._add_cond(node, data, controls)
        elif node.op in _LOOPS:
            self._add_loop(node, data, controls)
        else:
            self._check_size()
            self._made.node.add().CopyFrom(node)

    def add_body(
        self, name: str, prefix: str, arguments: Sequence[str], controls: Sequence[str], constants: bool = True
    ) -> tuple[list[str], list[str]]:
        """Adds the nodes of a function.

        Args:
          name: of the function.
          prefix: of the nodes' names, with a slash.
          arguments: the tensors that are its arguments.
          controls: control inputs for the nodes that have no other inputs than the arguments.
          constants: whether constants get these, too.

        Returns:
          The tensors of the results; the control inputs for what has to come after the function.
        """
        function = self.function(name)
        if name in self._open or len(self._open) > _DEEPEST:
            raise ValueError(f"Function {name} calls itself, which tfmini cannot import.")
        if len(arguments) < len(function.signature.input_arg):
            raise ValueError(f"Function {name} gets {len(arguments)} of {len(function.signature.input_arg)} arguments.")
        self._open.append(name)
        names = _Names(function, prefix, arguments, self._functions)
        for node in function.node_def:
            self.add(names.renamed(node, controls, constants))
        self._open.pop()
        results = [names.tensor(function.ret[argument.name]) for argument in function.signature.output_arg]
        return results, [f"^{prefix}{end}" for end in _ends(function)]

    def _add_call(self, node: Any, name: str, data: list[str], controls: list[str]) -> None:
        results, ends = self.add_body(name, f"{node.name}/{_INSIDE}/", data, controls, constants=False)
        types = [argument.type for argument in self.function(name).signature.output_arg]
        self._add_results(node, types, results, [*controls, *ends])

    def _add_cond(self, node: Any, data: list[str], controls: list[str]) -> None:
        predicate, *values = data
        name = f"{node.name}/{_INSIDE}"
        self._node(f"{name}/Switch", "Switch", [predicate, predicate, *controls], T=_BOOL)
        for value, kind, number in zip(values, node.attr["Tin"].list.type, range(len(values))):
            self._node(f"{name}/input_{number}", "Switch", [value, predicate], T=kind)
        found = []
        for side, branch in enumerate(("else", "then")):
            pivot = f"{name}/switch_{'ft'[side]}"
            self._node(pivot, "Identity", [f"{name}/Switch:{side}"], T=_BOOL)
            inputs = [f"{name}/input_{number}:{side}" for number in range(len(values))]
            function = node.attr[f"{branch}_branch"].func.name
            results, ends = self.add_body(function, f"{name}/{branch}/", inputs, [f"^{pivot}"])
            self._node(f"{name}/{branch}_done", "Identity", [pivot, *ends], T=_BOOL)
            found.append([f"{name}/{branch}_done", *results])
        kinds = [_BOOL, *node.attr["Tout"].list.type]
        merges = [f"{name}/Merge_{number}" for number in range(len(kinds))]
        for merge, kind, sides in zip(merges, kinds, zip(*found)):
            self._node(merge, "Merge", sides, T=kind).attr["N"].i = 2
        self._add_results(node, kinds[1:], merges[1:], [f"^{merges[0]}"])

    def _add_loop(self, node: Any, data: list[str], controls: list[str]) -> None:
        name, kinds = f"{node.name}/{_INSIDE}", list(node.attr["T"].list.type)
        body = self.function(node.attr["body"].func.name)
        constant = [_returned(body, number) for number in range(len(kinds))]
        inside = [f"{name}/{'Enter' if same else 'Merge'}_{number}" for number, same in enumerate(constant)]
        changing = [number for number, same in enumerate(constant) if not same]
        if not changing:
            raise ValueError(f"The loop {name} changes none of its variables.")
        for number, (value, kind) in enumerate(zip(data, kinds)):
            enter = self._node(f"{name}/Enter_{number}", "Enter", [value, *controls], T=kind)
            enter.attr["frame_name"].s = name.encode()
            enter.attr["is_constant"].b = constant[number]
            enter.attr["parallel_iterations"].i = node.attr["parallel_iterations"].i or 10
        for number in changing:
            sides = [f"{name}/Enter_{number}", f"{name}/NextIteration_{number}"]
            self._node(inside[number], "Merge", sides, T=kinds[number]).attr["N"].i = 2
        function = node.attr["cond"].func.name
        results, ends = self.add_body(function, f"{name}/cond/", inside, [f"^{inside[changing[0]]}"])
        self._node(f"{name}/LoopCond", "LoopCond", [results[0], *ends])
        for number in changing:
            self._node(f"{name}/Switch_{number}", "Switch", [inside[number], f"{name}/LoopCond"], T=kinds[number])
            self._node(f"{name}/Identity_{number}", "Identity", [f"{name}/Switch_{number}:1"], T=kinds[number])
            self._node(f"{name}/Exit_{number}", "Exit", [f"{name}/Switch_{number}"], T=kinds[number])
            inside[number] = f"{name}/Identity_{number}"
        results, ends = self.add_body(body.signature.name, f"{name}/body/", inside, [f"^{inside[changing[0]]}"])
        for number in changing:
            self._node(f"{name}/NextIteration_{number}", "NextIteration", [results[number], *ends], T=kinds[number])
        exits = [data[n] if same else f"{name}/Exit_{n}" for n, same in enumerate(constant)]
        self._add_results(node, kinds, exits, controls)

    def _add_results(self, node: Any, kinds: Sequence[int], results: Sequence[str], controls: Sequence[str]) -> None:
        """The node that has the name of a call, and its results as outputs."""
        controls = sorted({*controls})
        made = self._node(node.name, "IdentityN" if results else "NoOp", [*results, *controls])
        made.device = node.device
        if results:
            made.attr["T"].list.type.extend(kinds)
            shapes = node.attr["_output_shapes" if "_output_shapes" in node.attr else "output_shapes"].list.shape
            if len(shapes) == len(results):
                made.attr["_output_shapes"].list.shape.extend(shapes)

    def _node(self, name: str, op: str, inputs: Iterable[str], T: int | None = None) -> Any:  # noqa: N803
        self._check_size()
        made = self._made.node.add(name=name, op=op, input=inputs)
        if T is not None:
            made.attr["T"].type = T
        return made

    def _check_size(self) -> None:
        if len(self._made.node) >= MOST_NODES:
            raise ValueError(
                f"The functions of the graph have more than {MOST_NODES} nodes in the place of their calls."
            )


class _Names:
    """What the names in the body of a function stand for in a graph."""

    def __init__(self, function: Any, prefix: str, arguments: Sequence[str], functions: dict[str, Any]) -> None:
        self._prefix, self._functions = prefix, functions
        self._arguments = dict(zip((argument.name for argument in function.signature.input_arg), arguments))
        self._nodes = {node.name: node for node in function.node_def}

    def tensor(self, text: str) -> str:
        """The name of a tensor: ``argument`` or ``node:output:number`` in the function, ``node:number`` in a graph."""
        name, _, rest = text.partition(":")
        if name in self._arguments:
            return str(self._arguments[name])
        if name not in self._nodes:
            raise ValueError(f"A function uses {text}, which it does not have.")
        output, _, number = rest.partition(":")
        return f"{self._prefix}{name}:{self._first(self._nodes[name], output) + int(number or 0)}"

    def renamed(self, node: Any, controls: Sequence[str], constants: bool) -> Any:
        """A node with the names that it has in the graph."""
        made: Any = protos.NodeDef()
        made.CopyFrom(node)
        made.name = self._prefix + node.name
        data = [text for text in node.input if not text.startswith("^")]
        waits = {self._control(text[1:]) for text in node.input if text.startswith("^")}
        if all(text.partition(":")[0] in self._arguments for text in data) and (constants or node.op != "Const"):
            waits.update(controls)
        made.input[:] = [*map(self.tensor, data), *sorted(waits)]
        if "_class" in node.attr:
            self._rename_group(made)
        return made

    def _control(self, name: str) -> str:
        return f"^{self._arguments[name].partition(':')[0] if name in self._arguments else self._prefix + name}"

    def _rename_group(self, node: Any) -> None:
        """Ops are near others of the function only, since those of the graph have other names."""
        near = [text.decode().removeprefix("loc:@") for text in node.attr["_class"].list.s]
        kept = [f"loc:@{self._prefix}{name}".encode() for name in near if name in self._nodes]
        node.attr["_class"].list.s[:] = kept
        if not kept:
            del node.attr["_class"]

    def _first(self, node: Any, output: str) -> int:
        """The number of the first tensor of an output of a node."""
        first = 0
        if node.op in OPS:
            outputs: Iterable[Any] = OPS[node.op].op_def.outputs
        else:
            outputs = self._functions[node.op].signature.output_arg if node.op in self._functions else ()
        for argument in outputs:
            if argument.name == output:
                break
            if argument.number_attr:
                first += node.attr[argument.number_attr].i
            else:
                first += len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else 1
        return first


def _ends(function: Any) -> list[str]:
    """The ops of a function that run in any case: those that it tells, else those with effects outside of branches."""
    if function.control_ret or function.signature.control_output or any(n.op == "Switch" for n in function.node_def):
        return sorted(set(function.control_ret.values()))
    return [node.name for node in function.node_def if node.op in OPS and OPS[node.op].op_def.is_stateful]


def _returned(function: Any, number: int) -> bool:
    """Whether a result of a function is the argument with the same number."""
    nodes = {node.name: node for node in function.node_def}
    text = function.ret[function.signature.output_arg[number].name]
    while (node := nodes.get(text.partition(":")[0])) is not None and node.op == "Identity":
        text = node.input[0]
    return bool(text.partition(":")[0] == function.signature.input_arg[number].name)


# ---- A graph as a function -----------------------------------------------------------------------------------------


def function_def(
    name: str, ops: Iterable[Operation], arguments: dict[str, Tensor], results: Sequence[Tensor], ends: Iterable[str]
) -> Any:
    """The FunctionDef of a graph.

    Args:
      name: of the function.
      ops: the operations of the graph.
      arguments: name -> the output of the placeholder that stands for an argument. Names are made unique.
      results: the tensors that the function returns.
      ends: the names of the ops that run in any case.
    """
    made: Any = protos.FunctionDef()
    made.signature.name = name
    given = {tensor: _argument_name(text) for text, tensor in arguments.items()}
    body = [op for op in ops if not (op.outputs and op.outputs[0] in given)]
    used = {op.name for op in body}
    for number, (tensor, text) in enumerate(given.items()):
        given[tensor] = _unused(text, used)
        made.signature.input_arg.add(name=given[tensor], type=tensor.dtype.base_dtype.as_datatype_enum)
        made.attr["_input_shapes"].list.shape.append(shape_proto(tensor.raw_shape))
        made.arg_attr[number].SetInParent()
    for op in body:
        made.node_def.add().CopyFrom(_node_of_function(op, given))
        made.signature.is_stateful |= op.handle.op_def.is_stateful
    used = set()
    for tensor in results:
        text = _unused("identity", used)
        made.signature.output_arg.add(name=text, type=tensor.dtype.base_dtype.as_datatype_enum)
        made.ret[text] = _name_in_function(tensor, given)
    for end in sorted({*ends}):
        made.signature.control_output.append(end)
        made.control_ret[end] = end
    return made


def _node_of_function(op: Operation, given: dict[Tensor, str]) -> Any:
    node = op.node_def
    controls = [
        f"^{control.name}" for control in op.control_inputs if not (control.outputs and control.outputs[0] in given)
    ]
    node.input[:] = [*(_name_in_function(tensor, given) for tensor in op.inputs), *controls]
    return node


def _name_in_function(tensor: Tensor, given: dict[Tensor, str]) -> str:
    """``argument`` or ``node:output:number``, where the number counts in an output that is a list of tensors."""
    if tensor in given:
        return given[tensor]
    op, number = tensor.op, tensor.value_index
    for argument in op.handle.op_def.outputs:
        size = 1
        if argument.number_attr:
            size = op.attrs[argument.number_attr]
        elif argument.type_list_attr:
            size = len(op.attrs[argument.type_list_attr])
        if number < size:
            return f"{op.name}:{argument.name}:{number}"
        number -= size
    raise ValueError(f"{tensor.name} is no output of {op.type}.")


def _argument_name(text: str) -> str:
    """A valid name of an argument: small letters, digits and underscores, with a letter in front."""
    return re.sub(r"^[^a-z]+", "", re.sub(r"[^a-z0-9_]", "_", text.lower())) or "arg"


def _unused(text: str, used: set[str]) -> str:
    made, number = text, 0
    while made in used:
        number += 1
        made = f"{text}_{number}"
    used.add(made)
    return made
