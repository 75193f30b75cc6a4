"""The function of a stretch: compiled by JAX once per shape, called once per step."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from tfmini.xla.variables import exchange

PRECISION_ENV = "TFMINI_MATMUL_PRECISION"
_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}
PROGRAMS = 64
"""How many programs, for different shapes or static values, a stretch keeps."""
PATIENCE_S = 10.0
"""After so many seconds of a compilation the log says that it goes on."""
_MANY = (4, 16, PROGRAMS)  # after so many, the log says why


class _Call(threading.local):
    """The call of this thread: a trace, which happens in it, gets no more from JAX than arrays.

    Attributes:
      states: the variables, whose names and messages are in errors.
      patience: the timer of its compilation, None if it has not compiled.
    """

    states: Sequence[Any] = ()
    patience: threading.Timer | None = None


class CompiledStretch:
    """``call(states, statics, args) -> results`` for one stretch, on one device.

    Thread-safe: several steps may call it at once.

    Args:
      places: for each endpoint of a variable, the first one that names the same variable; None: none share one.
    """

    def __init__(self, stretch: Stretch, device: Any, places: tuple[int, ...] | None = None) -> None:
        self.stretch, self.device = stretch, device
        self._sharding = SingleDeviceSharding(device)
        self._sharing: dict[tuple[int, ...], CompiledStretch] | None = {} if places is None else None
        self._places = places or tuple(range(len(stretch.states)))
        written = {i for i, e in zip(self._places, stretch.states) if e in stretch.written}
        self._written = sorted(written)
        self._read = sorted({*self._places} - written)
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._plain: Callable[..., Any] | None = None
        self._wishes: dict[Any, dict[str, list[Request]]] = {}
        self._traced: list[tuple[Any, ...]] = []  # of each program that is kept: its static values and shapes
        self._count = 0
        self._call = _Call()
        self._leaving = sorted(stretch.leaving)
        self._foreign = sorted(stretch.foreign)
        self._driven: DrivenRun | None = None
        # In all steps: its trace has failed, or a loop or conditional would have one variable twice.
        self._is_driven = places is not None and stretch.driven is not None

    def __call__(self, states: Sequence[Any], statics: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
        if self._sharing is not None and len(states) > 1 and len({*states}) < len(states):
            return self._for_shared(states)(states, statics, args)
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

    def _for_shared(self, states: Sequence[Any]) -> CompiledStretch:
        """The stretch for handles that name the same variable: it has one value, which updates by any handle change."""
        assert self._sharing is not None
        first: dict[Any, int] = {}
        places = tuple(first.setdefault(state, i) for i, state in enumerate(states))
        found = self._sharing.get(places)
        if found is None:
            found = self._sharing.setdefault(places, CompiledStretch(self.stretch, self.device, places))
        return found

    def _run(self, states: Sequence[Any], statics: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
        with jax.enable_x64(True):
            if self._foreign:
                args = list(args)
                for i in self._foreign:
                    args[i] = jax.device_put(args[i], self.device)
            statics = [np.asarray(value) for value in statics]
            program = self._plain if self._plain is not None and not statics else self._program(statics)
            read = [self._value(i, states[i]) for i in self._read]  # without a lock: it may wait for an update

            def call(written: list[Any], box: list[Any]) -> None:
                self.dispatch(program, written, read, states, statics, args, box)

            results = exchange([states[i] for i in self._written], call)
        for i in self._leaving:
            result = results[i]
            if isinstance(result, jax.Array):
                result.copy_to_host_async()
        return tuple(results)

    def dispatch(
        self, program: Callable[..., Any], written: list[Any], read: list[Any], states: Sequence[Any],
        statics: Sequence[Any], args: Sequence[Any], box: list[Any],
    ) -> None:  # fmt: skip
        """Calls the program, and puts what it returns into the box."""
        draws = self._draws(states, statics, written, read, args) if self.stretch.streams else {}
        start = time.monotonic()
        self._call.states, self._call.patience = states, None
        try:
            # In C from the donation to the box: an interrupt there would lose the new values.
            box.extend(map(program, [written], [read], [draws], [list(args)]))
        except jax.errors.JaxRuntimeError as error:
            raise self._failure(error, states) from error
        finally:
            patience = self._call.patience
            if patience is not None:
                patience.cancel()
        if patience is not None:
            seconds = time.monotonic() - start
            library_logger().info(
                "Compiled %d ops for %s in %.1f s.", len(self.stretch.nodes), self.stretch.device, seconds
            )
            if len(self._traced) >= PROGRAMS:
                self._forget()

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
        def run(written: list[Any], read: list[Any], draws: dict[str, list[Any]], args: list[Any]) -> Any:
            self._note_trace(statics, args)
            return self.trace(self._call.states, statics, draws, written, read, args)[0]

        return jax.jit(run, donate_argnums=(0,), in_shardings=self._sharding, out_shardings=self._sharding)

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
        cells = [cells[i] for i in self._places]
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
        self._call.patience = patience = threading.Timer(PATIENCE_S, self.report_long_compilation)
        patience.daemon = True
        patience.start()
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
