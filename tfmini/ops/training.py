"""The optimizers' update ops: ``ApplyAdam`` and the like, each declared by one row of the table below.

Each op changes a variable and its slots as one exclusive update. An op on references returns the variable's
reference; the ``Resource…`` op takes handles and has no output. The ``Sparse…`` forms update some rows only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.core_types import Array
from tfmini.errors import InvalidArgumentError
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.graph.node import Node
from tfmini.numerics import update_rules as rules
from tfmini.numerics.update_rules import Rule, any_outside, rounds_without_repeats, run_blockwise
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.variables.state import VariableState, update_together
from tfmini.shapes import RawShape, format_raw, merge_raw, with_rank

# ---- Updates of a variable and its slots by a dense gradient, for the optimizers' update ops -----------------------


def apply_dense(
    rule: Rule, states: Sequence[VariableState], grad: Array, hyper: Sequence[Any], grad_name: str = "grad"
) -> None:
    """Runs ``rule`` on a variable and its slots as one exclusive update.

    Raises:
      InvalidArgumentError: when the shapes differ.
      FailedPreconditionError: when one of them was never assigned.
    """

    def run(*arrays: Array) -> None:
        _check_shapes(arrays, grad, states, grad_name)
        run_blockwise(rule, arrays, grad, hyper)

    update_together(states, run)


def _check_shapes(arrays: tuple[Any, ...], grad: Any, states: Sequence[VariableState], grad_name: str) -> None:
    shape = arrays[0].shape
    if grad.shape != shape:
        raise _differ(grad_name, shape, grad.shape)
    for array, state in zip(arrays, states):
        if array.shape != shape:
            raise _differ(state.name, shape, array.shape)


def _differ(what: str, shape: tuple[int, ...], other: tuple[int, ...]) -> InvalidArgumentError:
    return InvalidArgumentError.of(f"var and {what} do not have the same shape{format_raw(shape)} {format_raw(other)}")


# ---- Updates of some rows of a variable and its slots, for the optimizers' update ops ------------------------------
# A row that is named twice is updated twice, in order; the optimizers add up duplicates before the op.


def apply_sparse(
    rule: Rule, states: Sequence[VariableState], grad: Array, indices: Array, hyper: Sequence[Any]
) -> None:
    """Runs ``rule`` on the rows ``indices`` of a variable and its slots as one exclusive update.

    Raises:
      InvalidArgumentError: when shapes do not fit or an index is out of range; nothing has changed then.
      FailedPreconditionError: when one of the variables was never assigned.
    """

    def run(*arrays: Array) -> None:
        _check(arrays, grad, indices, states)
        for chosen in rounds_without_repeats(indices, arrays[0].shape[0]):
            _update_rows(rule, arrays, grad[chosen], indices[chosen], hyper)

    update_together(states, run)


def _update_rows(rule: Rule, arrays: Sequence[Any], grad: Array, indices: Array, hyper: Sequence[Any]) -> None:
    # The row numbers are checked already: "clip" saves numpy's own check, and time that its indexing needs.
    rows = [array.take(indices, 0, mode="clip") for array in arrays]
    run_blockwise(rule, rows, grad, hyper)
    for array, changed in zip(arrays, rows):
        array[indices] = changed


def _check(arrays: tuple[Any, ...], grad: Array, indices: Array, states: Sequence[VariableState]) -> None:
    shape = arrays[0].shape
    for array, state in zip(arrays, states):
        if array.shape != shape:
            refuse(f"var and {state.name} do not have the same shape{format_raw(shape)} {format_raw(array.shape)}")
    if not shape:
        refuse("var must be at least 1 dimensional")
    if indices.ndim != 1:
        refuse("indices must be one-dimensional")
    if grad.ndim != len(shape):
        refuse(f"var and grad must have the same rank: {len(shape)} and {grad.ndim}")
    for axis in range(1, len(shape)):
        if shape[axis] != grad.shape[axis]:
            refuse(f"var and grad must match in dimension {axis}")
    if grad.shape[0] != indices.size:
        refuse("grad must be the same size as indices in the first dimension.")
    if any_outside(indices, shape[0]):
        offset = int(np.flatnonzero((indices < 0) | (indices >= shape[0]))[0])
        refuse(f"Index {indices[offset]} at offset {offset} in indices is out of range")


# ---- update ops ------------------------------------------------------------


class UpdateOps(NamedTuple):
    """The forms of one update op: for reference or resource variables, and for dense gradients or rows.

    A form that TensorFlow does not have is None.
    """

    dense: OpHandle[Any] | None
    resource_dense: OpHandle[Any]
    sparse: OpHandle[Any] | None
    resource_sparse: OpHandle[Any] | None


class _Form(NamedTuple):
    """One update op: its inputs in order, the number of those that are state, and the span of the gradient's."""

    type: str
    inputs: tuple[str, ...]
    states: int
    start: int
    stop: int
    sparse: bool
    by_handle: bool

    def declaration(self, attr: str) -> str:
        state = "resource" if self.by_handle else "Ref(T)"
        types = {"indices": "Tindices", "global_step": "int64"}
        inputs = [f"{n}: {state if i < self.states else types.get(n, 'T')}" for i, n in enumerate(self.inputs)]
        output = "" if self.by_handle else " -> out: Ref(T)"
        rows = "Tindices: {int32, int64}; " if self.sparse else ""
        return f"{self.type}({', '.join(inputs)}){output}; T: numbertype; {rows}use_locking: bool = false; {attr}"

    def split(self, values: Any) -> tuple[Any, Any, Any]:
        """Splits the op's inputs into (states, gradient and row numbers, hyper-parameters)."""
        start, stop = self.start, self.stop
        return values[: self.states], values[start:stop], values[self.states : start] + values[stop:]


