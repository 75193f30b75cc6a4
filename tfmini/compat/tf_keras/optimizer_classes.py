"""The optimizers of ``tf.keras.optimizers``, on TensorFlow's fused update ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.compat.tf_keras import state as keras_state
from tfmini.compat.tf_keras.optimizer_v2 import Optimizer, State
from tfmini.compat.tf_keras.schedules import LearningRateSchedule
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.control import group
from tfmini.ops.math.elementwise import maximum
from tfmini.ops.math.unary import pow, sqrt, square
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.initializers import constant_initializer
from tfmini.train.optimizers.fused_optimizer import check_ftrl_numbers

Rate = float | Tensor | LearningRateSchedule | Callable[[], Any]


class _Classic(Optimizer):
    """An optimizer with a learning rate, a decay, and hyperparameters that are numbers."""

    _numbers: tuple[str, ...] = ()  # hyperparameters besides the rate, which each update gets
    _plain: tuple[str, ...] = ()  # attributes that are no variables
    _kept: tuple[str, ...] = ()  # slots of every variable
    _had_no_step = False  # whether Keras's optimizer of this name has weights without the step

    def __init__(self, learning_rate: Rate, name: str, kwargs: dict[str, Any], **values: Any) -> None:
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", kwargs.get("lr", learning_rate))
        self._set_hyper("decay", self._initial_decay)
        if "epsilon" in values:
            values["epsilon"] = values["epsilon"] or keras_state.epsilon()
        for key, value in values.items():
            if key in self._numbers:
                self._set_hyper(key, value)
            else:
                setattr(self, key, value)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for slot in self._kept:
            for var in var_list:
                self.add_slot(var, slot)

    def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: State) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        found = apply_state[var_device, var_dtype]
        found.update({name: identity(self._get_hyper(name, var_dtype)) for name in self._numbers})
        if hasattr(self, "epsilon"):
            found["epsilon"] = convert_to_tensor(self.epsilon, var_dtype)

    def _resource_apply_dense(self, grad: Tensor, var: Any, apply_state: State | None = None) -> Any:
        return self._dense(grad, var, self._coefficients(var, apply_state))

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor, apply_state: State | None = None) -> Any:
        return self._sparse(grad, var, indices, self._coefficients(var, apply_state))

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        raise NotImplementedError

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        raise NotImplementedError

    def _slots_of(self, var: Any) -> list[Any]:
        return [self.get_slot(var, slot) for slot in self._kept]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Gives all weights values; those of some optimizers of Keras have no step, which becomes 0."""
        has_no_step = self._had_no_step and len(self.weights) == len(weights) + 1
        super().set_weights([np.array(0), *weights] if has_no_step else weights)

    def get_config(self) -> dict[str, Any]:
        hypers = ("learning_rate", "decay", *self._numbers)
        own = {name: self._serialize_hyperparameter(name) for name in hypers}
        return {**super().get_config(), **own, **{name: getattr(self, name) for name in self._plain}}


class SGD(_Classic):
    """Gradient descent, with momentum (``tf.keras.optimizers.SGD``).

    Raises:
      ValueError: the momentum is not between 0 and 1.
    """

    _numbers, _plain = ("momentum",), ("nesterov",)

    def __init__(
        self, learning_rate: Rate = 0.01, momentum: Any = 0.0, nesterov: bool = False, name: str = "SGD", **kwargs: Any
    ) -> None:
        if isinstance(momentum, (int, float, np.number)) and not 0 <= momentum <= 1:
            raise ValueError(f"`momentum` must be between [0, 1], not {momentum}")
        super().__init__(learning_rate, name, kwargs, momentum=momentum, nesterov=nesterov)
        self._kept = ("momentum",) if not isinstance(momentum, (int, float, np.number)) or momentum > 0 else ()

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        if not self._kept:
            return self._apply_op("ApplyGradientDescent", var, [], c["lr_t"], grad)
        return self._step("Apply", var, c, grad)

    def _step(self, way: str, var: Any, c: dict[str, Tensor], grad: Tensor, *indices: Tensor) -> Any:
        """A step with momentum; the op of references adds gradients to the slot, so it gets them as steps."""
        kind, rate = "KerasMomentum", c["lr_t"]
        if not hasattr(var, "handle"):
            kind, rate, grad = "Momentum", convert_to_tensor(-1.0, grad.dtype), -rate * grad
        slots = self._slots_of(var)
        return self._apply_op(way + kind, var, slots, rate, grad, *indices, c["momentum"], use_nesterov=self.nesterov)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, var: Any, indices: Tensor, **kwargs: Any) -> Any:
        if self._kept:
            return super()._resource_apply_sparse_duplicate_indices(grad, var, indices, **kwargs)
        rate = self._coefficients(var, kwargs.get("apply_state"))["lr_t"]
        return self._resource_scatter_add(var, indices, -grad * rate)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        return self._step("SparseApply", var, c, grad, indices)


