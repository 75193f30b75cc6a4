"""``tensorflow.python.keras.testing_utils``: the check of a layer that the tests of libraries run, and small models.

It is ``keras_parameterized`` as well, which makes a test for each kind of model and each mode. The mode is that of
graphs whatever a scope says: `should_run_eagerly` is False in it.
"""

from __future__ import annotations

import functools
import itertools
import threading
import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from absl.testing import parameterized

from tfmini.compat import test_case
from tfmini.compat.switches import executing_eagerly
from tfmini.compat.tf_keras.library import library
from tfmini.dtypes import as_dtype
from tfmini.ops.composites import TensorSpec
from tfmini.shapes import TensorShape

# ---- The check of a layer --------------------------------------------------------------------------------------------


def layer_test(
    layer_cls: Callable[..., Any], kwargs: dict[str, Any] | None = None, input_shape: Any = None,
    input_dtype: Any = None, input_data: Any = None, expected_output: Any = None, expected_output_dtype: Any = None,
    expected_output_shape: Any = None, validate_training: bool = True, adapt_data: Any = None,
) -> Any:  # fmt: skip
    """Checks a layer of one input and one output: shapes, dtype, values, training, and what its configuration makes.

    Args:
      layer_cls: makes the layer, of ``kwargs``.
      input_shape: of the examples with their batch; unknown sizes become random ones.
      input_dtype: default float32.
      input_data: the examples, default random ones.
      expected_output, expected_output_dtype, expected_output_shape: what is to come out, if that is known.
      validate_training: whether to train a model of the layer for a step.
      adapt_data: what the layer's ``adapt`` gets first.

    Returns:
      The output of the layer as the first of a sequence.

    Raises:
      AssertionError: it is not as expected.
      ValueError: neither ``input_shape`` nor ``input_data`` is given.
    """
    keras = library()
    data = _random(input_shape, input_dtype or "float32") if input_data is None else input_data
    shape = tuple(data.shape if input_shape is None else input_shape)
    dtype = as_dtype(input_dtype or data.dtype).name
    layer = _adapted(layer_cls(**kwargs or {}), adapt_data)
    layer.set_weights(layer.get_weights())
    x = keras.layers.Input(shape=shape[1:], dtype=dtype)
    y = layer(x)
    expected_dtype = as_dtype(expected_output_dtype or dtype).name
    found = keras.backend.dtype(y)
    assert found == expected_dtype, f"{layer.name} gives {found}, not {expected_dtype}"
    if expected_output_shape is not None:
        _check_shape(layer, expected_output_shape, y.shape)
    model = keras.models.Model(x, y)
    output = model.predict(data)
    told = layer.compute_output_shape(TensorShape(shape))
    signature = layer.compute_output_signature(TensorSpec(shape, dtype))
    for one in (told, signature.shape):
        _check_shape(layer, one, output.shape)
    assert signature.dtype == output.dtype, f"{layer.name} gives {output.dtype}, but tells {signature.dtype}"
    _check_values(expected_output, output)
    _check_copy(model, data, output)
    if validate_training:
        trained = keras.models.Model(x, layer(x))
        trained.compile("rmsprop", "mse", weighted_metrics=["acc"])
        trained.train_on_batch(data, output)
    first = layer.__class__.from_config({**layer.get_config(), "batch_input_shape": shape})
    sequence = keras.models.Sequential([_adapted(first, adapt_data)])
    output = sequence.predict(data)
    _check_shape(first, told, output.shape)
    _check_values(expected_output, output)
    _check_copy(sequence, data, output)
    return output


def _random(shape: Any, dtype: str) -> Any:
    if shape is None:
        raise ValueError("input_shape is None")
    values = 10 * np.random.random([np.random.randint(1, 4) if size is None else size for size in shape])
    return (values - 0.5 if dtype.startswith("float") else values).astype(dtype)


def _adapted(layer: Any, data: Any) -> Any:
    if data is not None:
        layer.adapt(data)
    return layer


def _check_shape(layer: Any, expected: Any, found: Any) -> None:
    """Compares shapes of an output; sizes that are unknown are as expected."""
    wanted, sizes = TensorShape(expected).as_list(), TensorShape(found).as_list()
    fits = len(wanted) == len(sizes) and all(a is None or a == b for a, b in zip(wanted, sizes))
    assert fits, f"The output of {layer.name} ({layer.get_config()}) has the shape {sizes}, not {wanted}"


def _check_values(expected: Any, output: Any) -> None:
    if expected is not None:
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-6)


def _check_copy(model: Any, data: Any, output: Any) -> None:
    """Checks that a model of the same configuration and weights gives the same output."""
    again = model.__class__.from_config(model.get_config())
    if model.weights:
        again.set_weights(model.get_weights())
        _check_values(output, again.predict(data))


# ---- Models ----------------------------------------------------------------------------------------------------------


