import sys

import numpy as np
import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate
from tfmini import errors
from tfmini.graph.graph import Graph
from tfmini.numerics.texts import edges_text, summary
from tfmini.ops.array.constant import constant
from tfmini.ops.debugging import Assert, Print, print_v2, string_format

M = np.arange(6).reshape(2, 3)


@pytest.fixture(autouse=True)
def _graph():
    with Graph().as_default():
        yield


# Expected texts are TensorFlow's.
@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        (M, 3, "[0 1 2]..."),
        (M, 10, "[0 1 2][3 4 5]"),
        (M, -1, "[0 1 2][3 4 5]"),
        (np.zeros((0, 3)), 3, ""),
        (M.reshape(1, 2, 3), 4, "[[0 1 2][3...]]..."),
        (M.reshape(3, 1, 2), 2, "[[0 1]]..."),
        (
            np.float32([1 / 3, 1e-9, 1e20, 2, np.nan, np.inf, 123456789]),
            20,
            "0.333333343 1e-09 1e+20 2 nan inf 123456792",
        ),
        (np.float64(1 / 3), 3, "0.33333333333333331"),
        (np.array([True, False]), 3, "1 0"),
        (np.array([b"a", b"b c", b'q"'], object), 3, 'a b c q\\"'),
        (np.float16(0.1), 3, "0.0999755859"),
    ],
)
def test_long_arrays_are_shortened(value, limit, text):
    assert summary(value, limit) == text


def test_edges_text_shows_both_ends_of_each_dimension():
    text = edges_text(np.arange(24).reshape(2, 3, 4), 1)
    assert text == "[[[0 ... 3]\n  ...\n  [8 ... 11]]\n\n [[12 ... 15]\n  ...\n  [20 ... 23]]]"
    assert edges_text(np.arange(10), -1) == "[0 1 2 3 4 5 6 7 8 9]"
    assert edges_text(np.array([b"a", b"b"], object), 3) == '["a" "b"]'


def test_print_writes_to_stderr_and_passes_its_input_on(capsys):
    out = Print([1.0, 2.0], [[1, 2, 3, 4], "ab", 1.5], message="hi ", first_n=1)
    assert evaluate(out).tolist() == [1.0, 2.0]
    evaluate(out)
    assert capsys.readouterr().err == "hi [1 2 3...][ab][1.5]\n"


def test_assert_names_its_data():
    evaluate(Assert(True, ["x"]))
    with pytest.raises(errors.InvalidArgumentError) as info:
        evaluate(Assert(False, [[1, 2, 3, 4], "x"]))
    assert info.value.message == "assertion failed: [1 2 3...] [x]"
    assert Assert(False, ["x"]).name == "Assert_2/Assert"
    with pytest.raises(TypeError, match="values must be a sequence."):
        Assert(True, 3)


def test_tf_print_keeps_the_structure(capsys):
    evaluate(print_v2("a", constant(M), 1.5, [constant(2), "x"], {"k": constant("s")}, summarize=2))
    evaluate(print_v2(constant("x"), output_stream=sys.stdout))
    captured = capsys.readouterr()
    assert captured.err == "a [[0 1 2]\n [3 4 5]] 1.5 [2, 'x'] {'k': \"s\"}\n"
    assert captured.out == "x\n"


def test_tf_print_leaves_braces_in_the_users_text_alone(capsys):
    evaluate(print_v2("{}", constant(1)))
    assert capsys.readouterr().err == "{} 1\n"


def test_tf_print_refuses_unknown_arguments():
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        print_v2("a", colour="red")
    with pytest.raises(ValueError, match="Unsupported output stream"):
        print_v2("a", output_stream=object())


def test_string_format_fills_placeholders_in_order():
    out = string_format("x {} y {}", [constant(M), constant(["a"])])
    assert evaluate(out) == b'x [[0 1 2]\n [3 4 5]] y ["a"]'
    with pytest.raises(ValueError, match="placeholder"):
        string_format("{} {}", [constant(1)])


def test_tf_print_shows_the_parts_of_a_sparse_tensor(capsys):
    sparse = tf.SparseTensor([[0, 1]], [7], [1, 2])
    evaluate([print_v2(sparse), print_v2([sparse])])
    text = "'SparseTensor(indices=[[0 1]], values=[7], shape=[1 2])'"
    assert sorted(capsys.readouterr().err.splitlines()) == sorted([text, f"[{text}]"])
