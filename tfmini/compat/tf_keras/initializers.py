"""The initializers, regularizers and constraints of ``tf.keras``: TensorFlow's names, and ops for their values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat.tf_keras import state
from tfmini.ops.array.gather import gather_nd
from tfmini.ops.variables import initializers as ops_initializers


def apply(root: ModuleType) -> None:
    """Changes those of the copy."""
    _take_dtypes(root.initializers)
    _name_initializers(root.initializers)
    for kinds in (root.initializers, root.regularizers, root.constraints):
        kinds.get = _takes_functions(kinds.get)
    root.constraints.RadialConstraint = root.constraints.radial_constraint = _radial_constraint(root)
    _compute_as_ops(root.initializers)


# These compute the values of Keras's initializers: the graph's seed then gives the same numbers in each process.
_BY_OPS: dict[str, Callable[[Any], Any]] = {
    "Zeros": lambda one: ops_initializers.Zeros(),
    "Ones": lambda one: ops_initializers.Ones(),
    "Constant": lambda one: ops_initializers.Constant(one.value),
    "RandomUniform": lambda one: ops_initializers.RandomUniform(one.minval, one.maxval, one.seed),
    "RandomNormal": lambda one: ops_initializers.RandomNormal(one.mean, one.stddev, one.seed),
    "TruncatedNormal": lambda one: ops_initializers.TruncatedNormal(one.mean, one.stddev, one.seed),
    "VarianceScaling": lambda one: ops_initializers.VarianceScaling(one.scale, one.mode, one.distribution, one.seed),
    "Orthogonal": lambda one: ops_initializers.Orthogonal(one.gain, one.seed),
    "Identity": lambda one: ops_initializers.Identity(one.gain),
}


def _compute_as_ops(initializers: Any) -> None:
    """Gives Keras's initializers the ops of those of `tf.initializers`."""

    def computed_by(make: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda self, shape, dtype=None, partition_info=None: make(self)(shape, dtype or self.dtype)

    for name, make in _BY_OPS.items():
        getattr(initializers, name).__call__ = computed_by(make)


def _take_dtypes(initializers: Any) -> None:
    """Gives initializers a dtype, which TensorFlow writes into configurations, and Keras's functions their class."""
    initializers.Initializer.from_config = classmethod(lambda cls, config: cls(**config))
    for name in _BY_OPS:
        _take_dtype(getattr(initializers, name))
    scaled = initializers.VarianceScaling
    for kind, scale in (("he", 2.0), ("lecun", 1.0)):
        for shape, distribution in (("normal", "truncated_normal"), ("uniform", "uniform")):
            setattr(initializers, f"{kind}_{shape}", _scaled(scaled, f"{kind}_{shape}", scale, distribution))
    for shape, distribution in (("Normal", "truncated_normal"), ("Uniform", "uniform")):
        made = _glorot(scaled, f"Glorot{shape}", distribution)
        setattr(initializers, f"Glorot{shape}", made)
        setattr(initializers, f"glorot_{shape.lower()}", made)


def _scaled(scaled: Any, name: str, scale: float, distribution: str) -> Callable[..., Any]:
    def make(seed: int | None = None) -> Any:
        return scaled(scale, "fan_in", distribution, seed)

    make.__name__ = name
    return make


def _take_dtype(cls: Any) -> None:
    """Adds ``dtype`` behind the arguments of an initializer; that of floatx if there is none."""
    make, config = cls.__init__, cls.get_config
    names = list(inspect.signature(make).parameters)[1:] if "__init__" in vars(cls) else []

    def __init__(self: Any, *args: Any, dtype: Any = None, verify_shape: bool = False, **kwargs: Any) -> None:
        if len(args) > len(names):
            args, dtype = args[: len(names)], args[len(names)]
        make(self, *args, **kwargs)
        self.dtype = dtypes.as_dtype(dtype or state.library_root().backend.floatx())

    cls.__init__ = __init__
    cls.get_config = lambda self: {**config(self), "dtype": self.dtype.name}


def _glorot(scaled: Any, name: str, distribution: str) -> Any:
    def __init__(self: Any, seed: int | None = None, dtype: Any = None) -> None:
        scaled.__init__(self, 1.0, "fan_avg", distribution, seed, dtype=dtype)

    config = lambda self: {"seed": self.seed, "dtype": self.dtype.name}  # noqa: E731
    return type(name, (scaled,), {"__init__": __init__, "get_config": config, "__module__": scaled.__module__})


def _name_initializers(initializers: Any) -> None:
    """Gives the initializers TensorFlow's names, and lets a name stand for a function of the program."""
    own = vars(initializers)
    classes = [name for name, value in own.items() if inspect.isclass(value) and name != "Initializer"]
    functions = [f"{kind}_{shape}" for kind in ("he", "lecun") for shape in ("normal", "uniform")]
    own.update({f"{name}V2": own[name] for name in (*classes, *functions)})


def _takes_functions(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Lets a name stand for a function of the program (``custom_objects``); None is no initializer."""

    @functools.wraps(get)
    def get_one(identifier: Any) -> Any:
        if identifier is None:
            return None
        known = state.library_root().utils.generic_utils._GLOBAL_CUSTOM_OBJECTS
        given = known.get(identifier) if isinstance(identifier, str) else None
        return given if inspect.isfunction(given) else get(identifier)

    return get_one


def _radial_constraint(root: ModuleType) -> type:
    class RadialConstraint(root.constraints.Constraint):  # type: ignore[name-defined]
        """Makes each kernel of a convolution ``[size, size, inputs, filters]`` the same around its middle."""

        def __call__(self, w: Any) -> Any:
            rank = w.shape.ndims
            if rank is None or rank != 4:
                raise ValueError(f"The weight tensor must be of rank 4, but is of shape: {w.shape}")
            size = w.shape.as_list()[0]
            away = np.floor(np.abs(np.arange(size) - (size - 1) / 2)).astype(np.int64)
            ring = np.maximum(away[:, None], away)
            # Each ring gets one value of the diagonal; of an even size the middle's neighbour has none (as in 1.15).
            source = size // 2 - 1 + ring + np.where(ring > 0, 1 - size % 2, 0)
            return gather_nd(w, np.stack([source, source], -1))

    return RadialConstraint
