"""``tf.contrib.opt``: optimizers of papers, wrappers that keep variables small or slots alone, and those of scipy."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops import control
from tfmini.ops import training as training_ops
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import reshape
from tfmini.ops.flow.cond import cond
from tfmini.ops.gradients import gradients
from tfmini.ops.linalg import norm
from tfmini.ops.math.comparison import equal, greater, logical_and
from tfmini.ops.math.elementwise import maximum, mod
from tfmini.ops.math.reductions import count_nonzero
from tfmini.ops.math.sums import clip_by_global_norm, clip_by_norm
from tfmini.ops.math.unary import cos, sign
from tfmini.ops.math.unary import pow as power
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.functions import trainable_variables
from tfmini.train.optimizers.contrib_optimizers import _scattered
from tfmini.train.optimizers.fused_optimizer import AdagradOptimizer, FusedUpdates, MomentumOptimizer
from tfmini.train.optimizers.loss_scale import OptimizerWrapper
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer

_Decay = Callable[[Any], Any]
_log = logging.getLogger("tensorflow")

# ---- updates by the signs of gradient and momentum (Bello et al., 2017) ----------------------------------------------


class _BySigns(FusedUpdates, Optimizer):
    """Base class: a gradient that points where the momentum does makes a larger step, which may decay."""

    _slot_inputs = {"m": "m"}
    _base = "alpha"  # the input that says how much larger

    def __init__(
        self,
        learning_rate: TensorLike,
        base: float,
        beta: TensorLike,
        sign_decay_fn: _Decay | None,
        use_locking: bool,
        name: str,
    ) -> None:
        self._tensor_inputs = {"lr": "lr", self._base: self._base, "sign_decay": "sign_decay", "beta": "beta"}
        super().__init__(use_locking, name, {"lr": learning_rate, self._base: base, "beta": beta})
        self._sign_decay_fn = sign_decay_fn
        self._decay: Any = 1.0

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Operation:
        """`Optimizer.apply_gradients`; ``global_step`` is what ``sign_decay_fn`` gets."""
        if self._sign_decay_fn is not None:
            self._decay = convert_to_tensor(self._sign_decay_fn(global_step), name="sign_decay")
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _prepare(self) -> None:
        super()._prepare()
        self._tensors["sign_decay"] = convert_to_tensor(self._decay, dtypes.float32)

    def _larger(self, agreement: Tensor, base: Tensor) -> Any:
        """The factor of the gradient, by how much its sign agrees with that of the momentum."""
        raise NotImplementedError

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Operation:
        rate, base, beta, decay = (cast(t, handle.dtype.base_dtype) for t in self._tensors.values())
        m = self.get_slot(handle, "m")
        faded = m.assign(m * beta, use_locking=self._use_locking, read_value=False)
        with control_dependencies([faded]):
            added = _scattered("Add", m, indices, grad * (1 - beta), self._use_locking)
        with control_dependencies([added]):
            agreement = decay * sign(grad) * sign(gather(m.read_value(), indices))
        step = rate * self._larger(agreement, base) * grad
        return control.group(_scattered("Sub", handle, indices, step, self._use_locking), added)


@export("tf.contrib.opt.AddSignOptimizer")
class AddSignOptimizer(_BySigns):
    """var -= learning_rate * (alpha + decay * sign(g) * sign(m)) * g (``tf.contrib.opt.AddSignOptimizer``).

    Slot: ``m``.

    Args:
      learning_rate, alpha: numbers or scalar tensors.
      beta: the decay of the momentum m.
      sign_decay_fn: a function from the global step to the decay of what the signs add; default 1.
      use_locking, name: as in `Optimizer`.
    """

    _ops = training_ops.add_sign

    def __init__(
        self, learning_rate: TensorLike = 0.1, alpha: float = 1.0, beta: TensorLike = 0.9,
        sign_decay_fn: _Decay | None = None,
        use_locking: bool = False, name: str = "AddSignOptimizer",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, alpha, beta, sign_decay_fn, use_locking, name)

    def _larger(self, agreement: Tensor, base: Tensor) -> Any:
        return base + agreement


@export("tf.contrib.opt.PowerSignOptimizer")
class PowerSignOptimizer(_BySigns):
    """var -= learning_rate * base ** (decay * sign(g) * sign(m)) * g (``tf.contrib.opt.PowerSignOptimizer``).

    Slot: ``m``.

    Args:
      base: a number.
      The others are those of `AddSignOptimizer`.
    """

    _ops, _base = training_ops.power_sign, "logbase"

    def __init__(
        self, learning_rate: TensorLike = 0.1, base: float = math.e, beta: TensorLike = 0.9,
        sign_decay_fn: _Decay | None = None,
        use_locking: bool = False, name: str = "PowerSignOptimizer",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, math.log(base), beta, sign_decay_fn, use_locking, name)

    def _larger(self, agreement: Tensor, base: Tensor) -> Any:
        return power(cast(math.e, base.dtype), base * agreement)


export_names(
    "tensorflow.contrib.opt.python.training.sign_decay",
    "get_cosine_decay_fn get_linear_decay_fn get_restart_decay_fn",
)


def get_linear_decay_fn(decay_steps: int) -> Callable[[Any], Any]:
    """A function from the global step to max(0, 1 - step / decay_steps)."""
    return lambda step: maximum(0.0, (decay_steps - _as_float(step)) / decay_steps)


def _as_float(step: TensorLike | None) -> Any:
    if step is None:
        raise ValueError("global_step is required for a decay: pass it to minimize or apply_gradients.")
    return cast(step, dtypes.float32)


def _cosine(periods: float, decay_steps: int, zero_after: float | None, angle: _Decay) -> Callable[[Any], Any]:
    def decay(step: Tensor) -> Any:
        step = periods * _as_float(step)
        found = 0.5 * (1.0 + cos(math.pi / decay_steps * angle(step)))
        return found if zero_after is None else where(step >= zero_after * decay_steps, zeros_like(found), found)

    return decay


def get_cosine_decay_fn(
    decay_steps: int, num_periods: float = 0.5, zero_after: float | None = None
) -> Callable[[Any], Any]:
    """A function from the global step to (1 + cos(2 pi num_periods step / decay_steps)) / 2; 0 after some periods."""
    return _cosine(num_periods, decay_steps, zero_after, lambda step: 2.0 * step)


def get_restart_decay_fn(
    decay_steps: int, num_periods: float = 1, zero_after: float | None = None
) -> Callable[[Any], Any]:
    """A function from the global step to a cosine that falls ``num_periods`` times from 1 to 0 (SGDR)."""
    return _cosine(num_periods, decay_steps, zero_after, lambda step: mod(step, decay_steps))


# ---- relatives of momentum and Adagrad -------------------------------------------------------------------------------


@export("tf.contrib.opt.LARSOptimizer")
class LARSOptimizer(MomentumOptimizer):
    """Momentum with a rate for each layer (``tf.contrib.opt.LARSOptimizer``; You, Gitman and Ginsburg, 2017).

    Args:
      learning_rate, momentum: numbers or scalar tensors.
      weight_decay: of the variables that are scaled.
      eeta: the rate's share of the ratio of the norms of variable and gradient.
      epsilon: added to the norm of the gradient.
      skip_list: parts of the names of variables that plain momentum updates; so it does for sparse gradients.
      use_nesterov: as in `MomentumOptimizer`.

    Raises:
      ValueError: when a number is negative.
    """

    def __init__(
        self, learning_rate: TensorLike, momentum: float = 0.9, weight_decay: float = 0.0001, eeta: float = 0.001,
        epsilon: float = 0.0, name: str = "LARSOptimizer", skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ) -> None:  # fmt: skip
        if momentum < 0.0:
            raise ValueError(f"momentum should be positive: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"weight_decay should be positive: {weight_decay}")
        super().__init__(learning_rate, momentum, False, name, use_nesterov)
        self._weight_decay, self._eeta, self._epsilon = weight_decay, eeta, epsilon
        self._skip_list, self._scales = skip_list, False

    def compute_lr(self, grad: Tensor, var: Variable) -> tuple[Any, Any]:
        """(the rate of a variable, its gradient with the decay)."""
        rate = self._tensors["learning_rate"]
        if any(part in var.name for part in self._skip_list or ()):
            return rate, grad
        size, slope = norm(var, ord=2), norm(grad, ord=2)
        whole = self._eeta * size / (slope + self._weight_decay * size + self._epsilon)
        trust = where(logical_and(greater(size, 0), greater(slope, 0)), whole, 1.0 + zeros_like(whole))
        return cast(rate, trust.dtype) * trust, grad + self._weight_decay * var

    def _operands(self, var: Variable) -> dict[str, Any]:
        return {**super()._operands(var), **({"lr": 1.0} if self._scales else {})}

    def _scaled(self, apply: Callable[..., Operation], grad: Tensor, var: Variable) -> Operation:
        """The update with a gradient that has the rate in it, which so is in the slot, too."""
        rate, grad = self.compute_lr(grad, var)
        self._scales = True
        try:
            return apply(cast(rate, grad.dtype) * grad, var)
        finally:
            self._scales = False

    def _apply_dense(self, grad: Tensor, var: Variable) -> Operation:
        return self._scaled(super()._apply_dense, grad, var)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Operation:
        return self._scaled(super()._resource_apply_dense, grad, handle)


@export("tf.contrib.opt.RegAdagradOptimizer")
class RegAdagradOptimizer(AdagradOptimizer):
    """Adagrad whose slots a regularization loss may leave alone (``tf.contrib.opt.RegAdagradOptimizer``).

    See `AdagradOptimizer` for the arguments.
    """

    def __init__(
        self, learning_rate: TensorLike, initial_accumulator_value: float = 0.1, use_locking: bool = False,
        name: str = "RegAdagrad",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, initial_accumulator_value, use_locking, name)
        self._updates = True

    @contextmanager
    def avoid_updating_slots(self) -> Iterator[None]:
        """A context in which updates that are made do not change the accumulators."""
        self._updates, before = False, self._updates
        try:
            yield
        finally:
            self._updates = before

    def _attrs(self) -> dict[str, Any]:
        return {"update_slots": self._updates}


# ---- wrappers --------------------------------------------------------------------------------------------------------


@export("tf.contrib.opt.VariableClippingOptimizer")
class VariableClippingOptimizer(OptimizerWrapper, Optimizer):
    """Clips the norms of variables after each update (``tf.contrib.opt.VariableClippingOptimizer``).

    Args:
      opt: the optimizer that updates them.
      vars_to_clip_dims: variable -> the axes over which its norms go; a sparse gradient clips its rows.
      max_norm: the largest norm.
      use_locking, name: as in `Optimizer`.
      colocate_clip_ops_with_vars: ignored: the ops are where the placer puts them.
    """

    def __init__(
        self, opt: Optimizer, vars_to_clip_dims: Mapping[Any, Sequence[int]], max_norm: float,
        use_locking: bool = False, colocate_clip_ops_with_vars: bool = False, name: str = "VariableClipping",
    ) -> None:  # fmt: skip
        super().__init__(opt, use_locking, name)
        self._axes = {id(var): list(axes) for var, axes in vars_to_clip_dims.items()}
        self._max_norm = max_norm

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """The updates, and then the clipping of the variables that have gradients."""
        pairs = list(grads_and_vars)
        with name_scope(name, self._name) as scope:
            update = self._opt.apply_gradients(pairs, global_step=global_step)
            with control_dependencies([update]):
                clips = [self._clip(grad, var) for grad, var in pairs if grad is not None and id(var) in self._axes]
                return control.group(update, *clips, name=scope)

    def _clip(self, grad: Any, var: Any) -> Any:
        axes = self._axes[id(var)]
        if not isinstance(grad, IndexedSlices) or 0 in axes:
            return var.assign(clip_by_norm(var.read_value(), self._max_norm, axes), use_locking=self._use_locking)
        # Written, not added: TensorFlow takes what is too much from a row as often as the gradient has it.
        rows = gather(var.read_value(), grad.indices)
        return _scattered("Update", var, grad.indices, clip_by_norm(rows, self._max_norm, axes), self._use_locking)


class _Clipped(OptimizerWrapper, Optimizer):
    """See `clip_gradients_by_norm`."""

    def __init__(self, opt: Optimizer, clip_norm: TensorLike) -> None:
        super().__init__(opt, False, f"ClipByNorm{opt.get_name()}")
        self._clip_norm = clip_norm

    def apply_gradients(self, grads_and_vars: Iterable[GradAndVar], *args: Any, **kwargs: Any) -> Operation:
        grads, variables = zip(*grads_and_vars)
        clipped, _ = clip_by_global_norm(grads, self._clip_norm)
        return self._opt.apply_gradients(list(zip(clipped, variables)), *args, **kwargs)


@export("tf.contrib.estimator.clip_gradients_by_norm")
def clip_gradients_by_norm(optimizer: Optimizer, clip_norm: TensorLike) -> Optimizer:
    """An optimizer that first makes the global norm of the gradients ``clip_norm`` at most."""
    return _Clipped(optimizer, clip_norm)


@export("tf.contrib.opt.MultitaskOptimizerWrapper")
class MultitaskOptimizerWrapper:
    """An optimizer that a gradient of zeros leaves as it is (``tf.contrib.opt.MultitaskOptimizerWrapper``).

    So a part of the loss that is absent from a batch does not move the averages in the slots.

    Args:
      opt: the optimizer; the wrapper has all its methods.
    """

    def __init__(self, opt: Optimizer) -> None:
        if not isinstance(opt, Optimizer):
            raise TypeError(f"Supplied optimizer must be an instance of tf.train.Optimizer: {opt}")
        self._opt = opt
        for name in ("_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse"):
            setattr(opt, name, _unless_zero(getattr(opt, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opt, name)


def _unless_zero(apply: Callable[..., Any]) -> Callable[..., Any]:
    def applied(grad: Any, *args: Any) -> Any:
        nothing = equal(count_nonzero(grad.values if isinstance(grad, IndexedSlices) else grad), 0)
        return cond(nothing, control.no_op, lambda: control.group(apply(grad, *args)))

    return applied


# ---- optimizers that control a session -------------------------------------------------------------------------------


@export("tf.contrib.opt.ExternalOptimizerInterface")
class ExternalOptimizerInterface:
    """Base class of optimizers that are no ops (``tf.contrib.opt.ExternalOptimizerInterface``).

    A subclass defines ``_minimize(initial_val, loss_grad_func, equality_funcs, equality_grad_funcs, inequality_funcs,
    inequality_grad_funcs, packed_bounds, step_callback, optimizer_kwargs)``, which returns the best vector.

    Args:
      loss: the scalar to minimize.
      var_list: the variables; default: all trainable ones.
      equalities, inequalities: lists of scalars that shall be zero, or not negative.
      var_to_bounds: variable -> (low, high), numbers or arrays; None or infinity for no bound.
      **optimizer_kwargs: for the subclass.
    """

    def __init__(
        self, loss: Tensor, var_list: Sequence[Any] | None = None, equalities: Sequence[Any] | None = None,
        inequalities: Sequence[Any] | None = None, var_to_bounds: Mapping[Any, Any] | None = None,
        **optimizer_kwargs: Any,
    ) -> None:  # fmt: skip
        self._loss, self._equalities, self._inequalities = loss, list(equalities or ()), list(inequalities or ())
        self._vars = list(trainable_variables() if var_list is None else var_list)
        self.optimizer_kwargs = optimizer_kwargs
        self._shapes = [tuple(var.shape.as_list()) for var in self._vars]
        self._bounds = None if var_to_bounds is None else self._packed_bounds(var_to_bounds)
        self._loss_grad = self._packed_gradient(loss)
        self._equality_grads = [self._packed_gradient(one) for one in self._equalities]
        self._inequality_grads = [self._packed_gradient(one) for one in self._inequalities]

    def _packed_bounds(self, bounds: Mapping[Any, Any]) -> list[tuple[float, float]]:
        by_id = {id(var): pair for var, pair in bounds.items()}
        found: list[tuple[float, float]] = []
        for var, shape in zip(self._vars, self._shapes):
            pair = by_id.get(id(var), (-np.inf, np.inf))
            low, high = (np.broadcast_to(sign * np.inf if one is None else one, shape).flatten()
                         for sign, one in zip((-1, 1), pair))  # fmt: skip
            found.extend(zip(low.tolist(), high.tolist()))
        return found

    def _packed_gradient(self, value: Tensor) -> Any:
        found = [
            zeros_like(var) if grad is None else grad for grad, var in zip(gradients(value, self._vars), self._vars)
        ]
        return concat([reshape(convert_to_tensor(grad), [-1]) for grad in found], 0)

    def _unpacked(self, vector: np.ndarray[Any, Any]) -> list[Any]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(vector, ends), self._shapes)]

    def minimize(
        self, session: Any = None, feed_dict: Mapping[Any, Any] | None = None, fetches: Sequence[Any] | None = None,
        step_callback: Callable[..., Any] | None = None, loss_callback: Callable[..., Any] | None = None,
        **run_kwargs: Any,
    ) -> None:  # fmt: skip
        """Minimizes the loss by steps of a session, and sets the variables to the best values.

        Args:
          session: a session; default: the default one.
          feed_dict: for all its steps.
          fetches: tensors whose values ``loss_callback`` gets, at each evaluation of loss and gradient.
          step_callback: a function of the vector of all variables, at each step of the optimizer.
          **run_kwargs: for ``session.run``.

        Raises:
          ValueError: when there is no session.
        """
        session = session or get_default_session()
        if session is None:
            raise ValueError("minimize has no session: give it one, or call it inside of `with session.as_default()`.")

        def evaluated(
            tensors: list[Any], more: Sequence[Any] = (), callback: Callable[..., Any] | None = None
        ) -> Callable[[Any], Any]:
            def evaluate(vector: np.ndarray[Any, Any]) -> Any:
                self._load(vector, session)
                found = session.run([*tensors, *more], feed_dict=feed_dict, **run_kwargs)
                if callback is not None:
                    callback(*found[len(tensors) :])
                return found[: len(tensors)]

            return evaluate

        def single(tensors: list[Any]) -> list[Callable[[Any], Any]]:
            functions = [evaluated([tensor]) for tensor in tensors]
            return [lambda vector, function=function: function(vector)[0] for function in functions]  # type: ignore[misc]

        start = np.concatenate([np.reshape(value, -1) for value in session.run(self._vars, **run_kwargs)])
        best = self._minimize(
            initial_val=start,
            loss_grad_func=evaluated([self._loss, self._loss_grad], fetches or (), loss_callback),
            equality_funcs=single(self._equalities), equality_grad_funcs=single(self._equality_grads),
            inequality_funcs=single(self._inequalities), inequality_grad_funcs=single(self._inequality_grads),
            packed_bounds=self._bounds, step_callback=step_callback, optimizer_kwargs=self.optimizer_kwargs,
        )  # fmt: skip
        self._load(best, session)

    def _load(self, vector: np.ndarray[Any, Any], session: Any) -> None:
        for var, value in zip(self._vars, self._unpacked(vector)):
            var.load(value.astype(var.dtype.as_numpy_dtype), session)

    def _minimize(self, **kwargs: Any) -> Any:
        raise NotImplementedError("To use ExternalOptimizerInterface, subclass from it and implement _minimize.")


@export("tf.contrib.opt.ScipyOptimizerInterface")
class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """Lets ``scipy.optimize.minimize`` find the variables (``tf.contrib.opt.ScipyOptimizerInterface``).

    Args:
      method: scipy's; default L-BFGS-B, which takes bounds but no other constraints. SLSQP takes all.
      options, tol, …: scipy's other keyword arguments.
      The others are those of `ExternalOptimizerInterface`.
    """

    def _minimize(self, **kwargs: Any) -> Any:
        import scipy.optimize

        def loss_and_gradient(vector: np.ndarray[Any, Any]) -> Any:
            loss, gradient = kwargs["loss_grad_func"](vector)
            return float(loss), gradient.astype(np.float64)

        given = dict(kwargs["optimizer_kwargs"])
        own: dict[str, Any] = {"jac": True, "callback": kwargs["step_callback"], "bounds": kwargs["packed_bounds"]}
        own["constraints"] = [
            {"type": kind, "fun": function, "jac": slope}
            for kind, name in (("eq", "equality"), ("ineq", "inequality"))
            for function, slope in zip(kwargs[f"{name}_funcs"], kwargs[f"{name}_grad_funcs"])
        ]
        for name in given:
            if name in own:
                raise ValueError(f"Optimizer keyword arg {name!r} is set automatically and cannot be injected manually")
        own["method"] = given.pop("method", "L-BFGS-B")
        start = kwargs["initial_val"].astype(np.float64)
        found = scipy.optimize.minimize(loss_and_gradient, start, **own, **given)
        result = found.message, found.fun, found.get("nit")
        _log.info("Optimization terminated with: %s Objective function value: %f, number of iterations: %s", *result)
        return found.x
