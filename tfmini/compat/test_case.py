"""``tf.test.TestCase``, ``tf.test.main`` and ``tf.test.Benchmark``."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
from absl.testing import absltest

from tfmini.compat.test_assertions import Assertions
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.default_graph import forget_default_graphs, get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import set_random_seed
from tfmini.protos import ConfigProto
from tfmini.runtime.client.session import BaseSession, Session

_SEED = 87654321  # TensorFlow's, so that tests get the random numbers that they expect


@export("tf.test.TestCase")
class TestCase(Assertions):
    """A test of graphs (``tf.test.TestCase``): each starts in an empty default graph with fixed seeds."""

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        self._cached: Session | None = None
        self._cached_for: tuple[object, ...] = ()
        self._temp_dir: str | None = None

    def setUp(self) -> None:
        super().setUp()
        random.seed(_SEED)
        np.random.seed(_SEED)
        self._ClearCachedSession()
        forget_default_graphs()
        set_random_seed(_SEED)

    def tearDown(self) -> None:
        self._ClearCachedSession()
        super().tearDown()

    def _ClearCachedSession(self) -> None:
        if self._cached is not None:
            self._cached.close()
            self._cached = None

    def get_temp_dir(self) -> str:
        """The temporary directory of this test, the same at every call."""
        if self._temp_dir is None:
            self._temp_dir = tempfile.mkdtemp(dir=get_temp_dir())
        return self._temp_dir

    @contextmanager
    def session(
        self,
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """A new session, default within the block and closed after it; its graph is the default one.

        Ops request the CPU, with ``use_gpu`` no device, with ``force_gpu`` a GPU.
        """
        with _session(graph, config, force_gpu) as sess, _as_default(sess, use_gpu, force_gpu):
            yield sess

    @contextmanager
    def cached_session(
        self,
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """The test's shared session, created by the first call and closed at the end of the test.

        Raises:
          ValueError: the first call had another graph, config or ``force_gpu``.
        """
        wanted = (graph, config, force_gpu)
        if self._cached is not None and any(a is not b for a, b in zip(wanted, self._cached_for)):
            raise ValueError(
                "The cached session was made for another graph, config or force_gpu; self.session() makes a new one."
            )
        with self._cached_session(*wanted) as sess, _as_default(sess, use_gpu, force_gpu):
            yield sess

    @contextmanager
    def test_session(
        self,
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """`session` when a graph is given, else `cached_session`, whatever that was made for (an older name)."""
        opened = _session if graph is not None else self._cached_session
        with opened(graph, config, force_gpu) as sess, _as_default(sess, use_gpu, force_gpu):
            yield sess

    def _cached_session(
        self, graph: Graph | None, config: ConfigProto | None, force_gpu: bool
    ) -> AbstractContextManager[Session]:
        if self._cached is None:
            self._cached, self._cached_for = _session(graph, config, force_gpu), (graph, config, force_gpu)
        return nullcontext(self._cached)

    def evaluate(self, tensors: TensorLike) -> Any:
        """The values of tensors, in the default session or in the test's own."""
        sess = get_default_session()
        if sess is not None:
            return sess.run(tensors)
        with self.test_session() as own:
            return own.run(tensors)

    def checkedThread(
        self, target: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> CheckedThread:
        """A thread whose failure fails the test when it is joined."""
        return CheckedThread(self, target, args or (), kwargs or {})

    @contextmanager
    def captureWritesToStream(self, stream: Any) -> Iterator[CapturedWrites]:
        """Captures the output to a stream's file descriptor while the block runs."""
        stream.flush()
        descriptor = stream.fileno()
        original = os.dup(descriptor)
        with tempfile.NamedTemporaryFile(dir=self.get_temp_dir()) as capture:
            os.dup2(capture.fileno(), descriptor)
            try:
                yield CapturedWrites(capture.name, stream)
            finally:
                stream.flush()
                os.dup2(original, descriptor)
                os.close(original)


def _session(graph: Graph | None, config: ConfigProto | None, force_gpu: bool) -> Session:
    """A session that places ops where they can run, unless its ``config`` says so or they must be on a GPU."""
    if config is None:
        config = ConfigProto(allow_soft_placement=not force_gpu)
    elif force_gpu and config.allow_soft_placement:
        given, config = config, ConfigProto()
        config.CopyFrom(given)
        config.allow_soft_placement = False
    return Session(graph=graph, config=config)


@contextmanager
def _as_default(sess: BaseSession, use_gpu: bool, force_gpu: bool) -> Iterator[None]:
    device = sess.graph.device("/device:GPU:0" if force_gpu else "/device:CPU:0")
    with sess.graph.as_default(), sess.as_default(), nullcontext() if use_gpu and not force_gpu else device:
        yield


class CapturedWrites:
    """The output that `TestCase.captureWritesToStream` has captured."""

    def __init__(self, path: str, stream: Any) -> None:
        self._path, self._stream = path, stream

    def contents(self) -> str:
        """The output so far."""
        self._stream.flush()
        with open(self._path, encoding="utf-8", errors="replace") as file:
            return file.read()


class CheckedThread:
    """A daemon thread; `join` fails the test if its function raised."""

    def __init__(
        self, case: absltest.TestCase, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self._case, self._error = case, ""
        self._call = lambda: target(*args, **kwargs)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._joined = False

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:  # reported by `join`
            self._error = f"{type(error).__name__}: {error}"

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        """Waits for the end.

        Raises:
          AssertionError: when the function raised.
        """
        self._thread.join()
        self._joined = True
        if self._error:
            self._case.fail(f"Error in checkedThread: {self._error}")

    def check_termination(self) -> None:
        """Fails the test if the thread was started but not joined."""
        if self._thread.ident is not None and not self._joined:
            self._case.fail("A checked thread was not joined.")


@export("tf.test.Benchmark")
class Benchmark:
    """Measures ops (``tf.test.Benchmark``): methods ``benchmark*`` call `run_op_benchmark`."""

    def run_op_benchmark(
        self,
        sess: BaseSession,
        op_or_tensor: object,
        feed_dict: Mapping[Any, Any] | None = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        store_trace: bool = False,
        store_memory_usage: bool = True,
        name: str | None = None,
        extras: dict[str, Any] | None = None,
        mbs: float = 0,
    ) -> dict[str, Any]:
        """Runs an op ``min_iters`` times after ``burn_iters`` and reports the median wall time in s."""
        for _ in range(burn_iters):
            sess.run(op_or_tensor, feed_dict)
        times = []
        for _ in range(min_iters):
            start = time.perf_counter()
            sess.run(op_or_tensor, feed_dict)
            times.append(time.perf_counter() - start)
        median = float(np.median(times)) if times else 0.0
        extra = {"wall_time_mean": float(np.mean(times)), **(extras or {})} if times else dict(extras or {})
        if mbs:
            extra["throughput"] = mbs / median
        throughput = mbs / median if mbs else 0.0
        self.report_benchmark(iters=min_iters, wall_time=median, throughput=throughput, extras=extra, name=name)
        return {"iters": min_iters, "wall_time": median, "extras": extra, "name": name, "throughput": throughput}

    def report_benchmark(
        self,
        iters: int | None = None,
        cpu_time: float | None = None,
        wall_time: float | None = None,
        throughput: float | None = None,
        extras: dict[str, Any] | None = None,
        name: str | None = None,
        metrics: object = None,
    ) -> None:
        """Prints one line with the measurements."""
        measured = {
            "iters": iters, "cpu_time": cpu_time, "wall_time": wall_time, "throughput": throughput, "extras": extras,
            "metrics": metrics,
        }  # fmt: skip
        shown = " ".join(f"{key}={value}" for key, value in measured.items() if value is not None)
        print(f"{type(self).__name__}.{name or 'benchmark'}: {shown}")

    def evaluate(self, tensors: TensorLike) -> Any:
        """The values of tensors, in the default session."""
        sess = get_default_session()
        if sess is None:
            with Session(graph=get_default_graph()) as own:
                return own.run(tensors)
        return sess.run(tensors)


@export("tf.test.get_temp_dir")
def get_temp_dir() -> str:
    """The temporary directory of all tests, the same for the whole run (``tf.test.get_temp_dir``)."""
    if not _temp_dirs:
        root = os.environ.get("TEST_TMPDIR") or tempfile.gettempdir()
        os.makedirs(root, exist_ok=True)
        _temp_dirs.append(tempfile.mkdtemp(prefix="tfmini_test_", dir=root))
    return _temp_dirs[0]


_temp_dirs: list[str] = []


@export("tf.test.main")
def main(argv: list[str] | None = None) -> None:
    """Runs the tests of the script and exits (``tf.test.main``)."""
    absltest.main(argv=sys.argv if argv is None else argv)


# ---- ``tf.test.mock`` and ``tf.test.StubOutForTesting``: replacing attributes during a test ------------------------

__all__ = ["StubOutForTesting", "mock"]


@export("tf.test.StubOutForTesting")
class StubOutForTesting:
    """Replaces attributes and restores them later (``tf.test.StubOutForTesting``)."""

    def __init__(self) -> None:
        self._set: list[tuple[Any, str, Any]] = []

    def Set(self, parent: Any, child_name: str, new_child: Any) -> None:
        """Replaces an attribute until `UnsetAll`."""
        self._set.append((parent, child_name, getattr(parent, child_name)))
        setattr(parent, child_name, new_child)

    SmartSet = Set

    def UnsetAll(self) -> None:
        """Restores all attributes, the last replaced first."""
        while self._set:
            setattr(*self._set.pop())

    SmartUnsetAll = CleanUp = UnsetAll

    def __enter__(self) -> StubOutForTesting:
        return self

    def __exit__(self, *error: object) -> None:
        self.UnsetAll()


export_names("tf.test", "mock")
