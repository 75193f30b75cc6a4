import gc
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate
from tests.ops.session_run import run
from tfmini import dtypes, errors
from tfmini.graph.graph import Graph
from tfmini.ops.array.constant import constant
from tfmini.ops.py_func import functions, numpy_function, py_func


@pytest.fixture(autouse=True)
def graph():
    with Graph().as_default() as g:
        yield g


def raising(error):
    def f(*_):
        raise error

    return f


def test_the_result_has_the_structure_of_tout():
    assert evaluate(py_func(lambda x: x + 1, [1.0], dtypes.float32)) == 2.0
    assert evaluate(py_func(lambda x: (x, x), [1.0], [dtypes.float32] * 2)) == [1.0, 1.0]
    assert evaluate(py_func(lambda: "abc", [], dtypes.string)) == b"abc"
    op = py_func(lambda: None, [], [])
    assert op.type == "PyFunc" and evaluate(op) is None
    assert numpy_function(lambda x: x, [1], dtypes.int32).op.type == "PyFunc"
    assert py_func(lambda x: x, [1], dtypes.int32, stateful=False).op.type == "PyFuncStateless"


def test_the_function_gets_its_own_copies_and_scalars():
    seen = []

    def f(array, scalar, text):
        array[0] = 9
        seen.extend([type(scalar), text])
        return array

    source = constant([1, 2])
    out = py_func(f, [source, 3, "s"], dtypes.int32)
    assert evaluate([out, source])[1].tolist() == [1, 2]
    assert seen == [np.int32, b"s"]


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        (ValueError("v"), errors.InvalidArgumentError),
        (TypeError("t"), errors.InvalidArgumentError),
        (StopIteration("x"), errors.OutOfRangeError),
        (MemoryError("m"), errors.ResourceExhaustedError),
        (NotImplementedError("n"), errors.UnimplementedError),
        (RuntimeError("r"), errors.UnknownError),
    ],
)
def test_exceptions_become_errors_with_tensorflows_codes(error, cls):
    with pytest.raises(cls) as info:
        evaluate(py_func(raising(error), [1.0], dtypes.float32))
    assert info.value.message.startswith(f"{type(error).__name__}: {error}\nTraceback")


@pytest.mark.parametrize(
    ("function", "tout", "message"),
    [
        (lambda x: x, dtypes.int32, "0-th value returned by {} is float, but expects int32"),
        (lambda x: (x, x), dtypes.float32, "{} returns 2 values, but expects to see 1 values."),
        (lambda x: 2, dtypes.float32, "0-th value returned by {} is int64, but expects float"),
        (lambda x: None, dtypes.float32, "{} returns 0 values, but expects to see 1 values."),
    ],
)
def test_results_that_do_not_fit_tout_are_refused(function, tout, message):
    out = py_func(function, [1.0], tout)
    with pytest.raises(errors.InvalidArgumentError) as info:
        evaluate(out)
    assert info.value.message == message.format(out.op.attrs["token"].decode())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"foo": 1}, "Unsupported object type dict"),
        (np.zeros(0, [("foo", np.float32)]), "Unsupported numpy data type"),
    ],
)
def test_values_that_no_tensor_can_hold_are_refused(value, message):
    with pytest.raises(errors.InternalError, match=message):
        evaluate(py_func(lambda: value, [], dtypes.float32))


def test_functions_live_as_long_as_their_graph():
    own = Graph()
    with own.as_default():
        out = py_func(lambda: 1.0, [], dtypes.float64)
    token = out.op.attrs["token"].decode()
    gc.collect()
    assert functions.find(token) is not None
    del own, out
    gc.collect()
    assert functions.find(token) is None


def test_py_func_without_outputs_is_its_own_operation() -> None:
    seen: list[Any] = []
    first = tf.py_func(seen.append, [tf.constant(1.0)], [])
    tf.constant(2.0)
    assert first.type == "PyFunc"
    run(first)
    assert seen == [1.0]


def test_a_stateless_function_without_inputs_is_called_once() -> None:
    numbers = iter(range(3))
    x = tf.py_func(lambda: next(numbers), [], tf.int64, stateful=False)
    with tf.Session() as session:
        assert [int(session.run(x)) for _ in range(3)] == [0, 0, 0]
    assert tf.py_func(lambda y: None, [1], [], stateful=False) == []


def test_another_process_does_not_find_the_function():
    """Two workers that run the same script must not call each other's functions under one token."""
    program = """
        import sys
        from tfmini.graph.graph import Graph
        from tfmini.ops.py_func import functions
        graph = Graph()
        tokens = [functions.insert(print, graph) for _ in range(3)]
        print(functions.find(sys.argv[1]), *tokens)
    """
    own = Graph()
    tokens = [functions.insert(print, own) for _ in range(3)]
    command = [sys.executable, "-c", textwrap.dedent(program), tokens[0]]
    found, *theirs = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout.split()
    assert found == "None" and not set(theirs) & set(tokens)


def test_a_forked_child_makes_tokens_of_its_own():
    own = Graph()
    first = functions.insert(print, own)
    process = first.partition("@")[2]
    functions.renew_process()  # what a fork calls in the child
    assert functions.insert(print, own).partition("@")[2] != process
    assert functions.find(first) is print  # the child has the parent's graphs, too