def _update_ops(
    name: str, slots: str, inputs: str, rule: rules.Rule, attr: str = "", sparse: bool = True, refs: bool = True
) -> UpdateOps:
    """Declares the forms of an update op.

    Args:
      name: without ``Apply`` and the form.
      slots: the inputs that are slots.
      inputs: the other inputs, but for the variable and the row numbers.
      attr: declares the attr that is a keyword argument of ``rule``.
      sparse, refs: whether TensorFlow has the form.
    """

    def declare(prefix: str) -> OpHandle[Any]:
        is_sparse = "Sparse" in prefix
        others = inputs.replace("delta", "grad").replace("grad", "grad indices") if is_sparse else inputs
        names = ("var", *slots.split(), *others.split())
        start = names.index("delta" if "delta" in names else "grad")
        states, stop = 1 + len(slots.split()), start + 1 + is_sparse
        form = _Form(f"{prefix}Apply{name}", names, states, start, stop, is_sparse, "Resource" in prefix)
        return _declare(form, rule, attr)

    return UpdateOps(
        declare("") if refs else None,
        declare("Resource"),
        declare("Sparse") if refs and sparse else None,
        declare("ResourceSparse") if sparse else None,
    )


_forms: list[tuple[_Form, rules.Rule, str]] = []


def forms() -> list[tuple[_Form, rules.Rule, str]]:
    """Returns each update op with its rule and the attr that the rule takes, "" for none."""
    return list(_forms)


def _declare(form: _Form, rule: rules.Rule, attr: str) -> OpHandle[Any]:
    """Declares one form and attaches its rules. Update ops have no gradient, as in TensorFlow."""
    handle = op(form.declaration(attr), stateful=form.by_handle, writes="optimize")
    _forms.append((form, rule, attr.partition(":")[0]))
    handle.shape(functools.partial(_shape, form))
    handle.kernel_factory("CPU")(functools.partial(_kernel, form, rule, attr.partition(":")[0]))
    handle.without_gradient()
    return handle


# ---- shapes ---------------------------------------------------------------------------------


def _shape(form: _Form, node: Operation) -> list[RawShape]:
    """Merges the shapes of the variable, its slots and the gradient; the hyper-parameters are scalars."""
    states, gradient, hyper = form.split(node.inputs)
    shape: RawShape = None
    for state in states:
        shape = _merged(shape, _state_shape(state))
    for tensor in hyper:
        with_rank(tensor.raw_shape, 0)
    grad, *rows = [tensor.raw_shape for tensor in gradient]
    shape = _merge_rows(shape, grad, rows[0]) if rows else _merged(shape, grad)
    return [] if form.by_handle else [shape]


def _merged(a: RawShape, b: RawShape) -> RawShape:
    """`merge_raw`, naming the dimension and both shapes when a size differs.

    Raises:
      ValueError: when the shapes contradict each other.
    """
    if a is not None and b is not None and len(a) == len(b):
        for axis, (size, other) in enumerate(zip(a, b)):
            if size is not None and other is not None and size != other:
                raise ValueError(
                    f"Dimension {axis} in both shapes must be equal, but are {size} and {other}."
                    f" Shapes are {format_raw(a)} and {format_raw(b)}."
                )
    return merge_raw(a, b)


