"""A session that runs while loops and gradients are built sends none of which only a part is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf


class Elsewhere:
    """A call in another thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.found: list[Any] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.found.append(self._function())
        except Exception as error:
            self.found.append(error)

    def result(self) -> Any:
        self._thread.join(60)
        (found,) = self.found
        return found


def elsewhere(function: Callable[[], Any]) -> Any:
    return Elsewhere(function).result()


def here(function: Callable[[], Any]) -> Any:
    return function()


@pytest.mark.parametrize("where", [here, elsewhere])
def test_a_run_inside_the_body_of_a_loop_does_not_wait_for_the_loop(where: Callable[..., Any]) -> None:
    before = tf.constant(2.0) * 3.0
    with tf.Session() as session:
        seen: list[Any] = []

        def body(x: Any) -> Any:
            seen.append(where(lambda: session.run(before)))
            return x * 2.0

        loop = tf.while_loop(lambda x: x < 10.0, body, [tf.placeholder_with_default(1.0, [])])
        assert seen == [6.0]
        assert session.run(loop) == 16.0


@pytest.mark.parametrize("where", [here, elsewhere])
def test_a_run_inside_a_gradient_function_leaves_the_loops_alone(where: Callable[..., Any]) -> None:
    """The gradient changes a loop that no session has sent yet."""
    before = tf.constant(2.0) * 3.0
    with tf.Session() as session:
        seen: list[Any] = []

        @tf.custom_gradient
        def squared(x: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                seen.append(where(lambda: session.run(before)))
                return 2.0 * x * upstream

            return tf.square(x), gradient

        x = tf.placeholder_with_default(1.5, [])
        y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * squared(a)), [0, x])[1]
        found = session.run(tf.gradients(squared(y), x)[0])
        assert seen and set(seen) == {6.0}
        assert found == pytest.approx(54 * 1.5**53, rel=1e-4)


def test_a_run_of_an_op_in_a_half_built_loop_is_an_error_that_names_it() -> None:
    with tf.Session() as session:

        def body(x: Any) -> Any:
            with tf.control_dependencies(None):
                inside = tf.constant(1.0, name="inside")
            with pytest.raises(tf.errors.InvalidArgumentError, match="while/inside is run inside the loop"):
                session.run(inside)
            return x * 2.0

        assert session.run(tf.while_loop(lambda x: x < 10.0, body, [1.0])) == 16.0


def test_a_run_of_what_another_thread_builds_waits_for_the_end() -> None:
    with tf.Session() as session:
        runs: list[Elsewhere] = []

        def body(x: Any) -> Any:
            with tf.control_dependencies(None):
                inside = tf.constant(3.0)
            runs.append(Elsewhere(lambda: session.run(inside)))
            return x * 2.0

        loop = tf.while_loop(lambda x: x < 10.0, body, [1.0])
        assert runs[0].result() == 3.0 and session.run(loop) == 16.0


def test_closing_the_session_ends_such_a_wait() -> None:
    session = tf.Session()

    def body(x: Any) -> Any:
        with tf.control_dependencies(None):
            inside = tf.constant(3.0)
        run = Elsewhere(lambda: session.run(inside))
        session.close()
        assert isinstance(run.result(), RuntimeError)
        return x * 2.0

    tf.while_loop(lambda x: x < 10.0, body, [1.0])


def test_runs_beside_a_thread_that_builds_see_whole_loops_and_gradients() -> None:
    x = tf.placeholder_with_default(1.0, [])
    y = x * 2.0
    with tf.Session() as session:
        stop = threading.Event()

        def run() -> int:
            while not stop.is_set():
                session.run(y)
            return 1

        runs = Elsewhere(run)
        made = []
        for _ in range(10):
            r = tf.while_loop(
                lambda i, a: i < 5, lambda i, a: (i + 1, tf.cond(a > 3, lambda: a + 1, lambda: a * 2)), [0, x]
            )
            made.append((r[1], tf.gradients(r[1], x)[0]))
        stop.set()
        assert runs.result() == 1
        assert session.run(made) == [(7.0, 4.0)] * 10
