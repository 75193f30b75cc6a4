"""AutoGraph; the answers to `autograph_functions` are those of TensorFlow 1.15.5."""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

import pytest

import tfmini as tf
from tests.compat import autograph_functions
from tests.ops.session_run import run

pytest.importorskip("malt")
ANSWERS: dict[str, list[Any]] = {
    "if_else": [6.0, -4.0],
    "if_alone": [3.0, 3.0],
    "early_return": [-3.0, 40.0, 6.0],
    "elif_chain": ["negative", "zero", "small", "large"],
    "nested_if": [[1.0, 2.0], [0.0, 2.0], [5.0, 7.0], [5.0, -7.0]],
    "python_condition": [0.0, 200.0],
    "none_stays": [2.0, -1.0],
    "structures": [[[2.0, 3.0], {"a": 3.0}], [[-1.0, -1.0], {"a": -1.0}]],
    "undefined_in_a_branch": ["ValueError"],
    "return_in_one_branch": ["ValueError"],
    "other_types": ["TypeError"],
    "ternary": [4.0, 40.0],
    "logic": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]],
    "lazy_logic": [0.0, 1.0],
    "while_": [16.0, 1.0],
    "collatz_like": [[8.0, 3.0], [1.0, 0.0]],
    "while_break": [6.0],
    "while_true_of_tensor": [102.0],
    "nested_while": [10.0],
    "python_while": [9.0],
    "loop_changes_type": ["TypeError"],
    "undefined_before_loop": ["ValueError"],
    "for_range": [18.0, 0.0],
    "for_range_of_three": [258.0, 1185.0],
    "for_builtin_range": [10.0],
    "for_tensor": [14.0],
    "for_rows": [[8.0, 15.0]],
    "for_list": [-10.0],
    "nested_for": [112.0],
    "fibonacci_and_unused": [[5.0, 8.0]],
    "tensor_array": [[0.0, 1.0, 4.0, 9.0, 16.0]],
    "python_list": [[0.0, 3.0, 6.0]],
    "enumerated": [27.0],
    "attributes": [[15.0, 2.0]],
    "variables": [27.0, 30.0],
    "variable_in_for": [6.0],
    "calls_another": [9.0, 0.0, -9.0],
    "closure": [18.0, 0.0],
    "partial": [28.0, 28.0],
    "methods": [3.0, 24.0, 14.0, -1.0],
    "recursion": [124.0],
    "keywords": [9.0, -6.0],
    "nested_tf_function": [21.0, 1.5],
    "do_not_convert": [6.0],
    "unconverted_if": [2.0],
    "numbers": [[6.0, 3.0, 3.7], [-6.0, -3.0, 3.7]],
    "length": [7.0],
    "ranges": [[[0.0, 1.0, 2.0], [1.0, 2.0], [], [0.0, 1.0]]],
    "printed": [2.0],
    "namedtuples": [2.0, 2.0],
    "comprehension": [20.0],
    "try_and_with": [7.0],
    "map_and_filter": [[20.0, 3.0, 40.0, 5.0, 7.0]],
    "reduce_": [9.0],
    "flat_map_and_interleave": [[[0.0, 1.0, 2.0] * 4 + [0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]]],
    "dataset_in_for": [24.0],
    "dataset_in_for_with_break": [28.0],
    "items": [[15.0, 120.0]],  # InaccessibleTensorError in 1.15.5
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_function_gives_what_it_gives_in_tensorflow(name: str) -> None:
    assert autograph_functions.answers(name) == ANSWERS[name]


def test_all_functions_have_an_answer() -> None:
    assert list(autograph_functions.CASES) == sorted(ANSWERS, key=list(autograph_functions.CASES).index)


# ---- beyond 1.15 ----


@pytest.mark.parametrize(("n", "expected"), [(10, 5), (2, -1)])
def test_a_loop_may_return(n: int, expected: int) -> None:
    @tf.function
    def first(n: Any) -> Any:
        for i in tf.range(n):
            if i * i > 20:
                return i
        return -1

    assert run(first(tf.constant(n))) == expected


def test_a_loop_that_returned_nothing_is_an_error_of_the_step() -> None:
    @tf.function
    def first(n: Any) -> Any:
        for i in tf.range(n):
            if i > 3:
                return i

    assert run(first(tf.constant(9))) == 4
    with pytest.raises(tf.errors.InvalidArgumentError, match="no return statement was reached"):
        run(first(tf.constant(2)))


def test_a_break_of_a_python_loop_that_a_tensor_decides() -> None:
    @tf.function
    def count(x: Any) -> Any:
        n = 0
        for bound in [1, 2, 3, 4]:
            if x < bound:
                break
            n += 1
        return n

    assert [run(count(tf.constant(x))) for x in (0, 2, 9)] == [0, 2, 4]


def test_an_assertion_is_one_of_the_step() -> None:
    @tf.function
    def positive(x: Any) -> Any:
        assert x > 0, "not positive"
        return x

    assert run(positive(tf.constant(1))) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
        run(positive(tf.constant(-1)))


def test_features_convert_prints_comparisons_and_lists(capfd: Any) -> None:
    @tf.function(experimental_autograph_options=tf.autograph.experimental.Feature.ALL)
    def call(x: Any) -> Any:
        print("x is", x, sep=": ")
        if x == 2:
            x = x + 1
        return 1 < x < 4, x != 3

    assert run(call(tf.constant(2))) == (True, False)
    assert capfd.readouterr().out == "x is: 2\n"


