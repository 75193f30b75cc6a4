"""What the graph knows about values, and placeholders that were not fed."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate
from tfmini import dtypes
from tfmini.errors import InvalidArgumentError
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape, get_static_value
from tfmini.ops.array.identity import identity, placeholder
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.shape import shape, size
from tfmini.ops.flow.flow_ops import switch


def test_values_are_derived_from_constants_and_static_shapes() -> None:
    x = placeholder(dtypes.float32, [2, 3])
    assert constant_value(concat([shape(x), [7]], 0)).tolist() == [2, 3, 7]  # type: ignore[union-attr]
    assert constant_value(size(x)) == 6
    assert constant_value(x) is None


def test_values_of_partly_known_shapes_have_none_for_what_is_unknown() -> None:
    x = placeholder(dtypes.float32, [None, 3])
    sizes = shape(x)
    assert constant_value_as_shape(sizes) == (None, 3)
    assert constant_value_as_shape(sizes[1:]) == (3,)
    assert constant_value(sizes[1]) == 3
    assert constant_value(sizes[0]) is None
    assert constant_value_as_shape(stack([sizes[0], 4, sizes[1]])) == (None, 4, 3)
    assert constant_value_as_shape(concat([[-1], sizes], 0)) == (None, None, 3)


def test_a_value_given_out_cannot_be_fed() -> None:
    tensor = constant([1, 2])
    assert get_static_value(tensor).tolist() == [1, 2]
    assert not tensor.graph.is_feedable(tensor)


@pytest.mark.parametrize(
    ("dtype", "form", "ending"),
    [
        (dtypes.float32, [None, 2], "with dtype float and shape [?,2]"),
        (dtypes.float64, None, "with dtype double"),
        (dtypes.int32, [3], "with dtype int32 and shape [3]"),
    ],
)
def test_an_unfed_placeholder_is_named_with_its_dtype_and_shape(
    dtype: dtypes.DType, form: list[int | None] | None, ending: str
) -> None:
    x = placeholder(dtype, form, name="unfed")
    with pytest.raises(InvalidArgumentError) as caught:
        evaluate(identity(x))
    assert caught.value.message == f"You must feed a value for placeholder tensor '{x.op.name}' {ending}"


def test_programs_learn_no_results_of_arithmetic() -> None:
    x = placeholder(dtypes.float32, [2, 3])
    assert get_static_value(concat([shape(x), [7]], 0)).tolist() == [2, 3, 7]
    assert get_static_value(constant(1) + 2) is None  # as in TensorFlow
    assert get_static_value(shape(x)[0]) is None
    assert get_static_value(stack([[1], [2]], axis=1)) is None
    assert constant_value(constant(1) + 2) == 3  # shape functions do


def test_a_switch_with_a_known_predicate_hands_its_data_to_the_side_it_takes() -> None:
    dead, alive = switch(constant(2), constant(True))
    assert constant_value(alive + 1) == 3
    assert constant_value(dead) is None
    assert get_static_value(alive) is None
    unknown, _ = switch(constant(2), placeholder(dtypes.bool, []))
    assert constant_value(unknown) is None


@pytest.mark.parametrize("value", [3, 2.5, "a", [1], None])
def test_what_is_no_tensor_is_its_own_value(value: object) -> None:
    assert get_static_value(value) is value
    assert get_static_value(tf.Variable(1.0)) is None


def test_a_program_may_change_the_value_it_got() -> None:
    x = constant([1, 2])
    value = get_static_value(x)
    value += 1
    assert (value.tolist(), get_static_value(x).tolist()) == ([2, 3], [1, 2])
