import numpy as np
import pytest

from tests.ops.evaluate import evaluate
from tfmini import dtypes, errors
from tfmini.graph.graph import Graph
from tfmini.ops import checks
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import placeholder
from tfmini.ops.math.reductions import reduce_sum
from tfmini.runtime.client.session import Session


@pytest.fixture(autouse=True)
def graph():
    with Graph().as_default() as g:
        yield g


@pytest.mark.parametrize(
    ("build", "cls", "message"),
    [
        (
            lambda: checks.assert_equal(1, 2),
            errors.InvalidArgumentError,
            "Condition x == y did not hold element-wise:\nx (assert_equal/x:0) = \n1\ny (assert_equal/y:0) = \n2",
        ),
        (
            lambda: checks.assert_less([1, 3], [2, 2], message="hey"),
            errors.InvalidArgumentError,
            "hey\nCondition x < y did not hold element-wise:\n"
            + "x (assert_less/x:0) = \n[1 3]\ny (assert_less/y:0) = \n[2 2]",
        ),
        (
            lambda: checks.assert_positive(-1.0),
            errors.InvalidArgumentError,
            "\nCondition x > 0 did not hold element-wise:\nx (assert_positive/x:0) = \n-1.0",
        ),
        (
            lambda: checks.assert_rank(y(), 3, message="mm"),
            ValueError,
            "mm.  Tensor y:0 must have rank 3.  Received rank 2, shape (2, 2)",
        ),
        (
            lambda: checks.assert_rank_in(y(), [0, 1]),
            ValueError,
            "Tensor y:0 must have rank in (0, 1).  Received rank 2, shape (2, 2)",
        ),
        (
            lambda: checks.assert_rank_at_least(y(), 3),
            ValueError,
            "Tensor y:0 must have rank at least 3.  Received rank 2, shape (2, 2)",
        ),
        (lambda: checks.assert_rank(y(), [1]), ValueError, "Rank must be a scalar."),
        (
            lambda: checks.assert_type(y(), dtypes.int32, message="m"),
            TypeError,
            "m.  y:0 must be of type tf.int32; got tf.float32",
        ),
        (
            lambda: checks.assert_scalar(y()),
            ValueError,
            "Expected scalar shape for y:0, saw shape: (2, 2).",
        ),
        (
            lambda: checks.assert_integer(y()),
            TypeError,
            "Expected \"x\" to be integer type.  Found: y:0 of dtype <dtype: 'float32'>",
        ),
        (
            lambda: checks.assert_proper_iterable("s"),
            TypeError,
            'Expected argument "values" to be a "proper" iterable.  Found: <class \'str\'>',
        ),
        (
            lambda: checks.assert_same_float_dtype([y(), constant(1.0, dtypes.float64)]),
            ValueError,
            "Const:0, type=<dtype: 'float64'>, must be of the same type (<dtype: 'float32'>) as y:0.",
        ),
        (
            lambda: checks.assert_same_float_dtype([constant(1)]),
            ValueError,
            "Expected floating point type, got <dtype: 'int32'>.",
        ),
    ],
)
def test_failures_that_are_known_statically_have_tensorflows_text(build, cls, message):
    with pytest.raises(cls) as info:
        build()
    assert str(info.value) == message


def y():
    return placeholder(dtypes.float32, [2, 2], name="y")


CASES = {
    "assert_equal": ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]),
    "assert_none_equal": ([1.0, 2.0], [2.0, 1.0], [1.0, 3.0]),
    "assert_less": ([1.0, 2.0], [2.0, 3.0], [2.0, 2.0]),
    "assert_less_equal": ([1.0, 2.0], [1.0, 2.0], [0.0, 2.0]),
    "assert_greater": ([1.0, 2.0], [0.0, 1.0], [1.0, 1.0]),
    "assert_greater_equal": ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]),
    "assert_near": ([1.0, 2.0], [1.0, 2.0], [1.0, 2.1]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [None, [2]])
def test_comparisons_fail_in_the_step_where_they_do_not_hold(name, shape):
    value, good, bad = CASES[name]
    x = placeholder(dtypes.float32, shape, name="x")
    other = placeholder(dtypes.float32, shape, name="other")
    check = getattr(checks, name)(x, other)
    # Floats may be far away and large: they are asked for only when the check fails.
    assert check.type == "Merge" and check.name == f"{name}/Assert/AssertGuard/Merge"
    with Session() as session:
        session.run(check, {x: value, other: good})
        with pytest.raises(errors.InvalidArgumentError, match=r"^assertion failed: \["):
            session.run(check, {x: value, other: bad})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("positive", 1, 0), ("negative", -1, 0), ("non_negative", 0, -1), ("non_positive", 0, 1)],
)
def test_sign_checks_fail_in_the_step_where_they_do_not_hold(name, good, bad):
    x = placeholder(dtypes.int32, [1], name="x")
    check = getattr(checks, f"assert_{name}")(x)
    evaluate(check, {x: np.int32([good])})
    with pytest.raises(errors.InvalidArgumentError, match="did not hold element-wise"):
        evaluate(check, {x: np.int32([bad])})


def test_rank_checks_fail_in_the_step_where_they_do_not_hold():
    x = placeholder(dtypes.float32, name="x")
    exact, least, among = (
        checks.assert_rank(x, 1),
        checks.assert_rank_at_least(x, 1),
        checks.assert_rank_in(x, [0, 2]),
    )
    vector = {x: np.zeros(3, np.float32)}
    evaluate([exact, least], vector)
    with pytest.raises(errors.InvalidArgumentError, match="Tensor x:0 must have rank in"):
        evaluate(among, vector)
    with pytest.raises(errors.InvalidArgumentError, match="Tensor x:0 must have rank at least"):
        evaluate(least, {x: np.float32(1)})


def test_a_check_that_holds_statically_is_a_no_op():
    assert checks.assert_rank(y(), 2).type == "NoOp"
    assert checks.assert_type(y(), dtypes.float32).type == "NoOp"
    assert checks.assert_integer(constant(1)).type == "NoOp"
    assert checks.is_numeric_tensor(y())
    assert not checks.is_numeric_tensor(constant("s"))
    assert not checks.is_numeric_tensor(1)


def test_a_check_of_what_tensorflow_does_not_know_fails_in_the_step():
    total = reduce_sum(constant([[4, 0], [0, 0]]), 1)
    check = checks.assert_positive(total)
    with Session() as session, pytest.raises(errors.InvalidArgumentError, match="Condition x > 0 did not hold"):
        session.run(check)
