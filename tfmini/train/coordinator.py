"""``tf.train.Coordinator``: several threads that stop together, and ``tf.train.LooperThread``."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfmini import errors

_log = logging.getLogger("tfmini")

_POLL_S = 0.05  # how quickly `join` sees that the last thread has ended by itself


def _reraise(info: Any) -> None:
    error = info[1]
    if error is None:
        error = info[0]()
    raise error.with_traceback(info[2])


class Coordinator:
    """Lets threads stop together and reports the first exception of any of them (``tf.train.Coordinator``).

    Args:
      clean_stop_exception_types: exceptions that end the threads but are no errors; default
        `OutOfRangeError`.
    """

    def __init__(self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None) -> None:
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (errors.OutOfRangeError,)
        self._clean_stop_exception_types = tuple(clean_stop_exception_types)
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._exc_info_to_raise: Any = None
        self._joined = False
        self._registered_threads: set[threading.Thread] = set()

    def _filter_exception(self, ex: Any) -> Any:
        error = ex[1] if isinstance(ex, tuple) else ex
        return None if isinstance(error, self._clean_stop_exception_types) else ex

    def request_stop(self, ex: Any = None) -> None:
        """Asks the threads to stop.

        Args:
          ex: an exception that is being handled, or what ``sys.exc_info()`` gives for one: `join`
            raises it, unless it is of a clean type. Only the first one counts.

        Raises:
          The exception, when the threads have been joined already.
        """
        with self._lock:
            ex = self._filter_exception(ex)
            if self._joined and ex is not None:
                _reraise(ex if isinstance(ex, tuple) else sys.exc_info())
            if self._stop_event.is_set():
                return
            if ex and self._exc_info_to_raise is None:
                self._exc_info_to_raise = self._exception_to_raise(ex)
            self._stop_event.set()

    def _exception_to_raise(self, ex: Any) -> Any:
        info = ex if isinstance(ex, tuple) else sys.exc_info()
        _log.info("Error reported to Coordinator: %s", info[1] if isinstance(ex, tuple) and len(ex) > 1 else ex)
        if len(info) == 3 and info[0] and info[1]:
            return info
        try:
            raise ValueError(f"ex must be a tuple or sys.exc_info must return the current exception: {info}")
        except ValueError:
            return sys.exc_info()

    def clear_stop(self) -> None:
        """Forgets the stop and its exception, so that the coordinator can be used again."""
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
        except:  # noqa: E722 - whatever ends a thread, SystemExit included, must stop the others
            self.request_stop(ex=sys.exc_info())

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Blocks until a stop is requested; returns False after ``timeout`` seconds without one."""
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
        """Waits until all threads have ended, at most the grace period longer than a requested stop.

        Args:
          threads: to wait for, beside the registered ones.
          stop_grace_period_secs: how long threads may go on after the stop, in seconds.
          ignore_live_threads: whether threads that still run then are only logged.

        Raises:
          RuntimeError: naming the threads that still run after the grace period.
          The exception of ``request_stop``, if there was one.
        """
        with self._lock:
            waited_for = list(self._registered_threads.union(threads or ()))
        while any(t.is_alive() for t in waited_for) and not self.wait_for_stop(_POLL_S):
            pass
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waited_for:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
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


class LooperThread(threading.Thread):
    """A daemon thread that calls a function again and again until a stop is requested (``tf.train.LooperThread``).

    Args:
      coord: the coordinator.
      timer_interval_secs: seconds from call to call; None: without a pause.
      target: the function; a subclass may override ``run_loop`` instead.
      args, kwargs: of the function.

    Raises:
      ValueError: without a coordinator, or for arguments without a function.
    """

    def __init__(
        self, coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any] | None = None,
        args: Any = None, kwargs: Any = None,
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
        coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any], args: Any = None,
        kwargs: Any = None,
    ) -> LooperThread:  # fmt: skip
        """Makes a looper and starts it."""
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """The thread: ``start_loop``, ``run_loop`` until the stop, ``stop_loop``."""
        with self._coord.stop_on_exception():
            self.start_loop()
            if self._timer_interval_secs is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                following = time.monotonic()
                while not self._coord.wait_for_stop(following - time.monotonic()):
                    following += self._timer_interval_secs
                    self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called first; for subclasses."""

    def stop_loop(self) -> None:
        """Called last; for subclasses."""

    def run_loop(self) -> None:
        """Called again and again; by default it calls the function."""
        if self._target:
            self._target(*self._args, **self._kwargs)
