"""Functions as public code of TensorFlow 1.14 and 1.15 has them, for AutoGraph, with the values to call them with.

`$TFMINI_ORACLE_1X tests/compat/autograph_functions.py` prints what TensorFlow 1.15.5 answers, for `test_autograph.py`.
"""

from __future__ import annotations

import collections
import functools
import importlib
import sys
from typing import Any, Callable  # noqa: UP035, as TensorFlow 1.15 runs on Python 3.7

import numpy as np

tf: Any = importlib.import_module("tfmini" if sys.version_info >= (3, 11) else "tensorflow")
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}  # name -> function, the arguments of each call


def case(*calls: Any) -> Callable[[Any], Any]:
    """Declares a case; each call is a tuple of arguments, or one argument."""

    def declare(function: Any) -> Any:
        CASES[function.__name__] = function, calls
        return function

    return declare


def answers(name: str) -> list[Any]:
    """What each call of a case gives, from a graph of its own, as nested lists; or the error's class."""
    function, calls = CASES[name]
    found = []
    for arguments in calls:
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        with tf.Graph().as_default(), tf.variable_scope("", use_resource=True):
            try:
                called = tf.function(function)(*map(_tensor, arguments))
                initializer = tf.global_variables_initializer()
                with tf.Session() as session:
                    session.run(initializer)
                    found.append(_plain(session.run(called)))
            except Exception as error:
                found.append(_class_of(error))
    return found


def _tensor(argument: Any) -> Any:
    """Numbers, lists and arrays become tensors; a text becomes a variable that has its number."""
    if isinstance(argument, str):
        return tf.get_variable("v", initializer=tf.constant(float(argument)))
    is_value = isinstance(argument, (int, float, list, np.ndarray)) and not isinstance(argument, bool)
    return tf.constant(argument) if is_value else argument


def _class_of(error: BaseException) -> str:
    public = [c.__name__ for c in type(error).__mro__ if c.__module__ in ("builtins",) or c.__name__.endswith("Error")]
    return public[0]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode()
    return [round(float(v), 4) for v in value] if getattr(value, "shape", ()) else round(float(value), 4)


# ---- if ----


@case(3.0, -3.0)
def if_else(x):
    if x > 0:
        y = x * 2
    else:
        y = x - 1
    return y


@case(3.0, -3.0)
def if_alone(x):
    if x < 0:
        x = -x
    return x


@case(3, 4, 6)
def early_return(x):
    if x > 5:
        return x
    if x > 3:
        return x * 10
    return -x


@case(-5, 0, 5, 50)
def elif_chain(x):
    if x < 0:
        name = "negative"
    elif tf.equal(x, 0):
        name = "zero"
    elif x < 10:
        name = "small"
    else:
        name = "large"
    return name


@case((1, 1), (1, -1), (-1, 1), (-1, -1))
def nested_if(a, b):
    y = 0
    if a > 0:
        if b > 0:
            y = 1
            z = a + b
        else:
            z = a - b
    else:
        z = b * 7
        y += 5
    return y, z


@case((2.0, True), (2.0, False))
def python_condition(x, training):
    if training:
        x = tf.nn.relu(x - 3)
    if not training and x > 1:
        x = x * 100
    return x


@case(1.0, -1.0)
def none_stays(x):
    mask = None
    if mask is not None:
        x = x * mask
    if x > 0:
        x = x + 1
    return x


@case(1.0, -1.0)
def structures(x):
    pair, table = (x, x), {"a": x}
    if x > 0:
        pair, table = (x + 1, x + 2), {"a": x * 3}
    return pair, table


@case(1.0)
def undefined_in_a_branch(x):
    if x > 0:
        y = x
    return y  # noqa: F821


@case(1.0)
def return_in_one_branch(x):
    if x > 0:
        return x


@case(1.0)
def other_types(x):
    if x > 0:
        y = 1
    else:
        y = 1.5
    return y


@case(1.0, 20.0)
def ternary(x):
    return x * 2 if x > 10 else tf.sqrt(x) + 3


@case((2, 3), (2, 30), (20, 3), (20, 30))
def logic(a, b):
    both, either, neither = a > 10 and b > 10, a > 10 or b > 10, not (a > 10 or b > 10)
    return tf.cast([both, either, neither], tf.int32)


