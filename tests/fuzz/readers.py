"""Gives damaged files and texts to everything that reads them, and checks that each is refused with a clean error.

``python -m tests.fuzz.readers --inputs 100000`` runs the whole count; the tests run a slice. An input follows from the
seed and its number alone, so ``--only NUMBER`` replays one. Each has its time; the process has a limit of memory.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("TFMINI_INFLATE_LIMIT", str(32 << 20))

from tests.fuzz.damage import Files  # noqa: E402
from tests.fuzz.formats import CLEAN, Format, formats  # noqa: E402
from tfmini import errors  # noqa: E402

MEMORY, SECONDS = 1 << 30, 5.0


class _TooSlow(BaseException):
    """An input has had its time."""


@contextmanager
def _limited_time() -> Iterator[None]:
    """Ends the block after `SECONDS` of computing; a block that holds the interpreter ends the process later."""

    def expired(*_: object) -> None:
        raise _TooSlow

    previous = signal.signal(signal.SIGVTALRM, expired)
    faulthandler.dump_traceback_later(20 * SECONDS, exit=True)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGVTALRM, previous)


class Fuzzer:
    """Makes inputs and gives them to their readers.

    Args:
      seed: of all inputs.
      only: names of formats; empty for all.
    """

    def __init__(self, seed: int, only: list[str]) -> None:
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="tfmini-fuzz-"))
        self.formats = [f for f in formats(self.folder / "seeds") if not only or f.name in only]
        self._weights = [f.weight for f in self.formats]
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.failures: dict[str, list[int]] = {}
        self.slowest = (0.0, "", -1)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def input(self, number: int) -> tuple[Format, Files]:
        """The format and the files of one input."""
        pick = random.Random(f"{self.seed}/{number}")
        (form,) = pick.choices(self.formats, self._weights)
        return form, form.damaged(pick)

    def run(self, number: int) -> str:
        """Reads one input; returns what was wrong, "" for nothing."""
        form, files = self.input(number)
        place = self.folder / "input"
        shutil.rmtree(place, ignore_errors=True)
        for name, content in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        began = time.process_time()
        try:
            with _limited_time():
                outcome, wrong = _outcome(form, place)
        except _TooSlow:
            outcome, wrong = "too slow", f"takes more than {SECONDS:g} s{_innermost(sys.exc_info()[1])}"
        took = time.process_time() - began
        self.slowest = max(self.slowest, (took, form.name, number))
        self.outcomes[f"{form.name}: {outcome}"] += 1
        if wrong:
            self.failures.setdefault(f"{form.name}: {wrong}", []).append(number)
        return wrong


def _outcome(form: Format, place: Path) -> tuple[str, str]:
    """How the reading ended, and what was wrong with that."""
    try:
        form.read(place)
        return "read", ""
    except Exception as error:  # noqa: BLE001 - that is the question
        name = type(error).__name__
        cause = error.__cause__ if isinstance(error, errors.ResourceExhaustedError) else None
        if isinstance(cause, MemoryError):
            return name, f"takes more than {MEMORY >> 20} MiB: {str(error)[:100]}{_innermost(cause)}"
        if type(error) in (*CLEAN, *form.allowed):
            return name, ""
        return name, f"{name}: {str(error).splitlines()[0][:100] if str(error) else ''}{_innermost(error)}"


def _innermost(error: BaseException | None) -> str:
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__ if error else None)
        if f"{os.sep}tfmini{os.sep}" in f.filename
    ]
    return f" at {frames[-1].filename.partition('/tfmini/')[2]}:{frames[-1].lineno}" if frames else ""


def _in_parallel(options: argparse.Namespace) -> int:
    """Runs so many processes with a share of the numbers each; returns how many have failed."""
    share = -(-options.inputs // options.jobs)
    command = [sys.executable, "-m", "tests.fuzz.readers", "--seed", str(options.seed), "--inputs", str(share)]
    command += [part for name in options.formats for part in ("--format", name)]
    running = [subprocess.Popen([*command, "--first", str(options.first + i * share)]) for i in range(options.jobs)]
    return sum(process.wait() != 0 for process in running)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="the number of one input, which is replayed with its traceback")
    parser.add_argument("--format", dest="formats", action="append", default=[], help="only inputs of this format")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the inputs")
    options = parser.parse_args()
    if options.jobs > 1 and options.only is None:
        return _in_parallel(options)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    fuzzer = Fuzzer(options.seed, options.formats)
    resource.setrlimit(resource.RLIMIT_AS, (_memory() + MEMORY, resource.RLIM_INFINITY))
    try:
        return _replay(fuzzer, options.only) if options.only is not None else _run(fuzzer, options)
    finally:
        fuzzer.close()


def _memory() -> int:
    """The address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _replay(fuzzer: Fuzzer, number: int) -> int:
    form, files = fuzzer.input(number)
    print(f"{form.name}: {', '.join(f'{name} of {len(content)} bytes' for name, content in files.items())}")
    print(fuzzer.run(number) or "nothing wrong")
    with _limited_time():
        form.read(fuzzer.folder / "input")
    return 0


def _run(fuzzer: Fuzzer, options: argparse.Namespace) -> int:
    for number in range(options.first, options.first + options.inputs):
        fuzzer.run(number)
        if (number + 1 - options.first) % 5000 == 0:
            print(f"{number + 1:>9,}; {len(fuzzer.failures)} kinds of failures", flush=True)
    for outcome, count in sorted(fuzzer.outcomes.items()):
        print(f"{count:>9,}  {outcome}")
    took, form, number = fuzzer.slowest
    print(f"slowest: {took:.2f} s, {form}, --only {number}")
    for wrong, numbers in sorted(fuzzer.failures.items()):
        print(f"FAILED {len(numbers):>5}  {wrong}  (--only {numbers[0]})")
    return 1 if fuzzer.failures else 0


if __name__ == "__main__":
    sys.exit(main())
