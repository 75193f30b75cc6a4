"""Horovod for Keras: ``horovod.keras`` for the package ``keras``, ``horovod.tensorflow.keras`` for `tf.keras`.

Both are one interface around one of the two Keras libraries, so `interface` makes the module of either.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from tfmini.compat import horovod as hvd
from tfmini.compat.horovod.compression import Compression, Compressor
from tfmini.core_types import TensorLike
from tfmini.graph.scoping import device as device_scope
from tfmini.ops.array.identity import placeholder
from tfmini.train.optimizers.fused_optimizer import GradientDescentOptimizer

LIBRARIES = {"horovod.keras": "keras", "horovod.tensorflow.keras": "tfmini.keras"}
"""The Keras library of each module."""

_OF_HOROVOD = (
    "Compression", "init", "is_initialized", "local_rank", "local_size", "rank", "shutdown", "size",
    "mpi_built", "mpi_enabled", "mpi_threads_supported", "gloo_built", "gloo_enabled", "nccl_built", "ddl_built",
    "ccl_built",
)  # fmt: skip


def interface(fullname: str) -> ModuleType:
    """Make the module ``horovod.keras`` or ``horovod.tensorflow.keras``, with its ``callbacks``."""
    keras = import_module(LIBRARIES[fullname])
    module = ModuleType(fullname, f"Horovod for {LIBRARIES[fullname]}, served by tfmini.")
    made = _Interface(keras)
    vars(module).update({name: getattr(hvd, name) for name in _OF_HOROVOD})
    vars(module).update({name: getattr(made, name) for name in dir(made) if not name.startswith("_")})
    module.callbacks = ModuleType(f"{fullname}.callbacks")  # type: ignore[attr-defined]
    vars(module.callbacks).update({cls.__name__.lstrip("_"): made._callback(cls) for cls in _CALLBACKS})
    return module


class _Interface:
    """The functions of ``horovod.keras`` for one library."""

    def __init__(self, keras: Any) -> None:
        self._keras = keras

    def DistributedOptimizer(  # noqa: N802 - Horovod's name
        self, optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
        compression: type[Compressor] = Compression.none, sparse_as_dense: bool = False, **more: Any,
    ) -> Any:  # fmt: skip
        """Make an optimizer like the given one, which applies the mean gradient of all workers.

        Its class has the name of the given one's, so that files of models can be read without Horovod.

        Args:
          optimizer: an optimizer of the library.
          name: of the reductions; default: ``Distributed`` and the optimizer's class.
          device_dense, device_sparse: ignored.
          compression, sparse_as_dense: as for `hvd.DistributedOptimizer`.
          **more: further arguments of it: ``op``, ``gradient_predivide_factor``, ``groups``, ``process_set``.
        """
        cls: Any = type(optimizer)

        def reduced(grads: Any, params: Any) -> list[Any]:
            # What is reduced, and how, is that of an optimizer of `tf.train`, which applies nothing here.
            reducer: Any = hvd.DistributedOptimizer(
                GradientDescentOptimizer(0.0), name or f"Distributed{cls.__name__}", compression=compression,
                sparse_as_dense=sparse_as_dense, **more,
            )  # fmt: skip
            return [grad for grad, _ in reducer.reduced(list(zip(grads, params)))]

        def get_gradients(self: Any, loss: TensorLike, params: Any) -> list[Any]:
            return reduced(cls.get_gradients(self, loss, params), params)

        methods = {"get_gradients": get_gradients, "__module__": cls.__module__}
        made: Any = type(cls.__name__, (cls,), methods)
        return made.from_config(optimizer.get_config())

    def broadcast_global_variables(self, root_rank: int) -> Any:
        """Give all workers the global variables of ``root_rank``."""
        return self._run(hvd.broadcast_global_variables(root_rank))

    def allreduce(self, value: TensorLike, name: str | None = None, average: bool = True) -> Any:
        """Return the mean of an array over all workers, or its sum."""
        return self._run(hvd.allreduce(value, average=average, name=name))

    def allgather(self, value: TensorLike, name: str | None = None) -> Any:
        """Return the arrays of all workers, concatenated along the first dimension."""
        return self._run(hvd.allgather(value, name=name))

    def broadcast(self, value: TensorLike, root_rank: int, name: str | None = None) -> Any:
        """Return the array of ``root_rank``."""
        return self._run(hvd.broadcast(value, root_rank, name=name))

    def load_model(
        self, filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None,
        compression: type[Compressor] = Compression.none,
    ) -> Any:  # fmt: skip
        """Load a model whose optimizer becomes a distributed one.

        Args:
          filepath: of the HDF5 file.
          custom_optimizers: classes of optimizers that are not the library's.
          custom_objects: names -> what they stand for in the file.
          compression: as for `DistributedOptimizer`.
        """
        objects = {**{cls.__name__: cls for cls in custom_optimizers or ()}, **(custom_objects or {})}
        model = self._keras.models.load_model(filepath, custom_objects=objects)
        if getattr(model, "optimizer", None) is not None:
            self._distribute(model, compression)
        return model

    def _distribute(self, model: Any, compression: type[Compressor]) -> None:
        loaded = model.optimizer
        model.optimizer = self.DistributedOptimizer(loaded, compression=compression)
        model.train_function = None  # it has the updates of the other optimizer
        model._make_train_function()
        weights = self._keras.backend.batch_get_value(loaded.weights)
        if weights:
            model.optimizer.set_weights(weights)

    def _run(self, tensor: Any) -> Any:
        return self._keras.backend.get_session().run(tensor)

    def _callback(self, cls: type) -> type:
        """A callback class of the library."""
        body = {"_backend": self._keras.backend, "__doc__": cls.__doc__, "__module__": __name__}
        return type(cls.__name__.lstrip("_"), (cls, self._keras.callbacks.Callback), body)


# ---- Callbacks -----------------------------------------------------------------------------------------------------


class _BroadcastGlobalVariablesCallback:
    """Give all workers the global variables of one after the first batch, when the optimizer has its own.

    Args:
      root_rank: the worker that sends its values.
      device: where the ops are.
    """

    _backend: Any

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self.device, self.broadcast_done = root_rank, device, False

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast once."""
        if not self.broadcast_done:
            with device_scope(self.device or None):
                self._backend.get_session().run(hvd.broadcast_global_variables(self.root_rank))
            self.broadcast_done = True