@case(0, 1)
def lazy_logic(x):
    return x > 0 and tf.equal(6 // tf.maximum(x, 1), 6)


# ---- while ----


@case(10.0, 0.5)
def while_(n):
    t = 1.0
    while t < n:
        t = t * 2
    return t


@case((10, 3), (1, 7))
def collatz_like(n, limit):
    steps = 0
    while tf.not_equal(n, 1) and steps < limit:
        if tf.equal(n % 2, 0):
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return n, steps


@case(100)
def while_break(n):
    i = 0
    while i < n:
        i += 1
        if i * i > 30:
            break
    return i


@case(100)
def while_true_of_tensor(n):
    i = tf.constant(0)
    while tf.constant(True):
        i += 3
        if i > n:
            break
    return i


@case(4)
def nested_while(n):
    i, total = 0, 0
    while i < n:
        j = 0
        while j < i:
            if tf.equal(j, 2):
                j += 2
                continue
            total += i * j + 1
            j += 1
        i += 1
    return total


@case(3.0)
def python_while(x):
    i = 0
    while i < 4:
        x = x + i
        i += 1
    return x


@case(5)
def loop_changes_type(n):
    x = 0
    while n > 0:
        x = x + 0.5
        n -= 1
    return x


@case(5)
def undefined_before_loop(n):
    while n > 0:
        last = n
        n -= 1
    return last  # noqa: F821


# ---- for ----


@case(10, 0)
def for_range(n):
    t = 0
    for i in tf.range(n):
        if tf.equal(i, 3):
            continue
        if i > 6:
            break
        t += i
    return t


@case((2, 11, 3), (11, 2, -3))
def for_range_of_three(a, b, c):
    t = 0
    for i in tf.range(a, b, c):
        t = t * 10 + i
    return t


@case(5)
def for_builtin_range(n):
    t = 0
    for i in range(n):
        t += i
    return t


@case([1.0, 2.0, 5.0, 7.0])
def for_tensor(xs):
    total = 0.0
    for x in xs:
        if x > 1:
            total += x
    return total


@case(np.arange(6.0).reshape(3, 2))
def for_rows(rows):
    total = tf.zeros([2], tf.float64)
    for row in rows:
        total = total * 2 + row
    return total


@case(3.0)
def for_list(x):
    for f in [tf.square, lambda v: v + 1, tf.negative]:
        x = f(x)
    return x


@case(4)
def nested_for(n):
    t = 0
    for i in tf.range(n):
        for j in tf.range(i):
            if j > 1:
                break
            t += i * 10 + j
    return t


@case([3, 1, 4, 1, 5])
def fibonacci_and_unused(xs):
    a, b = 0, 1
    for _ in xs:
        a, b = b, a + b
    return a, b


@case(5)
def tensor_array(n):
    array = tf.TensorArray(tf.int32, size=n)
    for i in tf.range(n):
        array = array.write(i, i * i)
    return array.stack()


@case(3.0)
def python_list(x):
    values = []
    for i in range(3):
        values.append(x * i)
    return tf.stack(values)


@case([[1.0, 2.0], [3.0, 4.0]])
def enumerated(x):
    t = 0.0
    for i, row in enumerate(tf.unstack(x)):
        for j, value in zip(range(2), tf.unstack(row)):
            t += value * (i + 1) * (j + 1)
    return t


# ---- state ----


class _Counter:
    def __init__(self) -> None:
        self.total, self.calls = tf.constant(0), 0

    def add(self, x: Any) -> Any:
        self.calls += 1
        if x > 2:
            self.total = self.total + x
        return self.total


@case(5)
def attributes(n):
    counter = _Counter()
    for i in tf.range(n):
        counter.total += i
    counter.add(n)
    counter.add(tf.constant(1))
    return counter.total, tf.constant(counter.calls)


@case(5)
def items(n):
    state = {"sum": 0, "product": 1}
    i = 1
    while i <= n:
        state["sum"] += i
        state["product"] *= i
        i += 1
    return state["sum"], state["product"]


@case((2.0, "1"), (-2.0, "1"))
def variables(x, v):
    if x > 0:
        v.assign_add(x)
    else:
        v.assign(10.0)
    while v < 20.0:
        v.assign(v * 3)
    return v.read_value()


@case((6, "0"))
def variable_in_for(n, v):
    for i in tf.range(n):
        if tf.equal(i % 2, 0):
            v.assign_add(tf.cast(i, tf.float32))
    return v.read_value()


# ---- functions ----


def _sign(x: Any) -> Any:
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


@case(3.0, 0.0, -3.0)
def calls_another(x):
    return _sign(x) * 10 + _sign(-x)


@case(3.0, -3.0)
def closure(x):
    scale = 4.0

    def inner(v):
        if v > 0:
            return v * scale
        return v

    scale = 5.0
    return inner(x) + (lambda v: v if v > 0 else -v)(x)


@case(3.0, -3.0)
def partial(x):
    def power(base, exponent=1, offset=0.0):
        y = 1.0
        for _ in range(exponent):
            y = y * base
        return y + offset if base > 0 else offset - y

    return functools.partial(power, exponent=3)(x, offset=1.0)


class _Base:
    def scaled(self, x: Any) -> Any:
        if x > 1:
            return x * 2
        return x


class _Derived(_Base):
    factor = 3.0

    def scaled(self, x: Any) -> Any:
        y = super().scaled(x)
        return y if y > 10 else y * self.factor

    def __call__(self, x: Any) -> Any:
        return self.scaled(x) if x > 0 else x


@case(1.0, 4.0, 7.0, -1.0)
def methods(x):
    return _Derived()(x)


@case(4)
def recursion(n):
    def factorial(k):
        return 1 if k <= 1 else k * factorial(k - 1)

    return n + factorial(5)


@case(3.0, -3.0)
def keywords(x):
    def f(*args, **kwargs):
        if args[0] > 0:
            return args[0] + kwargs["by"]
        return kwargs["by"]

    return f(*(x,), **{"by": x * 2})


@case(2.0, 0.5)
def nested_tf_function(x):
    @tf.function
    def inner(v):
        if v > 1:
            return v * 10
        return v

    return inner(x) + 1


@case(2.0)
def do_not_convert(x):
    @tf.autograph.experimental.do_not_convert
    def inner(v):
        return v * 3 if v is not None and isinstance(v, tf.Tensor) else v

    return inner(x)


@case(2.0)
def unconverted_if(x):
    @tf.autograph.experimental.do_not_convert
    def inner(v):
        if v > 1:
            return v
        return -v

    return inner(x)


# ---- functions of Python ----


@case(3.7, -3.7)
def numbers(x):
    return int(x) * 2, float(int(x)), abs(x)


@case(np.zeros([3, 2]))
def length(x):
    return len(x) + len([1, 2]) + len(tf.boolean_mask(x, [True, False, True]))


@case(3)
def ranges(n):
    return range(n), range(1, n), range(n, 1), tf.constant(list(range(2)))


@case(2)
def printed(n):
    print("n is", n, "and", 1.5)
    if n > 1:
        print("more than one:", n)
    return n


Point = collections.namedtuple("Point", "x y")


@case(2.0, -2.0)
def namedtuples(x):
    p = Point(x, x * 2)
    if x > 0:
        p = Point(p.y, p.x)
    return p.x - p.y


@case(5)
def comprehension(n):
    return tf.add_n([n * i for i in range(4) if i != 2])


@case(3)
def try_and_with(n):
    try:
        with tf.name_scope("scope"):
            if n > 2:
                n = n * 2
    finally:
        n = n + 1
    return n


# ---- data ----


def _batch(dataset: Any) -> Any:
    return tf.data.experimental.get_single_element(dataset.batch(100))


@case(0)
def map_and_filter(n):
    def transform(x):
        if x % 2 < 1:
            x = x * 10
        return x

    return _batch(tf.data.Dataset.range(8).map(transform).filter(lambda x: x > 2 and x < 45))


@case(0)
def reduce_(n):
    def largest(best, x):
        if x > best:
            return x
        return best

    return tf.data.Dataset.from_tensor_slices([3, 9, 2]).reduce(0, largest)


@case(0)
def flat_map_and_interleave(n):
    def some(x):
        t = x
        while t < 3:
            t += 1
        return tf.data.Dataset.range(t)

    return _batch(tf.data.Dataset.range(5).flat_map(some)), _batch(tf.data.Dataset.range(2).interleave(some, 2, 1))


@case(5)
def dataset_in_for(n):
    t = tf.constant(0, tf.int64)
    for x in tf.data.Dataset.range(10):
        if x > 6:
            t += x
    return t


@case(5)
def dataset_in_for_with_break(n):
    t = tf.constant(0, tf.int64)
    for x in tf.data.Dataset.range(10).repeat():
        t += x
        if x > 6:
            break
    return t


if __name__ == "__main__":
    tf.get_logger().setLevel("FATAL")
    for each in CASES:
        print(f'    "{each}": {answers(each)},', flush=True)
