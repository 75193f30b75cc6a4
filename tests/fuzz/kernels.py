"""Runs mutated samples of all ops on guarded memory (`guarded_memory`): kernels touch what they were given, or say no.

``python -m tests.fuzz.kernels --count 100000`` runs the whole count, ``--only 17`` replays one case; the tests run a
slice. Each case runs twice in a child process: with arrays at the end and at the beginning of their pages, and with two
patterns in memory that nobody has set. A case fails

- when its process dies (a read or write outside an array), or something is written beside an array,
- when the results differ between the two patterns: they show memory that nobody has set,
- when it wants an array that is larger than the memory which it has been told to be free,
- when it ends with another error than those of `CLEAN`,
- when it takes longer than `LIMIT_S`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import re
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tfmini as tf
import tfmini.memory
from tests.fuzz.guarded_memory import LARGEST, GuardedMemory, guard
from tests.fuzz.kernel_cases import Case, case, rows
from tests.ops.samples.notation import Row
from tfmini.graph.graph_def import nodes_to_graph_def
from tfmini.graph.node import Node
from tfmini.numerics import windows
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.client.session import local_master
from tfmini.runtime.compiler.kernels import CHECK_ENV
from tfmini.runtime.master.master import open_session
from tfmini.runtime.options import SessionOptions

LIMIT_S = 20.0
_WAIT_MS = 300  # for ops that wait for what does not come
_MOST_MEMORY = 6 << 30
_FREE = LARGEST // 2  # a kernel may copy what it has asked for
_PATTERNS = (0xFF, 0x41)  # as numbers: NaN and -1, and 12.08
# TensorFlow, too, gives out what a variable or a feed has, whatever shape the graph says, and refuses such a feed so.
_UNCHECKED = re.compile(
    r"kernel of (ReadVariableOp|PlaceholderWithDefault) at .* returned shape|^Unsupported object type"
)
_NOT_CLEAN = (tf.errors.InternalError, tf.errors.UnknownError)


class Finding(NamedTuple):
    """What is wrong with a case: the kind, the sample's op, a text, and all that replays it."""

    kind: str
    op: str
    text: str
    seed: int


# ---- in the child -------------------------------------------------------------------------------


def outcome(memory: GuardedMemory, found: Case, pattern: int, at_end: bool) -> tuple[str, Any]:
    """What a case does on memory with a pattern: ("values", them), ("refused", an error's text), ("wrong", a text)."""
    windows.SCRATCH.__dict__.clear()  # the patches of other cases
    memory.pattern, memory.at_end = pattern, at_end
    values = {name: value if isinstance(value, bytes) else np.array(value) for name, value in found.values.items()}
    try:
        return "values", (_run_sent if found.sent else _run_fed)(found, values)
    except _NOT_CLEAN as error:
        if _UNCHECKED.search(error.message):
            return "refused", error.message
        return "wrong", f"{type(error).__name__}: {error.message}"
    except tf.errors.OpError as error:
        return "refused", f"{type(error).__name__}: {error.message}"
    except _Refused as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - a client sees it, which is what is looked for
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        last = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
        return "wrong", f"{type(error).__name__}: {error} at {' > '.join(last)}"


class _Refused(Exception):
    """The client's checks have refused a graph or a value."""


def _run_fed(found: Case, values: dict[str, Any]) -> list[Any]:
    with tf.Graph().as_default() as graph:
        try:
            tf.import_graph_def(nodes_to_graph_def(found.nodes), name="")
            fetches = [[graph.as_graph_element(name) for name in step] for step in found.sample.steps]
        except Exception as error:
            raise _Refused(f"import: {error}") from None
        config = tf.ConfigProto(device_count={"CPU": 2}, operation_timeout_in_ms=_WAIT_MS)
        with tf.Session(graph=graph, config=config) as session:
            try:
                return [session.run(step, values) for step in fetches]
            except (TypeError, ValueError) as error:
                raise _Refused(f"client: {error}") from None


def _run_sent(found: Case, values: dict[str, Any]) -> list[Any]:
    try:
        wire = [node.to_wire() for node in found.nodes]
    except Exception as error:
        raise _Refused(f"client: {error}") from None
    options = SessionOptions(operation_timeout_s=_WAIT_MS / 1000)
    master = local_master(options)
    opened: Answer[Any] = Answer(master.reactor)
    open_session(master, [Node.from_wire(fields) for fields in wire], options, "", opened.done)
    session = opened.result()
    try:
        return [_sent_step(session, step, values) for step in found.sample.steps]
    finally:
        session.close()


def _sent_step(session: Any, fetches: list[str], values: dict[str, Any]) -> list[Any]:
    feeds = tuple(values)
    tensors = tuple(name for name in fetches if ":" in name)
    targets = tuple(name for name in fetches if ":" not in name)
    planned: Answer[Any] = Answer(session.cluster.reactor)
    session.prepare((feeds, tensors, targets), planned.done)
    done: Answer[Any] = Answer(session.cluster.reactor)
    timeout_s = _WAIT_MS / 1000
    step = session.new_step(planned.result(), lambda error, found, trace: done.done(error, found), timeout_s)
    step.start([values[name] for name in feeds])
    found: list[Any] = done.result(timeout_s, step.expire, step.describe)
    return found


def _bytes_of(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_bytes_of(item) for item in value]
    if hasattr(value, "dtype") and value.dtype != object:
        return value.dtype.str, value.shape, np.asarray(value).tobytes()
    return repr(value)


