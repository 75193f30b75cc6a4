"""``tf.keras.optimizers.Optimizer``: hyperparameters that are variables, slots, and an update for each variable.

A class of a program says what its update is: ``_create_slots``, ``_prepare_local``, ``_resource_apply_dense`` and
``_resource_apply_sparse``, as in TensorFlow 1.15 (``tensorflow.python.keras.optimizer_v2.optimizer_v2``).
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat.tf_keras import state as keras_state
from tfmini.compat.tf_keras.schedules import LearningRateSchedule, deserialize, serialize
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.graph import nest
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.raw_ops import named
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.control import group
from tfmini.ops.gradients import gradients
from tfmini.ops.math.sums import clip_by_norm, clip_by_value
from tfmini.ops.variables.base import Variable
from tfmini.shapes import TensorShape
from tfmini.train.optimizers.optimizer import sum_duplicates
from tfmini.train.strategy import get_strategy

_log = logging.getLogger("tensorflow")
_ARGUMENTS = ("clipnorm", "clipvalue", "lr", "decay")
Pairs = Iterable[tuple[Any, Variable]]
State = dict[tuple[str, Any], dict[str, Tensor]]
VariableV1: Any = Variable  # takes the arguments of all kinds of variables


class Optimizer:
    """The base class of optimizers (``tf.keras.optimizers.Optimizer``).

    Args:
      name: the name scope of its variables and ops; None: that of its class, with a number if it is not the first.
      clipnorm, clipvalue: the largest norm, and absolute value, of each gradient.
      decay: the rate is divided by 1 + decay * step.
      lr: an older name of ``learning_rate``.

    Raises:
      TypeError: another keyword argument.
      ValueError: one of them is negative.
    """

    def __init__(self, name: str | None, **kwargs: Any) -> None:
        for key, value in kwargs.items():
            if key not in _ARGUMENTS:
                raise TypeError(f"Unexpected keyword argument passed to optimizer: {key}")
            if value < 0:
                raise ValueError(f"Expected {key} >= 0, received: {value}")
        self._name = name or keras_state.unique_name(keras_state.to_snake_case(type(self).__name__))
        self._hyper: dict[str, Any] = {}
        self._slots: dict[Any, dict[str, Any]] = {}
        self._weights: list[Any] = []
        self._named_weights: dict[str, Any] = {}  # as checkpoints name them
        self._iterations: Any = None
        self._hypers_created = False
        self._use_locking = True
        self._initial_decay = kwargs.pop("decay", 0.0)
        kwargs.pop("lr", None)
        vars(self).update(kwargs)

    # ---- What trains ----

    def minimize(
        self, loss: Any, var_list: Any, grad_loss: TensorLike | None = None, name: str | None = None
    ) -> Operation:
        """An op that makes a loss smaller: a tensor, or a function of nothing that returns one."""
        return self.apply_gradients(self._compute_gradients(loss, var_list, grad_loss), name)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: TensorLike | None = None
    ) -> list[tuple[Any, Any]]:
        """The gradients that `minimize` applies, and what they are of."""
        loss = loss() if callable(loss) else loss
        variables = nest.flatten(var_list() if callable(var_list) else var_list)
        grads = gradients(loss, variables, None if grad_loss is None else [grad_loss])
        return list(zip(self._clipped(grads), variables))

    def get_gradients(self, loss: TensorLike, params: Sequence[Any]) -> list[Any]:
        """The gradients of a loss, clipped.

        Raises:
          ValueError: the loss does not depend on one of ``params``, or not by ops that have gradients.
        """
        params = nest.flatten(params)
        with name_scope(f"{self._name}/gradients"):
            grads = gradients(loss, params, colocate_gradients_with_ops=True)
        missing = [param.name for grad, param in zip(grads, params) if grad is None]
        if missing:
            raise ValueError(
                f"Variable {missing[0]} has `None` for gradient; so have {missing[1:]}. All ops between it and the loss"
                " must be differentiable: K.argmax, K.round and K.eval are not."
            )
        return self._clipped(grads)

    def _clipped(self, grads: Sequence[Any]) -> list[Any]:
        norm, value = getattr(self, "clipnorm", None), getattr(self, "clipvalue", None)
        if norm is not None:
            grads = [grad if grad is None else clip_by_norm(grad, norm) for grad in grads]
        if value is not None:
            grads = [grad if grad is None else clip_by_value(grad, -value, value) for grad in grads]
        return list(grads)

    def apply_gradients(self, grads_and_vars: Pairs, name: str | None = None) -> Operation:
        """An op that changes variables by gradients and counts the step.

        Raises:
          ValueError: no variable has a gradient; without variables the step is only counted.
        """
        with get_strategy().reduced(_with_gradients(grads_and_vars)) as pairs, name_scope(self._name):
            self._create_all_weights([var for _, var in pairs])
            state = self._prepare([var for _, var in pairs])
            with name_scope(name or self._name):
                updates = [self._update(grad, var, state) for grad, var in pairs]
            with control_dependencies([update for update in updates if update is not None]):
                return self._count_step()

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        """Makes all variables of the optimizer: the count of the steps, hyperparameters, and the slots of variables."""
        _ = self.iterations
        self._create_hypers()
        self._create_slots(var_list)

    def _count_step(self) -> Operation:
        return group(self.iterations.assign_add(1))

    def get_updates(self, loss: TensorLike, params: Sequence[Any]) -> list[Operation]:
        """The ops of a step of training, which Keras runs; without variables it only counts."""
        if not params:
            return [self.iterations.assign_add(1)]
        params = list(dict.fromkeys(params))  # two layers may have the same
        pairs = list(zip(self.get_gradients(loss, params), params))
        return [self.apply_gradients(pairs)]

    def _update(self, grad: Any, var: Any, state: State) -> Any:
        """The update of a variable, and its constraint after it."""
        if isinstance(var, Tensor):
            raise NotImplementedError(f"Trying to update a Tensor, {var}: only variables can be trained.")
        with colocate_with(var.op), name_scope(f"update_{var.op.name.replace('/', '_')}"):
            if isinstance(grad, IndexedSlices):
                if var.constraint is not None:
                    raise RuntimeError("Cannot use a constraint function on a sparse variable.")
                given = _with_state(self._resource_apply_sparse, state)
                return self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices, **given)
            apply = self._resource_apply_dense
            update = apply(grad, var, **_with_state(apply, state))
            if var.constraint is None:
                return update
            with control_dependencies([update]):
                return group(var.assign(var.constraint(var)))

    # ---- What a class of optimizers says ----

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Makes the slots of variables, by `add_slot`."""

    def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: State) -> None:
        """Computes once what the updates of the variables of a device and dtype share."""
        if "learning_rate" in self._hyper:
            apply_state[var_device, var_dtype]["lr_t"] = identity(self._decayed_lr(var_dtype))

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Any:
        """The update of a variable by a tensor."""
        raise NotImplementedError(f"{type(self).__name__} has no _resource_apply_dense")

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Any:
        """The update of some rows of a variable, each named once."""
        raise NotImplementedError(f"{type(self).__name__} has no _resource_apply_sparse")

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, var: Any, indices: Tensor, **kwargs: Any) -> Any:
        """The update of some rows: gradients of the same row are added up before it."""
        summed = sum_duplicates(IndexedSlices(grad, indices))
        return self._resource_apply_sparse(summed.values, var, summed.indices, **kwargs)

    def _prepare(self, var_list: Sequence[Any]) -> State:
        state: State = {}
        for key in dict.fromkeys((var.device, var.dtype.base_dtype) for var in var_list):
            state[key] = {}
            with device(key[0]):
                self._prepare_local(*key, state)
        return state

    def _coefficients(self, var: Any, apply_state: State | None) -> dict[str, Tensor]:
        """What `_prepare_local` computed for a variable."""
        key = var.device, var.dtype.base_dtype
        return (apply_state or {}).get(key) or self._fallback_apply_state(*key)

    def _fallback_apply_state(self, var_device: str, var_dtype: Any) -> dict[str, Tensor]:
        state: State = {(var_device, var_dtype): {}}
        self._prepare_local(var_device, var_dtype, state)
        return state[var_device, var_dtype]

    def _resource_scatter_add(self, x: Any, i: Any, v: Any) -> Any:
        with control_dependencies([x.scatter_add(IndexedSlices(v, i))]):
            return x.read_value()

    def _resource_scatter_update(self, x: Any, i: Any, v: Any) -> Any:
        with control_dependencies([x.scatter_update(IndexedSlices(v, i))]):
            return x.read_value()

    def _apply_op(self, op: str, var: Any, slots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """The fused op of an update: of resources (``ResourceApplyAdam``), or of variables that are none."""
        if hasattr(var, "handle"):
            op, handles = f"Resource{op}", [x.handle for x in (var, *slots)]
        else:
            handles = [x._ref() for x in (var, *slots)]
        return named(op)(*handles, *args, use_locking=self._use_locking, **kwargs)

    # ---- Hyperparameters ----

    def _set_hyper(self, name: str, value: Any) -> None:
        """Gives a hyperparameter its value: a number, a tensor, a schedule, or a function of nothing."""
        before = self._hyper.get(name)
        if isinstance(before, Variable) and not isinstance(value, Tensor) and not callable(value):
            keras_state.library_root().backend.set_value(before, value)
        else:
            self._hyper[name] = value

    def _get_hyper(self, name: str, dtype: DTypeLike | None = None) -> Any:
        """A hyperparameter: a variable, or what the program gave, if it is no number."""
        self._create_hypers()
        value = self._hyper[name]
        if isinstance(value, LearningRateSchedule):
            return value
        value = value() if callable(value) and not isinstance(value, Variable) else value
        return value if dtype is None else cast(value, dtype)

    def _create_hypers(self) -> None:
        if self._hypers_created:
            return
        self._hypers_created = True
        for name, value in sorted(self._hyper.items()):
            if not isinstance(value, (Tensor, Variable)) and not callable(value):
                self._hyper[name] = self.add_weight(name, shape=[], initializer=value, trainable=False)

    def _decayed_lr(self, var_dtype: DTypeLike) -> Any:
        """The learning rate of this step."""
        rate = self._get_hyper("learning_rate", var_dtype)
        if isinstance(rate, LearningRateSchedule):
            rate = cast(rate(cast(self.iterations, var_dtype)), var_dtype)
        if self._initial_decay > 0.0:
            rate = rate / (1.0 + cast(self._initial_decay, var_dtype) * cast(self.iterations, var_dtype))
        return rate

    def __getattribute__(self, name: str) -> Any:
        try:
            return super().__getattribute__(name)
        except AttributeError:
            hyper = "learning_rate" if name == "lr" else name
            if name == "_hyper" or hyper not in self._hyper:
                raise
            return self._get_hyper(hyper)

    def __setattr__(self, name: str, value: Any) -> None:
        name = "learning_rate" if name == "lr" else name
        if name in vars(self).get("_hyper", ()):
            self._set_hyper(name, value)
        else:
            super().__setattr__(name, value)

    # ---- Weights ----

    @property
    def iterations(self) -> Any:
        """The variable that counts the steps, int64."""
        if self._iterations is None:
            self._iterations = self.add_weight("iter", shape=[], dtype=dtypes.int64, trainable=False)
            self._weights.append(self._iterations)
        return self._iterations

    @iterations.setter
    def iterations(self, variable: Any) -> None:
        if self._iterations is not None:
            raise RuntimeError(
                "Cannot set `iterations` to a new Variable after the Optimizer weights have been created"
            )
        self._iterations = variable
        self._weights.append(variable)

    def add_weight(
        self, name: str, shape: ShapeLike, dtype: DTypeLike | None = None, initializer: Any = "zeros",
        trainable: bool | None = None, **_: object,
    ) -> Any:  # fmt: skip
        """A variable of the optimizer; ``initializer`` may be a number."""
        dtype = dtypes.as_dtype(dtype or dtypes.float32)
        value = _initializer(initializer)
        sizes: Any = TensorShape(shape).as_list()
        start = (
            functools.partial(value, sizes, dtype) if callable(value) else np.full(sizes, value, dtype.as_numpy_dtype)
        )
        made = VariableV1(start, trainable=bool(trainable), dtype=dtype, name=name, use_resource=True)
        keras_state.track_variable(made)
        self._named_weights[name] = made
        return made

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """The slot of a variable, made at the first call."""
        slots = self._slots.setdefault(var, {})
        if slot_name not in slots:
            value = _initializer(initializer)
            start = functools.partial(value, shape=var.shape, dtype=var.dtype.base_dtype) if callable(value) else value
            with colocate_with(var.op):
                slots[slot_name] = made = VariableV1(
                    start, trainable=False, dtype=var.dtype.base_dtype, name=f"{var.op.name}/{slot_name}",
                    use_resource=hasattr(var, "handle"),
                )  # fmt: skip
            keras_state.track_variable(made)
            self._weights.append(made)
        return slots[slot_name]

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """The slot of a variable; KeyError if it has none of that name."""
        return self._slots[var][slot_name]

    def get_slot_names(self) -> list[str]:
        """The names of the slots of all variables."""
        return list(dict.fromkeys(name for slots in self._slots.values() for name in slots))

    @property
    def weights(self) -> list[Any]:
        """The step and all slots, in the order in which they were made."""
        return self._weights

    def variables(self) -> list[Any]:
        """`weights`, by an older name."""
        return self._weights

    def get_weights(self) -> list[Any]:
        """The values of the weights, as arrays."""
        return keras_state.library_root().backend.batch_get_value(self.weights)  # type: ignore[no-any-return]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Gives all weights values.

        Raises:
          ValueError: there are fewer or more, or one has another shape.
        """
        if len(weights) != len(self.weights):
            raise ValueError(
                f"You called `set_weights(weights)` on optimizer {self._name} with a  weight list of length"
                f" {len(weights)}, but the optimizer was expecting {len(self.weights)} weights. Provided weights:"
                f" {str(weights)[:50]}..."
            )
        for variable, value in zip(self.weights, weights):
            if tuple(variable.shape.as_list()) != np.shape(value):
                raise ValueError(
                    f"Optimizer weight shape {tuple(variable.shape.as_list())} not compatible with provided weight"
                    f" shape {np.shape(value)}"
                )
        keras_state.library_root().backend.batch_set_value(list(zip(self.weights, weights)))

    # ---- Configurations ----

    def get_config(self) -> dict[str, Any]:
        """The arguments that made it; a class adds its own."""
        clips = {name: getattr(self, name) for name in ("clipnorm", "clipvalue") if hasattr(self, name)}
        return {"name": self._name, **clips}

    def _serialize_hyperparameter(self, name: str) -> Any:
        """A hyperparameter as JSON has it."""
        value = self._hyper[name]
        if isinstance(value, LearningRateSchedule):
            return serialize(value)
        if isinstance(value, (Tensor, Variable)):
            return keras_state.get_session().run(value)
        return value() if callable(value) else value

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Optimizer:
        """Makes the optimizer of a configuration, whose ``lr`` becomes ``learning_rate``."""
        if "lr" in config:
            config["learning_rate"] = config.pop("lr")
        if isinstance(config.get("learning_rate"), dict):
            config = dict(config)
            config["learning_rate"] = deserialize(config["learning_rate"], custom_objects)
        return cls(**config)


def _initializer(initializer: Any) -> Any:
    """The function that a name says; other values as they are."""
    return keras_state.library_root().initializers.get(initializer) if isinstance(initializer, str) else initializer


def _with_gradients(grads_and_vars: Pairs) -> list[tuple[Any, Any]]:
    pairs = list(grads_and_vars)
    without = [var.name for grad, var in pairs if grad is None]
    found = [(grad, var) for grad, var in pairs if grad is not None]
    if pairs and not found:
        raise ValueError(f"No gradients provided for any variable: {without}.")
    if without:
        _log.warning("Gradients do not exist for variables %s when minimizing the loss.", without)
    return found


def _with_state(apply: Callable[..., Any], state: State) -> dict[str, Any]:
    """The argument ``apply_state`` of a method that takes it."""
    return {"apply_state": state} if "apply_state" in inspect.getfullargspec(apply).args else {}