def get_test_data(
    train_samples: int, test_samples: int, input_shape: tuple[int, ...], num_classes: int, random_seed: Any = None
) -> Any:
    """((examples, labels) to train, those to test with): noise around a random point for each class."""
    if random_seed is not None:
        np.random.seed(random_seed)
    count = train_samples + test_samples
    centers = 2 * num_classes * np.random.random((num_classes, *input_shape))
    y = np.random.randint(0, num_classes, size=(count,))
    x = np.array([centers[label] + np.random.normal(size=input_shape) for label in y], np.float32)
    return (x[:train_samples], y[:train_samples]), (x[train_samples:], y[train_samples:])


def get_small_sequential_mlp(num_hidden: int, num_classes: int, input_dim: int | None = None) -> Any:
    """A sequence of two dense layers."""
    first = {"input_dim": input_dim} if input_dim else {}
    return library().models.Sequential(_dense(num_hidden, num_classes, **first))


def get_small_functional_mlp(num_hidden: int, num_classes: int, input_dim: int) -> Any:
    """A model of two dense layers between an input and an output."""
    return _functional(_dense(num_hidden, num_classes), {"shape": (input_dim,)})


def get_small_subclass_mlp(num_hidden: int, num_classes: int) -> Any:
    """A model whose class calls two dense layers."""
    return _subclassed(lambda: _dense(num_hidden, num_classes), in_build=False)


def get_small_subclass_mlp_with_custom_build(num_hidden: int, num_classes: int) -> Any:
    """A model whose class makes two dense layers in its ``build``."""
    return _subclassed(lambda: _dense(num_hidden, num_classes), in_build=True)


def get_small_mlp(num_hidden: int, num_classes: int, input_dim: int) -> Any:
    """A model of two dense layers of the type that `model_type_scope` says."""
    kind = get_model_type()
    dense = _dense(num_hidden, num_classes, **({"input_dim": input_dim} if kind == "sequential" else {}))
    return get_model_from_layers(dense, (input_dim,) if kind == "functional" else None)


def get_model_from_layers(
    layers: Sequence[Any], input_shape: Any = None, input_dtype: Any = None, name: str | None = None,
    input_ragged: bool | None = None, input_sparse: bool | None = None,
) -> Any:  # fmt: skip
    """A model that calls layers one after the other, of the type that `model_type_scope` says.

    Raises:
      ValueError: it is to be functional and has no shape of its input, or the type is none.
    """
    keras, kind = library(), get_model_type()
    of_input = {"shape": input_shape, "dtype": input_dtype, "sparse": bool(input_sparse), "ragged": bool(input_ragged)}
    if kind in ("subclass", "subclass_custom_build"):
        model = _subclassed(lambda: layers, kind == "subclass_custom_build", name)
        if kind == "subclass" and (input_ragged or input_sparse):
            model._set_inputs(keras.Input(**of_input))
        return model
    if kind == "sequential":
        of_input["input_shape"] = of_input.pop("shape")
        return keras.models.Sequential([*([keras.layers.InputLayer(**of_input)] if input_shape else []), *layers], name)
    if kind != "functional":
        raise ValueError(f"Unknown model type {kind}")
    if not input_shape:
        raise ValueError("Cannot create a functional model from layers with no input shape.")
    return _functional(layers, of_input, name)


def _dense(num_hidden: int, num_classes: int, **first: Any) -> list[Any]:
    dense = library().layers.Dense
    last = dense(num_classes, activation="sigmoid" if num_classes == 1 else "softmax")
    return [dense(num_hidden, activation="relu", **first), last]


def _applied(layers: Sequence[Any], x: Any) -> Any:
    return functools.reduce(lambda made, layer: layer(made), layers, x)


def _functional(layers: Sequence[Any], of_input: dict[str, Any], name: str | None = None) -> Any:
    x = library().Input(**of_input)
    return library().models.Model(x, _applied(layers, x), name=name)


def _subclassed(make_layers: Callable[[], Sequence[Any]], in_build: bool, name: str | None = None) -> Any:
    base: Any = library().models.Model

    class Subclassed(base):
        """Calls its layers one after the other."""

        def __init__(self) -> None:
            super().__init__(name=name)
            self.parts = [] if in_build else list(make_layers())

        def build(self, input_shape: Any) -> None:
            """Makes the layers, unless it has them."""
            self.parts = self.parts or list(make_layers())

        def call(self, inputs: Any) -> Any:
            return _applied(self.parts, inputs)

    for method in (Subclassed.build, Subclassed.call):
        method.__module__ = "tensorflow.python.keras.testing_utils"  # as a program's, not the library's
    return Subclassed()


def get_v2_optimizer(name: str, **kwargs: Any) -> Any:
    """An optimizer of ``tf.keras.optimizers``, by its name in small letters; ValueError if there is none."""
    return library().optimizers.deserialize({"class_name": name, "config": kwargs})


# ---- What the models of a test are to be -----------------------------------------------------------------------------


