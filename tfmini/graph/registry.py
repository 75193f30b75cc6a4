"""The declaration of ops: one handle per op type, to which its rules are attached.

A family file in ``tfmini/ops`` declares an op and attaches its rules to the handle::

    matmul = op("MatMul(a: T, b: T) -> product: T; transpose_a: bool = false; …")

    @matmul.shape
    def _shape(node): ...                     # Operation -> list of raw shapes, one per output
                                              # (shared ones: `shape_functions`, as ``op(..., shape=...)``)

    @matmul.gradient
    def _gradient(node, grad): ...            # Operation, grads of outputs -> grads of inputs

    @matmul.kernel("CPU")
    def _cpu(a, b, *, transpose_a, transpose_b): ...   # numpy values -> numpy value(s)

Each decorator writes into the table of its reader; `tfmini.graph.op_types` has the tables and describes kernels.
Another family calls the op as ``raw_ops.MatMul(a, b)`` (`tfmini.graph.raw_ops`).

Other facts about an op that placer, compiler or inspector need (it may wait, it is a variable, it enters a loop) are
traits: arguments of `op`, which `tfmini.graph.traits` describes. No module decides by a list of op names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from tfmini.graph.building import apply
from tfmini.graph.op_types import OpType, ShapeRule, declare
from tfmini.graph.operation import Tensor
from tfmini.graph.traits import Traits

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    R = DefaultTypeVar("R", default=Tensor)
else:
    R = TypeVar("R")


class OpHandle(OpType, Generic[R]):
    """An op type with its rules. A call adds a node to the graph of its inputs or to the default graph.

    A call returns the output: a `Tensor`, unless the handle is annotated otherwise where it is declared
    (``OpHandle[Operation]`` for an op without outputs, ``OpHandle[Any]`` for several outputs or a list).
    """

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return apply(self, args, kwargs)  # type: ignore[no-any-return]


def op(
    text: str, *, stateful: bool = False, uninit_ok: bool = False, shape: ShapeRule | None = None,
    **traits: Unpack[Traits],
) -> OpHandle[R]:  # fmt: skip
    """Declares an op (see `op_def` for the grammar) and returns its handle.

    Args:
      text: the declaration.
      stateful: the op has side effects or state. Passes never fold, merge or drop it.
      uninit_ok: its reference inputs may be uninitialised variables.
      shape: as for `OpHandle.shape`; ``[()]`` is one scalar, ``[]`` no output.
      traits: see `Traits`.

    Raises:
      ValueError: the name is taken, a trait does not exist, or the text does not follow the grammar. (tfmini's own
        declarations are parsed at first use, and by a test.)
    """
    handle: OpHandle[R] = OpHandle(text, {"stateful": stateful, "uninit_ok": uninit_ok}, traits)
    unknown = next((trait for trait in traits if trait not in Traits.__annotations__), None)
    if unknown is not None:
        raise ValueError(f"op {handle.name} is declared with {unknown}={traits[unknown]!r}; "  # type: ignore[literal-required]
                         "tfmini.graph.traits has no such trait")  # fmt: skip
    if shape is not None:
        handle.shape(shape)
    declare(handle)
    return handle