def test_gradients_pass_through_conds_and_loops() -> None:
    @tf.function
    def power(x: Any, n: Any) -> Any:
        y = 1.0
        for _ in tf.range(n):
            if x > 0:
                y = y * x
        return y

    x = tf.constant(3.0)
    assert run(tf.gradients(power(x, tf.constant(4)), x)) == [108.0]


# ---- errors ----


def _line(error: BaseException, text: str) -> bool:
    """Whether a frame of the traceback is the line of this file that has the text."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename == __file__ and text in (frame.line or "") for frame in frames)


def test_errors_name_the_symbol_and_have_the_line_of_the_program() -> None:
    @tf.function
    def branch(x: Any) -> Any:
        if x > 0:
            y = x
        return y

    @tf.function
    def rounds(x: Any) -> Any:
        while x < 3:  # rounds
            x = tf.concat([[x], [x]], 0)
        return x

    @tf.function
    def inner(x: Any) -> Any:
        if x > 0:
            x = tf.matmul([[1.0]], [1.0, 2.0])
        return x

    with pytest.raises(ValueError, match="'y' must also be given a value in the FALSE branch") as caught:
        branch(tf.constant(1))
    assert _line(caught.value, "if x > 0")
    with pytest.raises(ValueError, match="'x' has shape .* before the loop, but .2.* after one iteration") as caught:
        rounds(tf.constant(1))
    assert _line(caught.value, "# rounds")
    with pytest.raises(ValueError, match="MatMul") as caught:
        inner(tf.constant(1))
    assert _line(caught.value, "tf.matmul")


def test_an_op_has_the_line_of_the_program() -> None:
    @tf.function
    def call(x: Any) -> Any:
        if x > 0:
            x = tf.check_numerics(1.0 / (x - x), "nothing")  # the op
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="nothing") as caught:
        run(call(tf.constant(1.0)))
    assert "test_autograph.py" in str(caught.value)


def test_without_the_package_functions_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "malt":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert run(tf.function(lambda x: abs(x) + 1)(tf.constant(-1))) == 2
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError, match=r"tfmini-cluster\[autograph\]"):
        tf.function(lambda x: 1 if x > 0 else 2)(tf.constant(1))
    with pytest.raises(ImportError, match=r"tfmini-cluster\[autograph\]"):
        tf.autograph.to_graph(lambda x: x)


def test_what_has_no_source_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    made: dict[str, Any] = {}
    exec(compile("def f(x):\n  return abs(x)", "<nowhere>", "exec"), made)
    assert [run(tf.function(made["f"])(tf.constant(-2))) for _ in range(2)] == [2, 2]
    assert caplog.text.count("could not convert") == 1


# ---- what converts ----


def _clipped(x: Any) -> Any:
    if x > 1:
        return 1
    return x


def test_to_graph_and_to_code() -> None:
    @tf.autograph.to_graph
    def outer(x: Any) -> Any:
        return _clipped(x) * 10

    assert run([outer(tf.constant(5)), outer(tf.constant(-5))]) == [10, -50]
    assert tf.contrib.autograph.to_graph(_clipped)(7) == 1
    assert "def tf___clipped(x" in tf.autograph.to_code(_clipped) and "ag__.if_stmt" in tf.autograph.to_code(_clipped)
    with pytest.raises(ValueError, match="no Python function"):
        tf.autograph.to_graph(abs)
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.autograph.to_graph(lambda x: _clipped(x), recursive=False)(tf.constant(1))
    assert run(tf.contrib.autograph.convert(recursive=True)(lambda x: _clipped(x))(tf.constant(3))) == 1


def test_what_is_not_to_be_converted() -> None:
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(_clipped, autograph=False)(tf.constant(1))
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(tf.autograph.experimental.do_not_convert(_clipped))(tf.constant(1))
    left = tf.autograph.experimental.do_not_convert(lambda x: tf.data.Dataset.from_tensors(x).map(_clipped))
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        left(1)


def test_a_function_is_converted_once() -> None:
    first, second = tf.autograph.to_graph(_clipped), tf.autograph.to_graph(_clipped)
    assert first.__code__ is second.__code__ and first.__globals__ is _clipped.__globals__
    assert first.__code__.co_filename == __file__ and first.__code__.co_firstlineno == _clipped.__code__.co_firstlineno


def test_a_method_is_converted_for_each_instance() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return x * self.by if x > 0 else x

    assert [run(Scale(by)(x)) for by, x in ((2.0, 3.0), (5.0, 3.0), (5.0, -3.0))] == [6, 15, -3]


def test_groups_and_windows_of_datasets() -> None:
    def key(x: Any) -> Any:
        if x > 2:
            return tf.constant(1, tf.int64)
        return tf.constant(0, tf.int64)

    grouped = tf.data.Dataset.range(5).apply(tf.data.experimental.group_by_window(key, lambda _, w: w.batch(5), 5))
    next_ = grouped.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [[*session.run(next_)] for _ in range(2)] == [[0, 1, 2], [3, 4]]


def test_nothing_is_imported_before_a_function_needs_it() -> None:
    import subprocess

    code = "import sys, tfmini as tf; tf.data.Dataset.range(3).map(lambda x: x * 2); print('malt' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "False\n"