def _is_steady(row: Row) -> bool:
    """Whether a row computes the same each time: neither random numbers nor what earlier cases have left in files."""
    return row.compared != "shapes" and "tmp" not in row.text


def examine(memory: GuardedMemory, found: Case) -> tuple[str, str] | None:
    """Runs a case under both patterns; (kind, text) of what is wrong."""
    first, second = (outcome(memory, found, p, end) for p, end in zip(_PATTERNS, (True, False)))
    memory.collect()
    if memory.written_outside:
        return "written outside", f"beside arrays of {memory.written_outside} bytes"
    if memory.too_large:
        return "too much memory", "; ".join(sorted(set(memory.too_large)))
    for kind, text in (first, second):
        if kind == "wrong":
            return "wrong error", text
    if first[0] == second[0] == "values" and _is_steady(found.sample.row):
        texts = [_bytes_of(values) for _, values in (first, second)]
        if texts[0] != texts[1]:
            again = [outcome(memory, found, p, True) for p in _PATTERNS * 2]
            if all(kind == "values" for kind, _ in again) and [_bytes_of(v) for _, v in again] == texts * 2:
                return "foreign memory", f"{first[1]!r:.200} and {second[1]!r:.200}"
    return None


def child(first: int, count: int, pattern: str, records: int) -> None:
    """Runs cases and writes a line to the file ``records`` before and after each."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.getLogger("tfmini").setLevel(logging.CRITICAL)
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    case(0, folder, pattern)  # imports all ops
    memory = guard()
    tfmini.memory.free_memory = lambda: _FREE  # the same on every machine
    for seed in range(first, first + count):
        os.write(records, json.dumps([seed]).encode() + b"\n")
        found = case(seed, folder, pattern)
        wrong = examine(memory, found)
        memory.written_outside.clear()
        memory.too_large.clear()
        if wrong is not None:
            os.write(records, json.dumps([seed, found.sample.row.head, *wrong]).encode() + b"\n")
    os.write(records, b"[]\n")
    os._exit(0)  # the end of the interpreter would free arrays when the functions for it are gone


# ---- the parent ---------------------------------------------------------------------------------


def findings(first: int, count: int, pattern: str = "") -> Iterator[Finding]:
    """Runs the cases of so many seeds in child processes, and yields what is wrong.

    Args:
      pattern: a regular expression in the text of the samples.
    """
    end = first + count
    while first < end:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "tests.fuzz.kernels", "--child", str(writing), "--ops", pattern]
        with tempfile.TemporaryFile() as errors:
            seeds = ["--first", str(first), "--count", str(end - first)]
            process = subprocess.Popen(
                [*command, *seeds], pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=errors,
                env={**os.environ, CHECK_ENV: "1"},
            )  # fmt: skip
            os.close(writing)
            try:
                last = first - 1
                for record in _records(reading):
                    if len(record) > 1:
                        yield Finding(record[2], record[1], record[3], record[0])
                    last = record[0] if record else end
                if last < end:
                    yield _death(process, last, pattern, errors)
            finally:
                process.kill()
                process.wait()
                os.close(reading)
            first = last + 1


def _records(reading: int) -> Iterator[list[Any]]:
    """The lines of a child, until it ends or stays silent for the limit."""
    rest = b""
    limit_s = 6 * LIMIT_S  # the first line comes when it has imported all ops
    while select.select([reading], [], [], limit_s)[0]:
        limit_s = LIMIT_S
        part = os.read(reading, 1 << 16)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from map(json.loads, lines)


def _death(process: subprocess.Popen[bytes], seed: int, pattern: str, errors: Any) -> Finding:
    """What a child has died of, or that it had to be killed."""
    try:
        code: Any = process.wait(1.0)
    except subprocess.TimeoutExpired:
        code = None
    errors.seek(0)
    last = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    text = " < ".join(line for line in last if line.startswith("File"))[:900] or " ".join(last[-3:])
    kind = f"longer than {LIMIT_S:g} s" if code is None else f"died with {code}"
    return Finding(kind, _op_of(seed, pattern), text, seed)


def _op_of(seed: int, pattern: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return case(seed, folder, pattern).sample.row.head


def describe(seed: int, pattern: str = "") -> str:
    """The sample and the mutations of a seed, for people."""
    with tempfile.TemporaryDirectory() as folder:
        found = case(seed, folder, pattern)
        way = "sent" if found.sent else "fed"
        return "\n".join([f"seed {seed}, {way}: {found.sample.row.text}", *found.mutations])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--ops", default="", help="a regular expression: only the samples whose text has it")
    parser.add_argument("--only", type=int, help="replays one seed")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.first, options.count, options.ops, options.child)
        return 0
    first, count = (options.first, options.count) if options.only is None else (options.only, 1)
    if options.only is not None:
        print(describe(options.only, options.ops))
    if options.ops:
        rows(options.ops)  # ends here where there is none
    begun, kinds = time.monotonic(), defaultdict[tuple[str, str], list[int]](list)
    for found in findings(first, count, options.ops):
        kinds[found.kind, found.op].append(found.seed)
        if len(kinds[found.kind, found.op]) <= 2:
            print(f"seed {found.seed}: {found.op}: {found.kind}: {found.text}", flush=True)
    print(f"{count:,} cases in {time.monotonic() - begun:.0f} s, {sum(map(len, kinds.values()))} findings")
    for (kind, op), seeds in sorted(kinds.items()):
        print(f"{len(seeds):>6,}  {op}: {kind}: seeds {seeds[:5]}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
