"""The function of a stretch: compiled by JAX once per shape, called once per step."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from tfmini import errors
from tfmini.library_log import library_logger
from tfmini.runtime.compiler.levels import Program
from tfmini.runtime.compiler.stretches import Stretch
from tfmini.runtime.compiler.whole import NotWhole
from tfmini.xla.tracing import Cell, Request, StretchTrace, named
from tfmini.xla.variables import locked

PRECISION_ENV = "TFMINI_MATMUL_PRECISION"
_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}
PROGRAMS = 64
"""How many programs, for different shapes or static values, a stretch keeps."""
PATIENCE_S = 10.0
"""After so many seconds of a compilation the log says that it goes on."""
_MANY = (4, 16, PROGRAMS)  # after so many, the log says why


class CompiledStretch:
    """``call(states, statics, args) -> results`` for one stretch, on one device.

    Thread-safe: several steps may call it at once.
    """

    def __init__(self, stretch: Stretch, device: Any) -> None:
        self.stretch, self.device = stretch, device
        self._sharding = SingleDeviceSharding(device)
        self._written = [i for i, e in enumerate(stretch.states) if e in stretch.written]
        self._read = [i for i, e in enumerate(stretch.states) if e not in stretch.written]
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._plain: Callable[..., Any] | None = None
        self._wishes: dict[Any, dict[str, list[Request]]] = {}
        self._traced: list[tuple[Any, ...]] = []  # of each program that is kept: its static values and shapes
        self._count = 0
        self._patience: threading.Timer | None = None
        self._leaving = sorted(stretch.leaving)
        self._foreign = sorted(stretch.foreign)
        self._driven: DrivenRun | None = None
        self._is_driven = False  # in all steps: its trace has failed

    def __call__(self, states: Sequence[Any], statics: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
        if not self._is_driven:
            try:
                return self._run(states, statics, args)
            except errors.FailedPreconditionError:
                if self.stretch.driven is None:
                    raise  # else it may be a variable of a branch that this step does not take
            except NotWhole as reason:
                self._is_driven = True
                library_logger().info(
                    "The loops and conditionals in the %d ops from %s on are not compiled as a whole: %s.",
                    len(self.stretch.nodes), self.stretch.nodes[0].name, reason,
                )  # fmt: skip
        if self._driven is None:
            assert self.stretch.driven is not None
            self._driven = DrivenRun(self.stretch.driven())
        return self._driven.results([*statics, *args])

    def _run(self, states: Sequence[Any], statics: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
        with jax.enable_x64(True):
            if self._foreign:
                args = list(args)
                for i in self._foreign:
                    args[i] = jax.device_put(args[i], self.device)
            statics = [np.asarray(value) for value in statics]
            program = self._plain if self._plain is not None and not statics else self._program(statics)
            if self._written:
                results = self._update(program, states, statics, args)
            else:
                results = self._dispatch(program, [], states, statics, args)[1]
        for i in self._leaving:
            result = results[i]
            if isinstance(result, jax.Array):
                result.copy_to_host_async()
        return tuple(results)

    def _update(
        self, program: Callable[..., Any], states: Sequence[Any], statics: Sequence[Any], args: Sequence[Any]
    ) -> Any:
        """Calls the program as one exclusive update of the variables that it writes."""
        written: list[Any] = [states[i] for i in self._written]
        with ExitStack() as stack:
            for lock in locked(written):
                stack.enter_context(lock)
            values = [state.take() for state in written]
            new, results = self._dispatch(program, values, states, statics, args)
            values.clear()
            for state, value in zip(written, new):
                state.put(value)
        return results

    def _dispatch(
        self, program: Callable[..., Any], written: list[Any], states: Sequence[Any], statics: Sequence[Any],
        args: Sequence[Any],
    ) -> Any:  # fmt: skip
        read = [self._value(i, states[i]) for i in self._read]
        draws = self._draws(states, statics, written, read, args) if self.stretch.streams else {}
        before = self._count
        start = time.monotonic()
        try:
            found = program(written, read, draws, list(args), states)
        except jax.errors.JaxRuntimeError as error:
            raise self._failure(error, states) from error
        finally:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        if self._count != before:
            seconds = time.monotonic() - start
            library_logger().info(
                "Compiled %d ops for %s in %.1f s.", len(self.stretch.nodes), self.stretch.device, seconds
            )
            if len(self._traced) >= PROGRAMS:
                self._forget()
        return found

    def _forget(self) -> None:
        """Drops all programs. Steps that run have theirs; the next ones compile again."""
        self._plain = None
        self._programs.clear()
        self._wishes.clear()
        self._traced.clear()

    def _value(self, number: int, state: Any) -> Any:
        """The value of a variable that is only read."""
        try:
            return state.read()
        except errors.FailedPreconditionError as error:
            endpoint = self.stretch.states[number]
            reader = next(node for node in self.stretch.nodes if endpoint in node.inputs)
            raise named(error, reader) from None

    # ---- programs ---------------------------------------------------------------------------

    def _program(self, statics: Sequence[Any]) -> Callable[..., Any]:
        """The function for these static values."""
        key = tuple((value.shape, value.dtype.char, value.tobytes()) for value in statics)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._make(statics)
            if not statics:
                self._plain = program
        return program

    def _make(self, statics: Sequence[Any]) -> Callable[..., Any]:
        kept: list[Any] = []  # the states of the call that traces: their names and messages are in its errors

        def run(written: list[Any], read: list[Any], draws: dict[str, list[Any]], args: list[Any]) -> Any:
            self._note_trace(statics, args)
            return self.trace(kept[-1], statics, draws, written, read, args)[0]

        jitted = jax.jit(run, donate_argnums=(0,), in_shardings=self._sharding, out_shardings=self._sharding)

        def call(
            written: list[Any], read: list[Any], draws: dict[str, list[Any]], args: list[Any], states: Sequence[Any]
        ) -> Any:
            kept[:] = [states]
            return jitted(written, read, draws, args)

        return call

    def trace(
        self, states: Sequence[Any], statics: Sequence[Any], draws: Any, written: list[Any], read: list[Any],
        args: list[Any],
    ) -> Any:  # fmt: skip
        """Runs the nodes; returns (new values of what is written, results), and the trace."""
        trace = StretchTrace(self.stretch, statics, draws)
        cells: list[Any] = [None] * len(states)
        for places, values in ((self._written, written), (self._read, read)):
            for i, value in zip(places, values):
                cells[i] = Cell(states[i], value)
        with jax.default_matmul_precision(matmul_precision()):
            try:
                results = trace.run(cells, args)
            except (NotWhole, errors.FailedPreconditionError):
                raise
            except Exception as error:
                if self.stretch.driven is None:
                    raise
                # The parts between the loops and conditionals are traced again, so an error of one is raised then.
                raise NotWhole(errors.of_exception(error).message.splitlines()[0].rstrip(".")) from error
        return ([cells[i].value for i in self._written], results), trace

    def _draws(
        self, states: Sequence[Any], statics: Sequence[Any], written: list[Any], read: list[Any], args: Sequence[Any]
    ) -> dict[str, list[Any]]:
        """The random numbers, or counters, that the program needs in this step."""
        key = tuple(v.tobytes() for v in statics), tuple(np.shape(a) for a in args), tuple(np.shape(v) for v in read)
        wishes = self._wishes.get(key)
        if wishes is None:
            found = []

            def run(written: list[Any], read: list[Any], args: list[Any]) -> Any:
                results, trace = self.trace(states, statics, None, written, read, args)
                found.append(trace.wishes)
                return results

            jax.eval_shape(run, written, read, list(args))
            wishes = self._wishes[key] = found[-1]
        streams = self.stretch.streams
        return {name: [streams[name](kind, *sizes) for kind, sizes in wanted] for name, wanted in wishes.items()}

    # ---- messages ---------------------------------------------------------------------------

    def _note_trace(self, statics: Sequence[Any], args: Sequence[Any]) -> None:
        self._traced.append((*(tuple(v.ravel().tolist()) for v in statics), *(v.shape for v in args)))
        self._count += 1
        count = self._count
        self._patience = threading.Timer(PATIENCE_S, self.report_long_compilation)
        self._patience.daemon = True
        self._patience.start()
        if count == 1:
            library_logger().info(
                "Compiling %d ops for %s (%s …). The first step with these shapes takes longer.",
                len(self.stretch.nodes), self.stretch.device, self.stretch.nodes[0].name,
            )  # fmt: skip
        elif count in _MANY:
            names = [self.stretch.labels[e] for e in (*self.stretch.statics, *self.stretch.args)]
            different = Counter({name: len({t[i] for t in self._traced}) for i, name in enumerate(names)})
            name, kinds = max(different.items(), key=lambda item: item[1], default=("a variable", count))
            library_logger().warning(
                "%s has compiled the ops from %s on %d times: '%s' has had %d shapes or values. Each one is compiled"
                " for itself. Give it a fixed shape (drop_remainder, padding to few lengths), or place it on /cpu:0.",
                self.stretch.device, self.stretch.nodes[0].name, count, name, kinds,
            )  # fmt: skip

    def report_long_compilation(self) -> None:
        """Says in the log that a compilation goes on."""
        library_logger().warning(
            "XLA still compiles %d ops for %s, after %g s. Later steps with these shapes do not wait for it.",
            len(self.stretch.nodes), self.stretch.device, PATIENCE_S,
        )  # fmt: skip

    def _failure(self, error: Exception, states: Sequence[Any]) -> errors.OpError:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            return errors.InternalError.of(f"XLA failed on {self.stretch.device}: {text.splitlines()[0]}")
        largest = sorted((s for s in states if s.is_initialized), key=lambda s: -s.extent()[1])[:5]
        held = ", ".join(f"{s.name} ({s.extent()[1] / 2**20:.1f} MiB)" for s in largest) or "no variable"
        return errors.ResourceExhaustedError.of(
            f"OOM on {self.stretch.device} in the ops from '{self.stretch.nodes[0].name}' on: {text.splitlines()[0]}"
            f" The largest variables that these ops use: {held}. Use a smaller batch, or spread the model over devices."
        )


class DrivenRun:
    """Runs the program of a stretch whose loops and conditionals the executor drives.

    Args:
      bound: gives the program with the task's variables.

    Attributes:
      run, stopped, trace, step_id: what generated code and kernels look at, as of an `executor.PartitionRun`.
    """

    stopped = False
    trace = None
    step_id = 0

    def __init__(self, bound: Callable[[], Program]) -> None:
        self.bound = bound

    @property
    def run(self) -> DrivenRun:
        """Itself, as an iteration of a loop has its run here."""
        return self

    def results(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The results for these statics and args."""
        program = self.bound()
        slots = program.template.copy()
        slots[: len(values)] = values
        for segment in program.segments:
            segment.run(self, slots)
        return tuple(slots[slot] for slot in program.fetches)


def matmul_precision() -> str:
    """JAX's name of the precision of float32 products.

    Raises:
      InvalidArgumentError: the environment names none.
    """
    name = os.environ.get(PRECISION_ENV, "float32")
    if name not in _PRECISIONS:
        raise errors.InvalidArgumentError.of(f"{PRECISION_ENV} must be one of {', '.join(_PRECISIONS)}, not {name!r}.")
    return _PRECISIONS[name]