class Adam(_Classic):
    """Adam, and AMSGrad (``tf.keras.optimizers.Adam``)."""

    _numbers, _plain = ("beta_1", "beta_2"), ("epsilon", "amsgrad")

    def __init__(
        self, learning_rate: Rate = 0.001, beta_1: Any = 0.9, beta_2: Any = 0.999, epsilon: float | None = 1e-7,
        amsgrad: bool = False, name: str = "Adam", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, name, kwargs, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, amsgrad=amsgrad)
        self._kept = ("m", "v", "vhat") if amsgrad else ("m", "v")

    def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: State) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        _add_powers(self, apply_state[var_device, var_dtype], var_dtype)

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        op = "ApplyAdamWithAmsgrad" if self.amsgrad else "ApplyAdam"
        numbers = [c[name] for name in ("beta_1_power", "beta_2_power", "lr_t", "beta_1", "beta_2", "epsilon")]
        return self._apply_op(op, var, self._slots_of(var), *numbers, grad)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        m, v = (self.get_slot(var, slot) for slot in ("m", "v"))
        rate = c["lr_t"] * sqrt(1 - c["beta_2_power"]) / (1 - c["beta_1_power"])
        new_m = _faded(self, m, c["beta_1"], indices, grad)
        new_v = _faded(self, v, c["beta_2"], indices, square(grad))
        updates = [new_m, new_v]
        if self.amsgrad:
            new_v = identity(assign(self.get_slot(var, "vhat"), maximum(self.get_slot(var, "vhat"), new_v)))
            updates.append(new_v)
        return group(var.assign_sub(rate * new_m / (sqrt(new_v) + c["epsilon"])), *updates)

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Gives all weights values; those of Keras have one slot more, also without AMSGrad."""
        variables = (len(self.weights) - 1) // 2
        super().set_weights(weights[: len(self.weights)] if len(weights) == 3 * variables + 1 else weights)


def _add_powers(self: Any, found: dict[str, Tensor], var_dtype: Any) -> None:
    step = cast(self.iterations + 1, var_dtype)
    found.update({f"{name}_power": pow(found[name], step) for name in ("beta_1", "beta_2")})


def _faded(self: Any, slot: Any, beta: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    """The value of a slot that is multiplied by ``beta`` in all rows, and to whose rows 1 - beta of values is added."""
    with control_dependencies([assign(slot, slot * beta)]):
        return self._resource_scatter_add(slot, indices, values * (1 - beta))  # type: ignore[no-any-return]


class Adamax(_Classic):
    """Adam by the infinity norm (``tf.keras.optimizers.Adamax``)."""

    _numbers, _plain, _kept = ("beta_1", "beta_2"), ("epsilon",), ("m", "v")

    def __init__(
        self, learning_rate: Rate = 0.001, beta_1: Any = 0.9, beta_2: Any = 0.999, epsilon: float | None = 1e-7,
        name: str = "Adamax", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, name, kwargs, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)

    def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: State) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        _add_powers(self, apply_state[var_device, var_dtype], var_dtype)

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        numbers = [c[name] for name in ("beta_1_power", "lr_t", "beta_1", "beta_2", "epsilon")]
        return self._apply_op("ApplyAdaMax", var, self._slots_of(var), *numbers, grad)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        m, v = self._slots_of(var)
        new_m = gather(m, indices) * c["beta_1"] + grad * (1 - c["beta_1"])
        new_v = maximum(gather(v, indices) * c["beta_2"], abs(grad))
        change = -c["lr_t"] / (1 - c["beta_1_power"]) * (new_m / (new_v + c["epsilon"]))
        return group(
            self._resource_scatter_update(m, indices, new_m), self._resource_scatter_update(v, indices, new_v),
            self._resource_scatter_add(var, indices, change),
        )  # fmt: skip


class Nadam(_Classic):
    """Adam with Nesterov's momentum (``tf.keras.optimizers.Nadam``); ``schedule_decay`` is that of the momentum.

    Raises:
      ValueError: the learning rate is a schedule.
    """

    _numbers, _plain, _kept = ("beta_1", "beta_2"), ("epsilon",), ("m", "v")

    def __init__(
        self, learning_rate: Rate = 0.001, beta_1: Any = 0.9, beta_2: Any = 0.999, epsilon: float | None = 1e-7,
        name: str = "Nadam", **kwargs: Any,
    ) -> None:  # fmt: skip
        kwargs["decay"] = kwargs.pop(
            "schedule_decay", 0.004
        )  # a ``decay`` of its own is not used in TensorFlow, either
        if isinstance(kwargs.get("lr", learning_rate), LearningRateSchedule):
            raise ValueError("The Nadam optimizer does not support LearningRateSchedules as the learning rate.")
        super().__init__(learning_rate, name, kwargs, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
        self._m_cache: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        if self._m_cache is None:
            dtype = var_list[0].dtype.base_dtype if var_list else None
            self._m_cache = self.add_weight("momentum_cache", [], dtype, initializer="ones", trainable=False)
            self._weights.append(self._m_cache)
        super()._create_slots(var_list)

    def _prepare(self, var_list: Sequence[Any]) -> State:
        self._m_before = self._m_cache.read_value()
        return super()._prepare(var_list)

    def _decayed_lr(self, var_dtype: Any) -> Any:
        return self._get_hyper("learning_rate", var_dtype)  # the decay is that of the momentum

    def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: State) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        c = apply_state[var_device, var_dtype]
        step, next_step = cast(self.iterations + 1, var_dtype), cast(self.iterations + 2, var_dtype)
        base = cast(0.96, var_dtype)
        c["momentum"], c["next_momentum"] = (
            c["beta_1"] * (1 - 0.5 * pow(base, self._initial_decay * n)) for n in (step, next_step)
        )
        product = cast(self._m_before, var_dtype) * c["momentum"]
        if var_dtype == self._m_cache.dtype.base_dtype:
            product = identity(assign(self._m_cache, product))
        c["product"], c["next_product"] = product, product * c["next_momentum"]
        c["beta_2_power"] = pow(c["beta_2"], step)

    def _change(self, grad: Tensor, m: Tensor, v: Tensor, c: dict[str, Tensor]) -> Tensor:
        momentum = (1 - c["momentum"]) * grad / (1 - c["product"]) + c["next_momentum"] * m / (1 - c["next_product"])
        return c["lr_t"] * momentum / (sqrt(v / (1 - c["beta_2_power"])) + c["epsilon"])

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        m, v = self._slots_of(var)
        new_m = identity(assign(m, m * c["beta_1"] + (1 - c["beta_1"]) * grad))
        new_v = identity(assign(v, v * c["beta_2"] + (1 - c["beta_2"]) * square(grad)))
        return group(var.assign_sub(self._change(grad, new_m, new_v, c)), new_m, new_v)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        m, v = self._slots_of(var)
        new_m = gather(_faded(self, m, c["beta_1"], indices, grad), indices)
        new_v = gather(_faded(self, v, c["beta_2"], indices, square(grad)), indices)
        return group(self._resource_scatter_add(var, indices, -self._change(grad, new_m, new_v, c)), new_m, new_v)


class Adadelta(_Classic):
    """Adadelta (``tf.keras.optimizers.Adadelta``)."""

    _had_no_step = True
    _numbers, _plain, _kept = ("rho",), ("epsilon",), ("accum_grad", "accum_var")

    def __init__(
        self, learning_rate: Rate = 0.001, rho: Any = 0.95, epsilon: float | None = 1e-7, name: str = "Adadelta",
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, name, kwargs, rho=rho, epsilon=epsilon)

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        return self._apply_op("ApplyAdadelta", var, self._slots_of(var), c["lr_t"], c["rho"], c["epsilon"], grad)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        return self._apply_op(
            "SparseApplyAdadelta", var, self._slots_of(var), c["lr_t"], c["rho"], c["epsilon"], grad, indices
        )


class Adagrad(_Classic):
    """Adagrad (``tf.keras.optimizers.Adagrad``).

    Raises:
      ValueError: the first value of the accumulators is negative.
    """

    _had_no_step = True
    _plain = ("initial_accumulator_value", "epsilon")

    def __init__(
        self, learning_rate: Rate = 0.001, initial_accumulator_value: float = 0.1, epsilon: float | None = 1e-7,
        name: str = "Adagrad", **kwargs: Any,
    ) -> None:  # fmt: skip
        if initial_accumulator_value < 0.0:
            raise ValueError(f"initial_accumulator_value must be non-negative: {initial_accumulator_value}")
        values = {"initial_accumulator_value": initial_accumulator_value, "epsilon": epsilon}
        super().__init__(learning_rate, name, kwargs, **values)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Optimizer:
        """Makes the optimizer of a configuration; that of Keras, and a name, have accumulators that begin at 0."""
        config.setdefault("initial_accumulator_value", 0.0)
        return super().from_config(config, custom_objects)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self.add_slot(var, "accumulator", constant_initializer(self.initial_accumulator_value))

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        return self._apply_op("ApplyAdagradV2", var, [self.get_slot(var, "accumulator")], c["lr_t"], c["epsilon"], grad)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        slots = [self.get_slot(var, "accumulator")]
        return self._apply_op("SparseApplyAdagradV2", var, slots, c["lr_t"], c["epsilon"], grad, indices)


class RMSprop(_Classic):
    """RMSprop, with momentum and centred (``tf.keras.optimizers.RMSprop``).

    Raises:
      ValueError: the momentum is not between 0 and 1.
    """

    _had_no_step = True
    _numbers, _plain = ("rho", "momentum"), ("epsilon", "centered")

    def __init__(
        self, learning_rate: Rate = 0.001, rho: Any = 0.9, momentum: Any = 0.0, epsilon: float | None = 1e-7,
        centered: bool = False, name: str = "RMSprop", **kwargs: Any,
    ) -> None:  # fmt: skip
        if isinstance(momentum, (int, float, np.number)) and not 0 <= momentum <= 1:
            raise ValueError(f"`momentum` must be between [0, 1], not {momentum}")
        values = {"rho": rho, "momentum": momentum, "epsilon": epsilon, "centered": centered}
        super().__init__(learning_rate, name, kwargs, **values)
        self._has_momentum = not isinstance(momentum, (int, float, np.number)) or momentum > 0
        self._kept = ("rms", *(["momentum"] if self._has_momentum else []), *(["mg"] if centered else []))

    def _numbers_of(self, c: dict[str, Tensor]) -> list[Tensor]:
        return [c["lr_t"], c["rho"], c["momentum"], c["epsilon"]]

    def _fused(self, op: str, var: Any) -> tuple[str, list[Any]]:
        names = ("mg", "rms", "momentum") if self.centered else ("rms", "momentum")
        kind = "CenteredRMSProp" if self.centered else "RMSProp"
        return f"{op}{kind}", [self.get_slot(var, name) for name in names]

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        if self._has_momentum:
            op, slots = self._fused("Apply", var)
            return self._apply_op(op, var, slots, *self._numbers_of(c), grad)
        keep = lambda slot, value: identity(assign(slot, c["rho"] * slot + (1 - c["rho"]) * value))  # noqa: E731
        mean_square = keep(self.get_slot(var, "rms"), square(grad))
        if self.centered:
            mean_square = mean_square - square(keep(self.get_slot(var, "mg"), grad))
        return group(var.assign_sub(c["lr_t"] * grad / (sqrt(mean_square) + c["epsilon"])))

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        if self._has_momentum:
            op, slots = self._fused("SparseApply", var)
            return self._apply_op(op, var, slots, *self._numbers_of(c), grad, indices)
        mean_square = gather(_faded(self, self.get_slot(var, "rms"), c["rho"], indices, square(grad)), indices)
        if self.centered:
            mean = gather(_faded(self, self.get_slot(var, "mg"), c["rho"], indices, grad), indices)
            mean_square = mean_square - square(mean)
        change = -c["lr_t"] * grad / (sqrt(mean_square) + c["epsilon"])
        return self._resource_scatter_add(var, indices, change)


class Ftrl(_Classic):
    """FTRL-Proximal (``tf.keras.optimizers.Ftrl``).

    Raises:
      ValueError: an argument has the wrong sign.
    """

    _numbers = ("learning_rate_power", "l1_regularization_strength", "l2_regularization_strength")
    _plain = ("initial_accumulator_value", "l2_shrinkage_regularization_strength")
    _kept = ("accumulator", "linear")

    def __init__(
        self, learning_rate: Rate = 0.001, learning_rate_power: float = -0.5, initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0, l2_regularization_strength: float = 0.0, name: str = "Ftrl",
        l2_shrinkage_regularization_strength: float = 0.0, **kwargs: Any,
    ) -> None:  # fmt: skip
        values = {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        check_ftrl_numbers(learning_rate_power, values)
        super().__init__(learning_rate, name, kwargs, learning_rate_power=learning_rate_power, **values)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self.add_slot(var, "accumulator", constant_initializer(self.initial_accumulator_value))
            self.add_slot(var, "linear")

    def _numbers_of(self, c: dict[str, Tensor], var: Any) -> tuple[str, list[Any]]:
        strengths = [c["l1_regularization_strength"], c["l2_regularization_strength"]]
        shrinkage = self.l2_shrinkage_regularization_strength
        more = [convert_to_tensor(shrinkage, var.dtype.base_dtype)] if shrinkage > 0 else []
        return "ApplyFtrlV2" if more else "ApplyFtrl", [c["lr_t"], *strengths, *more, c["learning_rate_power"]]

    def _dense(self, grad: Tensor, var: Any, c: dict[str, Tensor]) -> Any:
        op, numbers = self._numbers_of(c, var)
        return self._apply_op(op, var, self._slots_of(var), grad, *numbers)

    def _sparse(self, grad: Tensor, var: Any, indices: Tensor, c: dict[str, Tensor]) -> Any:
        op, numbers = self._numbers_of(c, var)
        return self._apply_op(f"Sparse{op}", var, self._slots_of(var), grad, indices, *numbers)


CLASSES = (SGD, Adam, Adamax, Nadam, Adadelta, Adagrad, RMSprop, Ftrl)
