import gc

import numpy as np
import pytest

import tfmini.graph.building  # noqa: F401 - makes op handles callable
from tests.ops.evaluate import evaluate
from tfmini import dtypes, errors
from tfmini.graph.graph import Graph
from tfmini.ops.constant import constant
from tfmini.ops.script import functions, numpy_function, py_func


@pytest.fixture(autouse=True)
def graph():
    with Graph().as_default() as g:
        yield g


def raising(error):
    def f(*_):
        raise error

    return f


def test_results_by_form_of_tout():
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
def test_exceptions_become_statuses(error, cls):
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
def test_wrong_results(function, tout, message):
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
def test_values_that_no_tensor_holds(value, message):
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