class _Chosen(threading.local):
    model_type: str | None = None
    run_eagerly: bool | None = None
    run_tf_function: bool | None = None


_chosen = _Chosen()


def _scope(choice: str) -> Callable[[Any], AbstractContextManager[Any]]:
    @contextmanager
    def scope(value: Any) -> Iterator[Any]:
        before = getattr(_chosen, choice)
        setattr(_chosen, choice, value)
        try:
            yield value
        finally:
            setattr(_chosen, choice, before)

    return scope


def _choice(name: str) -> Any:
    value = getattr(_chosen, name)
    if value is None:
        raise ValueError(f"No {name} is chosen outside of a `{name}_scope()`.")
    return value


model_type_scope = _scope("model_type")
run_eagerly_scope = _scope("run_eagerly")
experimental_run_tf_function_scope = _scope("run_tf_function")


def get_model_type() -> str:
    """The type that `model_type_scope` says; ValueError outside of it."""
    return str(_choice("model_type"))


def should_run_eagerly() -> bool:
    """False, whatever `run_eagerly_scope` says; ValueError outside of it."""
    return bool(_choice("run_eagerly")) and executing_eagerly()


def should_run_tf_function() -> bool:
    """False, whatever `experimental_run_tf_function_scope` says; ValueError outside of it."""
    return bool(_choice("run_tf_function")) and executing_eagerly()


# ---- ``keras_parameterized``: a test for each kind of model and each mode --------------------------------------------

_MODES = ("v2_function", "v2_funcgraph", "v2_eager", "v1_session")


class KerasTestCase(test_case.TestCase, parameterized.TestCase):
    """A test of which the decorators below make several; Keras's state ends with each of them."""

    def tearDown(self) -> None:
        """Forgets Keras's state."""
        library().backend.clear_session()
        super().tearDown()


TestCase = KerasTestCase  # its name in ``keras_parameterized``


def run_with_all_model_types(test_or_class: Any = None, exclude_models: Any = None) -> Any:
    """Makes of a test, or of all tests of a class, one for each type of model that `get_model_type` may say.

    Args:
      test_or_class: a method, which may have absl's parameters, or a class; None: a decorator is returned.
      exclude_models: the types, or the type, to leave out: ``functional``, ``subclass``, ``sequential``.
    """
    left_out = (exclude_models,) if isinstance(exclude_models, str) else exclude_models or ()
    kinds = [kind for kind in ("functional", "subclass", "sequential") if kind not in left_out]

    def run(method: Callable[..., Any], test: Any, kind: str, *args: Any, **kwargs: Any) -> None:
        with model_type_scope(kind):
            method(test, *args, **kwargs)

    return _for_each(kinds, run, test_or_class)


def run_all_keras_modes(
    test_or_class: Any = None, config: Any = None, always_skip_v1: bool = False, always_skip_eager: bool = False
) -> Any:
    """Makes of a test, or of all tests of a class, one for each mode: the eager ones of version 2 are skipped here.

    Args:
      test_or_class: as for `run_with_all_model_types`.
      config: of the session in which the test of the mode ``v1_session`` runs.
      always_skip_v1: whether to make none of that mode.
      always_skip_eager: whether to make none of the mode ``v2_eager``.
    """
    left_out = (always_skip_v1 and "v1_session", always_skip_eager and "v2_eager")

    def run(method: Callable[..., Any], test: Any, mode: str, *args: Any, **kwargs: Any) -> None:
        if mode != "v1_session":
            raise unittest.SkipTest("tfmini has no eager mode, in which this test runs")
        with run_eagerly_scope(False), experimental_run_tf_function_scope(False), test.test_session(config=config):
            method(test, *args, **kwargs)

    return _for_each([mode for mode in _MODES if mode not in left_out], run, test_or_class)


def _for_each(choices: list[str], run: Callable[..., None], test_or_class: Any) -> Any:
    """A decorator that makes a test for each choice; or what it makes of a test or class."""

    def of_method(method: Callable[..., Any]) -> Any:
        @parameterized.named_parameters(*((f"_{choice}", choice) for choice in choices))
        @functools.wraps(method)
        def decorated(test: Any, choice: str, *args: Any, **kwargs: Any) -> None:
            run(method, test, choice, *args, **kwargs)

        return decorated

    def decorate(decorated: Any) -> Any:
        if isinstance(decorated, Iterable):  # parameters of absl or of another of these decorators
            return itertools.chain.from_iterable(of_method(method) for method in decorated)
        if not isinstance(decorated, type):
            return of_method(decorated)
        for name, value in list(vars(decorated).items()):
            if callable(value) and name.startswith(unittest.TestLoader.testMethodPrefix):
                setattr(decorated, name, of_method(value))
        # Absl's metaclass makes the tests when it makes the class.
        return type(decorated)(decorated.__name__, decorated.__bases__, dict(vars(decorated)))

    return decorate if test_or_class is None else decorate(test_or_class)