def _state_shape(tensor: Tensor) -> RawShape:
    if tensor.dtype.name != "resource":
        return tensor.raw_shape
    return tensor.handle_data[1] if tensor.handle_data else None


def _merge_rows(shape: RawShape, grad: RawShape, indices: RawShape) -> RawShape:
    """Checks a gradient of some rows, and the numbers of those rows, against the whole."""
    count = with_rank(indices, 1)[0]
    if grad is None:
        return shape
    if grad and grad[0] is not None and count is not None and grad[0] != count:
        raise ValueError(f"Dimensions must be equal, but are {count} and {grad[0]}")
    rows = _merged(shape, (None, *grad[1:]))
    return rows if shape is None else shape


# ---- kernels --------------------------------------------------------------------------------


def _kernel(form: _Form, rule: rules.Rule, attr: str, node: Node) -> Callable[..., Any]:
    if attr:
        rule = functools.partial(rule, **{attr: node.attrs[attr]})
    _, (gradient, *_), scalars = form.split(form.inputs)
    count, start, stop = form.states, form.start, form.stop

    def update(*values: Any) -> Any:
        states, hyper = values[:count], values[count:start] + values[stop:]
        for name, value in zip(scalars, hyper):
            if value.shape:
                refuse(f"{name} is not a scalar: {format_raw(value.shape)}")
        if form.sparse:
            apply_sparse(rule, states, values[start], values[start + 1], hyper)
        else:
            apply_dense(rule, states, values[start], hyper, gradient)
        return () if form.by_handle else states[0]

    return update


# ---- the ops --------------------------------------------------------------------------------

_NESTEROV = "use_nesterov: bool = false"
_UPDATE_SLOTS = "update_slots: bool = true"
_ADAM = "beta1_power beta2_power lr beta1 beta2 epsilon grad"

gradient_descent = _update_ops("GradientDescent", "", "alpha delta", rules.gradient_descent, sparse=False)
momentum = _update_ops("Momentum", "accum", "lr grad momentum", rules.momentum, _NESTEROV)
keras_momentum = _update_ops("KerasMomentum", "accum", "lr grad momentum", rules.keras_momentum, _NESTEROV, refs=False)
adagrad = _update_ops("Adagrad", "accum", "lr grad", rules.adagrad, _UPDATE_SLOTS)
adagrad_v2 = _update_ops("AdagradV2", "accum", "lr epsilon grad", rules.adagrad_v2, _UPDATE_SLOTS)
adadelta = _update_ops("Adadelta", "accum accum_update", "lr rho epsilon grad", rules.adadelta)
adam = _update_ops("Adam", "m v", _ADAM, rules.adam, _NESTEROV, sparse=False)
adam_with_amsgrad = _update_ops("AdamWithAmsgrad", "m v vhat", _ADAM, rules.amsgrad, sparse=False, refs=False)
ada_max = _update_ops("AdaMax", "m v", "beta1_power lr beta1 beta2 epsilon grad", rules.ada_max, sparse=False)
rms_prop = _update_ops("RMSProp", "ms mom", "lr rho momentum epsilon grad", rules.rms_prop)
centered_rms_prop = _update_ops("CenteredRMSProp", "mg ms mom", "lr rho momentum epsilon grad", rules.centered_rms_prop)
proximal_gradient_descent = _update_ops(
    "ProximalGradientDescent", "", "alpha l1 l2 delta", rules.proximal_gradient_descent
)
proximal_adagrad = _update_ops("ProximalAdagrad", "accum", "lr l1 l2 grad", rules.proximal_adagrad)
adagrad_da = _update_ops(
    "AdagradDA", "gradient_accumulator gradient_squared_accumulator", "grad lr l1 l2 global_step", rules.adagrad_da
)
ftrl = _update_ops("Ftrl", "accum linear", "grad lr l1 l2 lr_power", rules.ftrl)
ftrl_v2 = _update_ops("FtrlV2", "accum linear", "grad lr l1 l2 l2_shrinkage lr_power", rules.ftrl_v2)
add_sign = _update_ops("AddSign", "m", "lr alpha sign_decay beta grad", rules.add_sign, sparse=False)
power_sign = _update_ops("PowerSign", "m", "lr logbase sign_decay beta grad", rules.power_sign, sparse=False)