class _MetricAverageCallback:
    """Replace the metrics at the end of an epoch by their means over all workers, for the callbacks that follow."""

    _backend: Any

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device, self._means = device, {}  # type: ignore[var-annotated]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the metrics, in the order of their names, which is the same for all workers."""
        for metric, value in sorted((logs or {}).items()):
            if metric not in self._means:
                fed = placeholder(np.asarray(value).dtype, np.shape(value))
                self._means[metric] = fed, hvd.allreduce(fed)
            fed, mean = self._means[metric]
            logs[metric] = self._backend.get_session().run(mean, {fed: value})


class _LearningRateScheduleCallback:
    """Set the learning rate to a multiple of the initial one.

    Args:
      multiplier: a number, or a function of the epoch.
      start_epoch, end_epoch: the epochs in which it does so; ``end_epoch`` is not one of them.
      staircase: once in an epoch; otherwise before each batch, and the epoch is a fraction.
      momentum_correction: for one batch, change the momentum in the ratio of the new rate to the old one.
      steps_per_epoch: default: what ``fit`` was told.
      initial_lr: default: the rate at the beginning of training.
    """

    _backend: Any
    model: Any
    params: dict[str, Any]

    def __init__(
        self, multiplier: Any, start_epoch: int = 0, end_epoch: int | None = None, staircase: bool = True,
        momentum_correction: bool = True, steps_per_epoch: int | None = None, initial_lr: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction, self.restore_momentum = momentum_correction, None
        self.steps_per_epoch, self.initial_lr, self.current_epoch = steps_per_epoch, initial_lr, 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Find the initial rate and the number of steps."""
        if self.initial_lr is None:
            self.initial_lr = self._backend.get_value(self.model.optimizer.lr)
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._steps()

    def _steps(self) -> int:
        steps, samples, size = (self.params.get(key) or 0 for key in ("steps", "samples", "batch_size"))
        if not steps and not (samples and size):
            raise ValueError(
                f"The number of steps per epoch is not known; give {type(self).__name__} the argument steps_per_epoch."
            )
        return int(steps or samples // size)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keep the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Change the rate."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            assert self.steps_per_epoch is not None
            self._adjust(epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(epoch)

    def _adjust(self, epoch: float) -> None:
        backend, optimizer = self._backend, self.model.optimizer
        old, new = backend.get_value(optimizer.lr), self.initial_lr * self.multiplier(epoch)
        backend.set_value(optimizer.lr, new)
        if self.momentum_correction and hasattr(optimizer, "momentum"):
            self.restore_momentum = backend.get_value(optimizer.momentum)
            backend.set_value(optimizer.momentum, self.restore_momentum * new / old)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Give the momentum back."""
        if self.restore_momentum:
            self._backend.set_value(self.model.optimizer.momentum, self.restore_momentum)
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log the rate."""
        if logs is not None:
            logs["lr"] = self._backend.get_value(self.model.optimizer.lr)


class _LearningRateWarmupCallback(_LearningRateScheduleCallback):
    """Raise the learning rate, batch by batch, from ``initial_lr / hvd.size()`` to ``initial_lr``.

    Args:
      warmup_epochs: in so many epochs.
      momentum_correction, steps_per_epoch, initial_lr: as for a schedule.
      verbose: 1 says so at the end.
    """

    def __init__(
        self, warmup_epochs: int = 5, momentum_correction: bool = True, steps_per_epoch: int | None = None,
        verbose: int = 0, initial_lr: float | None = None,
    ) -> None:  # fmt: skip
        def multiplier(epoch: float) -> float:
            assert self.steps_per_epoch is not None
            done = (epoch + 1 / self.steps_per_epoch) / warmup_epochs  # 1 after the last batch
            return (done * (hvd.size() - 1) + 1) / hvd.size()

        super().__init__(multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch, initial_lr)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log the rate, and say when the last epoch is over."""
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and self.end_epoch == epoch + 1:
            rate = self._backend.get_value(self.model.optimizer.lr)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


_CALLBACKS = (
    _BroadcastGlobalVariablesCallback, _MetricAverageCallback, _LearningRateScheduleCallback,
    _LearningRateWarmupCallback,
)  # fmt: skip
