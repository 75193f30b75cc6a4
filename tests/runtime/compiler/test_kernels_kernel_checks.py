"""What a kernel or a shape function returns is compared with its op's declaration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph.op_types import KERNELS, OPS
from tfmini.graph.registry import OpHandle, op
from tfmini.runtime.compiler import kernels
from tfmini.runtime.compiler.kernels import op_facts


@pytest.fixture
def declare() -> Iterator[Callable[..., OpHandle]]:
    """Declares ops that are forgotten after the test."""
    made: list[str] = []

    def declare_one(text: str, **flags: bool) -> OpHandle:
        handle = op(text, **flags)
        made.append(handle.name)
        return handle

    yield declare_one
    for name in made:
        del OPS[name]
        KERNELS.pop((name, "CPU"), None)
    op_facts.cache_clear()


def compute(handle: OpHandle, **options: Any) -> Any:
    """The value of ``handle(x)`` for a fed x, which nothing can fold."""
    x = tf.placeholder(tf.float32, [3])
    with tf.Session() as session:
        return session.run(handle(x, **options), {x: np.ones(3)})


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (np.zeros(3), "float64 for output 'y', which is declared as float32"),
        (np.zeros((2, 2), np.float32), "shape [2,2] for output 'y', where the graph has [3]"),
        (1.0, "float for output 'y': an array or a numpy scalar is wanted"),
        (None, "NoneType for output 'y'"),
        (np.zeros(3, np.float32).view(np.matrix), "matrix for output 'y': an array or a numpy scalar is wanted"),
        (np.ma.zeros(3, np.float32), "MaskedArray for output 'y': an array or a numpy scalar is wanted"),
    ],
)
def test_a_kernel_that_returns_something_else_is_named(
    declare: Callable[..., OpHandle], result: Any, complaint: str
) -> None:
    handle = declare("WrongKernel(x: T) -> y: T; T: {float}")
    handle.shape(lambda node: [(3,)])

    @handle.kernel("CPU")
    def kernel(x: Any) -> Any:
        return result

    line = kernel.__code__.co_firstlineno
    with pytest.raises(tf.errors.InternalError, match=re.escape(complaint)) as caught:
        compute(handle, name="wrong")
    assert f"The kernel of WrongKernel at {__file__}:{line} returned" in caught.value.message
    assert caught.value.op.name == "wrong"


def test_the_number_of_outputs_is_compared(declare: Callable[..., OpHandle]) -> None:
    handle = declare("TwoOutputs(x: T) -> a: T, b: T; T: {float}")
    handle.kernel("CPU")(lambda x: np.zeros((2, 3), np.float32))
    with pytest.raises(tf.errors.InternalError, match="instead of a tuple of 2 outputs"):
        compute(handle)


def test_a_bug_in_a_kernel_is_shown_with_its_line(declare: Callable[..., OpHandle]) -> None:
    handle = declare("KernelWithABug(x: T) -> y: T; T: {float}")
    handle.kernel("CPU")(lambda x: x.no_such)
    with pytest.raises(tf.errors.InternalError, match="AttributeError: .*no_such.* at ") as caught:
        compute(handle)
    line = test_a_bug_in_a_kernel_is_shown_with_its_line.__code__.co_firstlineno + 2
    assert f" at {__file__}:{line}\n" in caught.value.message


@pytest.mark.parametrize("waits", [False, True])
def test_a_kernel_of_other_arguments_is_shown_with_its_line(declare: Callable[..., OpHandle], waits: bool) -> None:
    handle = declare("KernelOfTwo(x: T) -> y: T; T: {float}", waits=waits)
    (handle.async_kernel if waits else handle.kernel)("CPU")(lambda wait, x, y: x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="missing . required positional") as caught:
        compute(handle)
    line = test_a_kernel_of_other_arguments_is_shown_with_its_line.__code__.co_firstlineno + 3
    assert f" at {__file__}:{line}\n" in caught.value.message


def test_an_answer_that_comes_later_is_checked_too(declare: Callable[..., OpHandle]) -> None:
    handle = declare("LateAnswer(x: T) -> y: T; T: {float}", stateful=True)
    handle.async_kernel("CPU")(lambda wait, x: wait.done(np.int32(1)))
    with pytest.raises(tf.errors.InternalError, match="int32 for output 'y'"):
        compute(handle)


def test_inline_expressions_are_checked(declare: Callable[..., OpHandle]) -> None:
    handle = declare("InlineOp(x: T) -> y: T; T: {float}")
    handle.kernel("CPU")(lambda x: x)
    handle.inline(lambda node: "({0} > 0)")
    with pytest.raises(tf.errors.InternalError, match="bool for output 'y'"):
        compute(handle)


def test_without_the_switch_nothing_is_wrapped(
    declare: Callable[..., OpHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "ENABLED", False)
    handle = declare("UncheckedOp(x: T) -> y: T; T: {float}")
    handle.kernel("CPU")(lambda x: np.int32(7))
    assert compute(handle) == 7


@pytest.mark.parametrize("shapes", [(3,), [(3,), (3,)], [[3]], None])
def test_a_shape_function_returns_one_shape_per_output(declare: Callable[..., OpHandle], shapes: Any) -> None:
    handle = declare("WrongShapes(x: T) -> y: T; T: {float}")
    handle.shape(lambda node: shapes)
    with pytest.raises(TypeError, match=rf"The shape function of WrongShapes at .*{__name__.split('.')[-1]}\.py:\d+"):
        handle(tf.zeros([3]))


def test_a_split_has_as_many_sizes_as_outputs_and_none_below_zero() -> None:
    """Both were found by these checks, in TensorFlow's own tests."""
    x, sizes = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.int32, [None])
    parts = tf.split(x, sizes, num=2)
    with tf.Session() as session:
        for wrong, text in (([-1, -2], "Split size at index 1 must be >= 0. Got: -2"), ([1, 1, 1], "1 -D and 3 eleme")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                session.run(parts, {x: np.ones(3), sizes: wrong})
    with pytest.raises(ValueError, match="Split size at index 1 must be >= 0. Got: -2"):
        tf.split(x, [-1, -2])
    with pytest.raises(ValueError, match="Length of size_splits should be equal to num_outputs"):
        tf.split(x, [1, 1, 1], num=4)
