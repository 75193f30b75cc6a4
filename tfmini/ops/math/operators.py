"""Python's operators on tensors; importing this module defines them on `Tensor`.

``a + b`` makes an op named ``add``; an operand that is not a tensor becomes a constant ``add/x`` or ``add/y``.
Indexing is in `array.slicing`; ``==`` compares identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.ops.math import comparison, elementwise, matmul, unary

Function = Callable[..., Any]


def binary_operator(function: Function, name: str) -> tuple[Function, Function]:
    """Defines the methods ``__name__`` and ``__rname__`` (reflected) by a function of two tensors."""
    reflected_method = f"__r{name}__"

    def forward(x: Tensor, y: Any) -> Any:
        if type(y) is Tensor and type(x) is Tensor:
            return function(x, y, name=name)
        with x.graph.as_default(), x.graph.name_scope(name) as scope:
            try:
                y = convert_to_tensor(y, preferred_dtype=x.dtype.base_dtype, name="y")
            except TypeError:
                # The other operand may implement the operation with a tensor on its left.
                if hasattr(type(y), reflected_method):
                    return NotImplemented
                raise
            return function(x, y, name=scope)

    def reflected(y: Any, x: Tensor) -> Any:
        with y.graph.as_default(), y.graph.name_scope(name) as scope:
            x = convert_to_tensor(x, dtype=y.dtype.base_dtype, name="x")
            return function(x, y, name=scope)

    return forward, reflected


_BINARY: dict[str, Function] = {
    "add": elementwise.add_op,
    "sub": elementwise.sub_op,
    "mul": elementwise.mul_op,
    "div": elementwise.div,
    "truediv": elementwise.truediv,
    "floordiv": elementwise.floordiv,
    "mod": elementwise.floor_mod_op,
    "pow": unary.pow,
    "and": comparison.logical_and,
    "or": comparison.logical_or,
    "xor": comparison.logical_xor,
    "matmul": matmul.matmul,
}
for _name, _function in _BINARY.items():
    _forward, _reflected = binary_operator(_function, _name)
    Tensor._override_operator(f"__{_name}__", _forward)
    Tensor._override_operator(f"__r{_name}__", _reflected)

# These are not named after the operator: ``a < b`` is "Less", ``-a`` "Neg".
_UNNAMED: dict[str, Function] = {
    "lt": comparison.less, "le": comparison.less_equal, "gt": comparison.greater, "ge": comparison.greater_equal,
    "neg": elementwise.negative, "abs": unary.abs, "invert": comparison.logical_not,
}  # fmt: skip
for _name, _function in _UNNAMED.items():
    Tensor._override_operator(f"__{_name}__", _function)
