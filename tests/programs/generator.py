"""Random programs with conditionals, loops, tensor arrays and variables of both kinds.

The same seed gives the same program in tfmini's namespace and in TensorFlow's: this module imports neither. Values
stay small, so that results can be compared. What a program changes while it computes is only added to, in exact steps,
and read in a later step, so that its order does not matter; what has an order is chained by a loop variable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Dict, List  # noqa: UP035

import numpy as np

Env = Dict[str, List[Any]]  # noqa: UP006 - TensorFlow 1.15 has Python 3.7
"""The values that an expression may use, by kind: ``f`` a float, ``v`` three floats, ``i`` an integer."""

_FEEDS = [(0.5, [0.1, -0.7, 1.3]), (-1.1, [0.9, 0.4, -0.2])]


class Program:
    """One program, built in the default graph.

    Args:
      tf: the namespace.
      seed: decides everything but the devices.
      devices: device strings of which each op gets one, or none.

    Attributes:
      fetches: the results and the gradients.
      train: an op that updates the weights by the gradients.
      variables: all variables.
    """

    def __init__(self, tf: Any, seed: int, devices: Sequence[str] = ()) -> None:
        self.tf = tf
        self.random = random.Random(seed)
        self.devices = [*devices, None] if devices else []
        self._places = random.Random(f"places of {seed}")
        self.x, self.y = tf.placeholder(tf.float32, [], name="x"), tf.placeholder(tf.float32, [3], name="y")
        self.weights = [self._variable("wf", 0.3, ref) for ref in (False, True)]
        self.vectors = [self._variable("wv", [0.2, -0.4, 0.6], ref) for ref in (False, True)]
        self.counts = [self._variable("count", 0.0, ref) for ref in (False, True)]
        self.state = self._variable("state", 1.0, self.random.random() < 0.5)
        env: Env = {"f": [self.x], "v": [self.y], "i": [tf.constant(2)]}
        results = [self._float(env, self.random.randint(4, 16)) for _ in range(self.random.randint(1, 2))]
        results.append(tf.reduce_sum(self._vector(env, self.random.randint(3, 10))))
        if self.random.random() < 0.3:
            results.append(self._ordered(results[0]))
        self._differentiate(results)

    def outcome(self, session: Any) -> list[list[float]]:
        """The numbers that it computes and leaves, run after run."""
        tf, found = self.tf, []
        session.run(tf.variables_initializer(self.variables))
        feeds = [{self.x: x, self.y: y} for x, y in _FEEDS]
        found.append(session.run(self.fetches, feeds[0]))
        session.run(self.train, feeds[1])
        found.append(session.run(self.variables))
        found.append(session.run(self.results, feeds[1]))
        found.append(session.run(self.variables))
        return [[float(number) for value in values for number in np.ravel(value)] for values in found]

    @property
    def variables(self) -> list[Any]:
        return [*self.weights, *self.vectors, *self.counts, self.state]

    def _variable(self, name: str, value: Any, is_resource: bool) -> Any:
        trainable = name in ("wf", "wv")
        with self._somewhere():
            return self.tf.get_variable(
                f"{name}_{'resource' if is_resource else 'ref'}", initializer=self.tf.constant(value),
                use_resource=is_resource, trainable=trainable,
            )  # fmt: skip

    def _differentiate(self, results: list[Any]) -> None:
        tf = self.tf
        sources = [self.x, self.y, *self.weights, *self.vectors]
        colocate = self.random.random() < 0.5
        # A device around gradients that are colocated with their ops is often refused.
        with nullcontext() if colocate else self._somewhere():
            grads = tf.gradients(tf.add_n(results), sources, colocate_gradients_with_ops=colocate)
            dense = [None if g is None else tf.convert_to_tensor(g) for g in grads]
        found = [(g, v) for g, v in zip(grads[2:], sources[2:]) if g is not None]
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        with self._somewhere():
            # All gradients first: an update may come before another gradient reads the variable.
            pairs = list(zip(tf.tuple([g for g, _ in found]), [v for _, v in found])) if found else []
            self.train = optimizer.apply_gradients(pairs) if pairs else tf.group(*results)
        self.results = results
        self.fetches = [*results, *(g for g in dense if g is not None)]

    # ---- where and how --------------------------------------------------------------------------

    def _somewhere(self) -> Any:
        if not self.devices:
            return nullcontext()
        device = self._places.choice(self.devices)
        return nullcontext() if device is None else self.tf.device(device)

    def _function(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """``make`` with random numbers of its own, since it is not sure when it is called."""
        seed = self.random.getrandbits(32)

        def function(*arguments: Any) -> Any:
            with self._seeded(seed):
                return make(*arguments)

        return function

    @contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        before, self.random = self.random, random.Random(seed)
        try:
            yield
        finally:
            self.random = before

    def _one_of(self, *makers: tuple[float, Callable[[], Any]]) -> Any:
        weights = [weight for weight, _ in makers]
        [(_, make)] = self.random.choices(makers, weights)
        return make()

    # ---- expressions ----------------------------------------------------------------------------

    def _float(self, env: Env, size: int) -> Any:
        tf = self.tf
        if size <= 1:
            return self._one_of(
                (4, lambda: self._pick(env, "f")),
                (1, lambda: self._constant(self._number())),
                (1, lambda: self._read(self.weights)),
            )
        half = size // 2
        with self._somewhere():
            return self._one_of(
                (2, lambda: self.random.choice([tf.sin, tf.tanh, tf.negative, tf.sigmoid])(self._float(env, size - 1))),
                (3, lambda: self._combined(self._float(env, half), self._float(env, size - half))),
                (1, lambda: tf.reduce_mean(self._vector(env, size - 1))),
                (1, lambda: self._vector(env, size - 1)[self._index(env)]),
                (1, lambda: tf.reduce_sum(self._vector(env, size - 1)[: self._index(env) + 1]) * 0.4),
                (1, lambda: self._effect(self._float(env, size - 1))),
                (0.3, lambda: tf.stop_gradient(self._float(env, size - 1))),
                (0.5, lambda: tf.where(self._bool(env, 2), self._float(env, half), self._float(env, half))),
                (3, lambda: self._cond("f", env, size)),
                (3, lambda: self._loop(env, size)[0]),
                (1, lambda: self._array_sum(env, size)),
                (0.5, lambda: self._chosen(env, size)),
                (0.5, lambda: self._higher_order(env, size)),
            )

    def _vector(self, env: Env, size: int) -> Any:
        tf = self.tf
        if size <= 1:
            return self._one_of((4, lambda: self._pick(env, "v")), (1, lambda: self._read(self.vectors)))
        half = size // 2
        with self._somewhere():
            return self._one_of(
                (2, lambda: self.random.choice([tf.sin, tf.tanh, tf.sigmoid])(self._vector(env, size - 1))),
                (2, lambda: self._combined(self._vector(env, half), self._vector(env, size - half))),
                (2, lambda: self._combined(self._vector(env, half), self._float(env, size - half))),
                (1, lambda: tf.gather(self._vector(env, size - 1), self.random.choice([[2, 0, 1], [1, 1, 0]]))),
                (1, lambda: tf.stack([self._float(env, half), self._float(env, half), self._number()])),
                (1, lambda: self._effect(self._vector(env, size - 1))),
                (2, lambda: self._cond("v", env, size)),
                (2, lambda: self._loop(env, size)[1]),
                (1, lambda: self._array_vector(env, size)),
            )

    def _integer(self, env: Env) -> Any:
        tf = self.tf
        with self._somewhere():
            return self._one_of(
                (3, lambda: self._pick(env, "i")),
                (1, lambda: tf.constant(self.random.randint(0, 3))),
                (1, lambda: self._pick(env, "i") * 2 + 1),
                (1, lambda: tf.cast(tf.floor(self._float(env, 1) * 3.0), tf.int32)),
            )

    def _bool(self, env: Env, size: int) -> Any:
        tf = self.tf
        with self._somewhere():
            return self._one_of(
                (3, lambda: self._float(env, size) > self._number()),
                (1, lambda: self._integer(env) < self.random.randint(0, 4)),
                (1, lambda: tf.equal(self._integer(env) % 2, 0)),
                (0.5, lambda: tf.logical_and(self._float(env, 1) > self._number(), self._integer(env) < 3)),
                (0.3, lambda: tf.constant(self.random.random() < 0.5)),
            )

    def _index(self, env: Env) -> Any:
        return self._integer(env) % 3

    def _combined(self, a: Any, b: Any) -> Any:
        tf = self.tf
        return self._one_of(
            (2, lambda: a + b), (1, lambda: a - b), (2, lambda: tf.tanh(a) * b), (1, lambda: tf.maximum(a, b))
        )

    def _pick(self, env: Env, kind: str) -> Any:
        return self.random.choice(env[kind])

    def _number(self) -> float:
        return round(self.random.uniform(-1.0, 1.0), 3)

    def _constant(self, value: float) -> Any:
        with self._somewhere():
            return self.tf.constant(value)

    def _read(self, variables: list[Any]) -> Any:
        with self._somewhere():
            return self.tf.identity(self.random.choice(variables))

    # ---- effects --------------------------------------------------------------------------------

    def _effect(self, value: Any) -> Any:
        """``value``, after a variable has been added to."""
        tf = self.tf
        amount = self.random.randint(1, 4) * 0.25
        change = tf.assign_add(self.random.choice(self.counts), amount, use_locking=True)
        with tf.control_dependencies([change]):
            return tf.identity(value)

    def _ordered(self, value: Any) -> Any:
        """A loop whose body assigns what it has read: each iteration must see the assignment of the one before."""
        tf = self.tf

        def body(i: Any, a: Any) -> Any:
            with tf.control_dependencies([a]), self._somewhere():
                old = self.state.read_value() + 0.0  # a copy
            with self._somewhere():
                new = tf.assign(self.state, old * 0.5 + 1.0)
            with tf.control_dependencies([new]):
                return [i + 1, tf.tanh(a) + old]

        return tf.while_loop(lambda i, _: i < 3, self._function(body), [0, tf.stop_gradient(value)])[1]

    # ---- conditionals and loops -----------------------------------------------------------------

    def _cond(self, kind: str, env: Env, size: int) -> Any:
        make = self._float if kind == "f" else self._vector
        branches = [self._function(lambda: self._branch(make, env, (size - 1) // 2)) for _ in range(2)]
        return self.tf.cond(self._bool(env, 2), *branches)

    def _branch(self, make: Any, env: Env, size: int) -> Any:
        return self._pick(env, "v" if make == self._vector else "f") if size <= 0 else make(env, size)

    def _chosen(self, env: Env, size: int) -> Any:
        count = self.random.randint(2, 4)
        branches = [self._function(lambda: self._float(env, size // count)) for _ in range(count)]
        if self.random.random() < 0.5:
            predicates = [self._bool(env, 1) for _ in range(count - 1)]
            return self.tf.case(list(zip(predicates, branches)), default=branches[-1])
        return self.tf.case(
            [(self.tf.equal(self._index(env), k), branch) for k, branch in enumerate(branches[:-1])], branches[-1]
        )

    def _loop(self, env: Env, size: int) -> Any:
        """A loop with a float and a vector."""
        tf = self.tf
        part = (size - 1) // 3
        count = self._one_of(
            (4, lambda: self.random.randint(0, 4)),
            (1, lambda: tf.minimum(self._index(env) + 1, 3)),
        )
        limit = self._number() + 1.5
        is_bounded = self.random.random() < 0.3

        def cond(i: Any, a: Any, b: Any) -> Any:
            with self._somewhere():
                goes_on = i < count
                if is_bounded:
                    inner = {"f": [*env["f"], a], "v": [*env["v"], b], "i": [*env["i"], i]}
                    goes_on = tf.logical_and(goes_on, self._float(inner, 2) < limit)
                return goes_on

        def body(i: Any, a: Any, b: Any) -> Any:
            inner = {"f": [*env["f"], a, a], "v": [*env["v"], b, b], "i": [*env["i"], i]}
            first = self._function(lambda: self._float(inner, part))
            second = self._function(lambda: self._vector(inner, part))
            with self._somewhere():
                return [i + 1, tf.tanh(first()), tf.tanh(second())]

        start = [tf.constant(0), self._float(env, max(1, part // 2)), self._vector(env, 1)]
        options: dict[str, Any] = {"parallel_iterations": self.random.choice([1, 2, 10])}
        if self.random.random() < 0.2:
            options["maximum_iterations"] = self.random.randint(1, 3)
        return tf.while_loop(self._function(cond), self._function(body), start, **options)[1:]

    # ---- tensor arrays --------------------------------------------------------------------------

    def _filled_array(self, env: Env, size: int, count: int) -> Any:
        """A tensor array of ``count`` floats that a loop has written."""
        tf = self.tf
        in_cond = self.random.random() < 0.3
        array = tf.TensorArray(tf.float32, count, clear_after_read=False, element_shape=[])

        def body(i: Any, written: Any, a: Any) -> Any:
            inner = {**env, "f": [*env["f"], a], "i": [*env["i"], i]}
            value = self._float(inner, (size - 1) // 2)
            if in_cond:
                other = self._function(lambda: written.write(i, tf.sin(a)))
                written = tf.cond(self._bool(inner, 1), lambda: written.write(i, value), other)
            else:
                written = written.write(i, value)
            return [i + 1, written, tf.tanh(a + value)]

        start = [tf.constant(0), array, self._float(env, 1)]
        return tf.while_loop(lambda i, *_: i < count, self._function(body), start)[1]

    def _array_sum(self, env: Env, size: int) -> Any:
        """The elements of a tensor array, read by another loop."""
        tf = self.tf
        count = self.random.randint(1, 4)
        array = self._filled_array(env, size // 2, count)

        def body(i: Any, a: Any) -> Any:
            inner = {**env, "f": [*env["f"], a], "i": [*env["i"], i]}
            return [i + 1, tf.tanh(array.read(count - 1 - i) + self._float(inner, size // 3))]

        return tf.while_loop(lambda i, _: i < count, self._function(body), [tf.constant(0), self._float(env, 1)])[1]

    def _array_vector(self, env: Env, size: int) -> Any:
        return self.tf.reshape(self._filled_array(env, size - 1, 3).stack(), [3])

    def _higher_order(self, env: Env, size: int) -> Any:
        """A map, a scan or a fold of a vector."""
        tf = self.tf
        elements = self._vector(env, size // 2)
        part = size // 3

        def one(element: Any) -> Any:
            return tf.tanh(self._float({**env, "f": [*env["f"], element, element]}, part))

        def two(a: Any, element: Any) -> Any:
            return tf.tanh(a * 0.5 + self._float({**env, "f": [*env["f"], a, element]}, part))

        return self._one_of(
            (1, lambda: tf.reduce_sum(tf.map_fn(self._function(one), elements))),
            (1, lambda: tf.reduce_sum(tf.scan(self._function(two), elements, initializer=self._float(env, 1)))),
            (1, lambda: tf.foldl(self._function(two), elements, initializer=self._float(env, 1))),
        )


def outcomes(tf: Any, seeds: Sequence[int]) -> list[Any]:
    """What each program computes on one device, or its error as text: for TensorFlow."""
    return [outcome(tf, seed) for seed in seeds]


def outcome(tf: Any, seed: int, target: str = "", devices: Sequence[str] = (), config: Any = None) -> Any:
    """What a program computes, or its error as text."""
    if config is None:
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default():
        try:
            program = Program(tf, seed, devices)
            with tf.Session(target, config=config) as session:
                return program.outcome(session)
        except Exception as error:  # noqa: BLE001 - the error is the program's outcome
            return f"{type(error).__name__}: {error}"
