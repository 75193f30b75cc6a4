"""From a node to the Python function that computes it, and how its inputs and outputs are laid out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from tfmini import dtypes, errors
from tfmini.graph.node import Node
from tfmini.graph.op_def import OpDef
from tfmini.graph.op_types import OPS, Kernel, OpType, kernel_for


class OpFacts(NamedTuple):
    """The facts about an op type that the compiler asks for again and again.

    Attributes:
      flat: neither inputs nor outputs are lists, so counts follow from the declaration.
      references: whether some input takes a reference.
      reference_outputs: positions of outputs that are references.
      single: there is one output and the kernel returns it by itself.
      foldable: it may be computed at compile time when its inputs are constants.
    """

    handle: OpType
    kernel: Kernel
    op_def: OpDef
    flat: bool
    references: bool
    reference_outputs: tuple[int, ...]
    single: bool
    foldable: bool


@lru_cache(maxsize=4096)
def op_facts(op_type: str, device_type: str) -> OpFacts | None:
    """The facts of an op type that has a kernel on a device type, or None."""
    handle, kernel = OPS.get(op_type), kernel_for(op_type, device_type)
    if handle is None or kernel is None:
        return None
    op_def = handle.op_def
    return OpFacts(
        handle,
        kernel,
        op_def,
        not any(arg.is_list for arg in (*op_def.inputs, *op_def.outputs)),
        any(arg.is_ref for arg in op_def.inputs),
        # Ops with reference outputs have no list outputs before them.
        tuple(i for i, out in enumerate(op_def.outputs) if out.is_ref),
        len(op_def.outputs) == 1 and not op_def.outputs[0].is_list,
        not (
            op_def.is_stateful
            or kernel.wants_step
            or kernel.makes_state
            or kernel.is_async
            or "resources" in kernel.bound
            or any(arg.is_ref or arg.dtype is dtypes.resource for arg in op_def.inputs)  # it may change what they name
        ),
    )


def make_callable(kernel: Kernel, node: Node, resources: Any = None) -> Callable[..., Any]:
    """The function that computes a node: its kernel with the attrs bound."""
    if kernel.is_factory:
        return kernel.function(node)  # type: ignore[no-any-return]
    bound = bound_arguments(kernel, node, resources)
    if not bound:
        return kernel.function
    # A closure is called faster than functools.partial with keywords.
    function = kernel.function

    def call(*args: Any) -> Any:
        return function(*args, **bound)

    return call


def bound_arguments(kernel: Kernel, node: Node, resources: Any = None) -> dict[str, Any]:
    """The keyword-only arguments that a kernel asks for: attrs, ``node``, ``resources``."""
    bound: dict[str, Any] = {}
    for name in kernel.bound:
        if name == "node":
            bound[name] = node
        elif name == "resources":
            bound[name] = resources
        elif name in node.attrs:
            bound[name] = node.attrs[name]
        else:
            definition = OPS[node.op].op_def.attrs.get(name)
            if definition is None or not definition.has_default:
                raise errors.InvalidArgumentError.of(f"node {node.name} ({node.op}) has no attr '{name}'")
            bound[name] = definition.default
    return bound


def list_lengths(op_def: OpDef, node: Node) -> list[int | None]:
    """Per declared input, the number of tensors of a list input, or None for a single one."""
    found: list[int | None] = []
    for arg in op_def.inputs:
        if arg.number_attr is not None:
            found.append(node.attrs[arg.number_attr])
        elif arg.type_list_attr is not None:
            found.append(len(node.attrs[arg.type_list_attr]))
        else:
            found.append(None)
    return found


def grouped(lengths: list[int | None], flat: list[Any]) -> list[Any]:
    """Flat input values with those of list inputs gathered into lists."""
    found: list[Any] = []
    position = 0
    for count in lengths:
        if count is None:
            found.append(flat[position])
            position += 1
        else:
            found.append(flat[position : position + count])
            position += count
    return found


def takes_reference(op_def: OpDef, node: Node) -> list[bool]:
    """Per flat input, whether the op takes a variable's reference itself instead of its value."""
    flat: list[bool] = []
    for arg, count in zip(op_def.inputs, list_lengths(op_def, node)):
        flat.extend([arg.is_ref] * (1 if count is None else count))
    return flat


def output_count(op_def: OpDef, node: Node) -> int:
    """The number of flat outputs of a node."""
    count = 0
    for out in op_def.outputs:
        if out.number_attr is not None:
            count += node.attrs[out.number_attr]
        elif out.type_list_attr is not None:
            count += len(node.attrs[out.type_list_attr])
        else:
            count += 1
    return count
