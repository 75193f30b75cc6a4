"""``tf.train.Coordinator``, which stops several threads together, and ``tf.train.LooperThread``."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfmini import errors
from tfmini.export import export
from tfmini.runtime.process import current_process

_log = logging.getLogger("tensorflow")

_POLL_S = 0.05  # maximum delay until `join` notices that all threads have ended without a stop


def _reraise(info: Any) -> None:
    error = info[1]
    if error is None:
        error = info[0]()
    raise error.with_traceback(info[2])


@export("tf.train.Coordinator")
class Coordinator:
    """Stops threads together and reports the first exception of any of them (``tf.train.Coordinator``).

    Args:
      clean_stop_exception_types: exceptions that stop the threads but are no errors; default `OutOfRangeError`.
    """

    def __init__(self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None) -> None:
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (errors.OutOfRangeError,)
        self._clean_stop_exception_types = tuple(clean_stop_exception_types)
        self._lock = threading.Lock()
        self._process = current_process()
        self._stop_event = self._process.event()
        self._exc_info_to_raise: Any = None
        self._joined = False
        self._on_error: Callable[[BaseException], None] | None = None
        self._registered_threads: set[threading.Thread] = set()

    def _filter_exception(self, ex: BaseException | tuple[Any, Any, Any] | None) -> Any:
        error = ex[1] if isinstance(ex, tuple) else ex
        return None if isinstance(error, self._clean_stop_exception_types) else ex

    def request_stop(self, ex: Any = None) -> None:
        """Requests a stop of the threads.

        Args:
          ex: an exception that is being handled, or its ``sys.exc_info()``. `join` raises the first exception,
            unless it is of a clean type.

        Raises:
          The exception, if the threads have been joined already.
        """
        with self._lock:
            ex = self._filter_exception(ex)
            if self._joined and ex is not None:
                _reraise(ex if isinstance(ex, tuple) else sys.exc_info())
            if self._stop_event.is_set():
                return
            if ex and self._exc_info_to_raise is None:
                self._exc_info_to_raise = self._exception_to_raise(ex)
            failed = self._exc_info_to_raise
            self._stop_event.set()
        if failed is not None and self._on_error is not None:
            self._on_error(failed[1])

    def _exception_to_raise(self, ex: BaseException | tuple[Any, Any, Any] | None) -> Any:
        info = ex if isinstance(ex, tuple) else sys.exc_info()
        _log.info("Error reported to Coordinator: %s", info[1] if isinstance(ex, tuple) and len(ex) > 1 else ex)
        if len(info) == 3 and info[0] and info[1]:
            return info
        try:
            raise ValueError(f"ex must be a tuple or sys.exc_info must return the current exception: {info}")
        except ValueError:
            return sys.exc_info()

    def clear_stop(self) -> None:
        """Resets the stop and its exception, so that the coordinator can be reused."""
        with self._lock:
            self._joined = False
            self._exc_info_to_raise = None
            self._stop_event.clear()

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_event.is_set()

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """A context that turns an exception into ``request_stop``."""
        try:
            yield
        except:  # noqa: E722 - any exception that ends a thread, even SystemExit, must stop the others
            self.request_stop(ex=sys.exc_info())

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits until a stop is requested; returns False after ``timeout`` seconds."""
        return self._stop_event.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Adds a thread for `join` to wait for."""
        with self._lock:
            self._registered_threads.add(thread)

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Waits until all threads have ended; after a requested stop, at most for the grace period.

        Args:
          threads: threads to wait for in addition to the registered ones.
          stop_grace_period_secs: seconds that threads may still run after the stop.
          ignore_live_threads: only log threads that run after the grace period.

        Raises:
          RuntimeError: when threads run after the grace period; the message names them.
          The exception of ``request_stop``, if there was one.
        """
        with self._lock:
            waited_for = list(self._registered_threads.union(threads or ()))
        while any(t.is_alive() for t in waited_for) and not self.wait_for_stop(_POLL_S):
            pass
        deadline = self._process.now() + stop_grace_period_secs
        for thread in waited_for:
            if thread.is_alive():
                thread.join(max(0.0, deadline - self._process.now()))
        stragglers = " ".join(t.name for t in waited_for if t.is_alive())
        with self._lock:
            self._joined = True
            self._registered_threads = set()
            if self._exc_info_to_raise:
                _reraise(self._exc_info_to_raise)
            if stragglers:
                text = f"Coordinator stopped with threads still running: {stragglers}"
                if not ignore_live_threads:
                    raise RuntimeError(text)
                _log.info("%s", text)

    @property
    def joined(self) -> bool:
        """Whether `join` has returned."""
        return self._joined

    def raise_requested_exception(self) -> None:
        """Raises the exception of ``request_stop``, if there was one."""
        with self._lock:
            if self._exc_info_to_raise:
                _reraise(self._exc_info_to_raise)


@export("tf.train.LooperThread")
class LooperThread(threading.Thread):
    """A daemon thread that calls a function repeatedly until a stop is requested (``tf.train.LooperThread``).

    Args:
      coord: the coordinator.
      timer_interval_secs: seconds between the starts of two calls; None for no pause.
      target: the function; a subclass may override ``run_loop`` instead.
      args, kwargs: arguments of the function.

    Raises:
      ValueError: when ``coord`` is no coordinator, or arguments are given without a function.
    """

    def __init__(
        self, coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any] | None = None,
        args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(coord, Coordinator):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")
        super().__init__(daemon=True)
        if not target and (args or kwargs):
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._target = target
        self._args = args or ()
        self._kwargs = kwargs or {}
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any],
        args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:  # fmt: skip
        """Makes a `LooperThread` and starts it."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """The thread's body: calls ``start_loop``, ``run_loop`` until the stop, and ``stop_loop``."""
        with self._coord.stop_on_exception():
            self.start_loop()
            if self._timer_interval_secs is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                now = self._coord._process.now
                following = now()
                while not self._coord.wait_for_stop(following - now()):
                    following += self._timer_interval_secs
                    self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called once before the loop; for subclasses."""

    def stop_loop(self) -> None:
        """Called once after the loop; for subclasses."""

    def run_loop(self) -> None:
        """Called in each iteration; by default it calls the function."""
        if self._target:
            self._target(*self._args, **self._kwargs)
