"""The helpers for functions that libraries import from TensorFlow's private ``util``."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import tfmini as tf
from tfmini.compat import internal_names as names
from tfmini.compat import internals


def test_arguments_and_names_of_functions() -> None:
    class Model:
        def __call__(self, features: Any, labels: Any) -> None: ...
        def method(self, features: Any, **options: Any) -> None: ...

    def function(a: Any, b: Any, c: Any = 1) -> None: ...

    assert names.fn_args(function) == ("a", "b", "c") and names.fn_args(functools.partial(function, 1, c=2)) == ("b",)
    assert names.fn_args(Model()) == ("features", "labels") and names.fn_args(Model().method) == ("features",)
    assert names.has_kwargs(Model().method) and not names.has_kwargs(function)
    assert names.get_func_name(functools.partial(function)) == "function"
    with pytest.raises(ValueError, match="keyword args"):
        names.keyword_args_only(function)(1)


def test_a_lazy_module_is_imported_when_it_is_used() -> None:
    space: dict[str, Any] = {}
    loader = names.LazyLoader("text", space, "textwrap")
    assert loader.dedent(" a") == "a" and space["text"].__name__ == "textwrap"


def test_arguments_are_described_as_in_python_2_and_without_the_librarys_annotations() -> None:
    def function(a: int, b: str = "x", *rest: int, **more: int) -> None: ...

    described = names.getargspec(function)
    assert described == (["a", "b"], "rest", "more", ("x",)) and described.args == ["a", "b"]
    assert names.getfullargspec(function).annotations["a"] == "int"
    assert names.getfullargspec(names.fn_args).annotations == {}
    cast = names.getfullargspec(tf.cast)
    assert cast == names.getfullargspec(eval("lambda x, dtype, name=None: x"))


def test_composite_tensors_are_those_that_consist_of_tensors() -> None:
    sparse = tf.SparseTensor([[0]], [1.0], [2])
    assert isinstance(sparse, names.CompositeTensor) and isinstance(tf.SparseTensor, type)
    assert isinstance(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])), names.CompositeTensor)
    assert not isinstance(tf.constant(1.0), names.CompositeTensor)


def test_what_consists_of_tensors_is_not_converted() -> None:
    class Pair(names.CompositeTensor):
        def __init__(self, parts: Any) -> None:
            self.parts = parts

    class Number:
        pass

    tf.register_tensor_conversion_function(Number, lambda value, **_: Pair([value]))  # type: ignore[arg-type]
    convert = names.convert_to_tensor_or_composite
    sparse = tf.SparseTensor([[0]], [1.0], [2])
    assert convert(sparse) is sparse and isinstance(convert(Number()), Pair)
    assert convert([1.0, 2.0], name="pair").name == "pair:0"
    with pytest.raises(ValueError, match="requested dtype int32"):
        convert(sparse, tf.int32)


def test_no_number_of_shards_is_known_outside_of_its_context() -> None:
    assert names.get_tpu_context().number_of_shards is None
    with names.tpu_shard_context(4):
        assert names.get_tpu_context().number_of_shards == 4
        with pytest.raises(NotImplementedError, match="nested"), names.tpu_shard_context(2):
            pass
    assert names.get_tpu_context().number_of_shards is None


def test_eager_mode_can_be_named_and_not_entered() -> None:
    with pytest.raises(NotImplementedError, match="no eager mode"):
        names.eager_mode()


def test_a_name_out_of_scope_has_its_alternative_also_below_modules_that_are_there() -> None:
    assert "use tf.estimator.Estimator" in internals.nearest("contrib.learn.python.learn.dataframe")
    assert internals.nearest("no.such.path").startswith("Look for a public name")
