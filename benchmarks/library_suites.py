"""Runs the unit tests of a library built on TensorFlow 1, on tfmini or on TensorFlow.

`docs/reference/conformance.md` has the results.

    python benchmarks/library_suites.py SOURCE --target tfmini --out ours.json
    python benchmarks/library_suites.py SOURCE --target tensorflow --python ORACLE --path SHIM --out theirs.json
    python benchmarks/library_suites.py --compare ours.json theirs.json

SOURCE is a checkout of the library; nothing of it is part of this repository. Each test file runs in a process of its
own with pytest, in which ``import tensorflow`` means the target. SHIM is a folder whose package ``tensorflow`` is
`tensorflow.compat.v1` without the behaviour of version 2 (`../shared/corpus/shim`). ``--path`` also takes folders with
the packages that the library needs. A test that TensorFlow passes counts; the comparison lists those that fail here.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PATTERNS = ("*_test.py", "test_*.py")


# ---- in the process of one test file ----------------------------------------------------------------------------


class _Late(BaseException):
    """A test took too long."""


class Recorder:
    """A plugin of pytest that appends a line for each test to a file, and ends a test that takes too long."""

    def __init__(self, out: str, limit_s: int) -> None:
        self._out, self._limit_s = out, limit_s

    def pytest_runtest_setup(self, item: Any) -> None:
        signal.signal(signal.SIGALRM, self._ring)
        signal.alarm(self._limit_s)

    def pytest_runtest_teardown(self, item: Any) -> None:
        signal.alarm(0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._write(report.nodeid, report.outcome, report.longreprtext[-4000:])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(f"{report.nodeid}::(import)", "failed", report.longreprtext[-4000:])

    def _ring(self, *_: Any) -> None:
        raise _Late(f"longer than {self._limit_s} s")

    def _write(self, name: str, outcome: str, why: str) -> None:
        with open(self._out, "a") as lines:
            lines.write(json.dumps([name, outcome, why if outcome == "failed" else ""]) + "\n")


def restore_removed_names() -> None:
    """Gives Python and NumPy the names that they had in 2019, for both targets alike."""
    numpy: Any = importlib.import_module("numpy")
    for name in ("Iterable", "Iterator", "Mapping", "MutableMapping", "Sequence", "Hashable", "Callable"):
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    vars(inspect).setdefault("getargspec", lambda function: inspect.getfullargspec(function)[:4])
    old = {"int": int, "float": float, "object": object, "complex": complex, "product": numpy.prod, "Inf": numpy.inf}
    for name, value in {**old, "infty": numpy.inf, "asscalar": lambda array: array.item()}.items():
        if name not in dir(numpy):
            setattr(numpy, name, value)


def run_file(file: Path, target: str, out: str, limit_s: int, only: str) -> None:
    """Runs the tests of one file in this process."""
    pytest: Any = importlib.import_module("pytest")
    restore_removed_names()
    if target == "tfmini":
        importlib.import_module("tfmini.compat.internals").install()
    # The tests' own warnings and their exits at the end of a main program say nothing about the target.
    arguments = [str(file), "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-W", "ignore", "-c", os.devnull]
    arguments += ["--rootdir", os.getcwd(), *(["-k", only] if only else [])]
    os._exit(int(pytest.main(arguments, plugins=[Recorder(out, limit_s)])))


# ---- the parent -------------------------------------------------------------------------------------------------


def outcomes(source: Path, file: Path, options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Runs one file: test -> its outcome (passed, failed, skipped) and why."""
    paths = [*map(str, options.path), str(source), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "outcomes"
        command = [options.python, str(Path(__file__).resolve()), "--file", str(file), "--target", options.target]
        command += ["--out", str(out), "--limit", str(options.limit), "--only", options.only]
        log = Path(folder) / "log"
        with log.open("w") as text:
            subprocess.run(command, cwd=source, env=environment, stdout=text, stderr=text, check=False)
        if not out.exists():
            return {f"{file}::(process)": ("failed", log.read_text(errors="replace")[-4000:])}
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {name: (outcome, why) for name, outcome, why in rows}


def suite(options: argparse.Namespace) -> None:
    """Runs all test files of a checkout and writes the outcomes."""
    source = options.source.resolve()
    found = sorted({path for pattern in PATTERNS for path in source.rglob(pattern)})
    files = [path.relative_to(source) for path in found]
    files = [file for file in files if not options.files or any(word in str(file) for word in options.files)]
    result: dict[str, tuple[str, str]] = {}
    if options.resume and Path(options.out).exists():
        result = json.loads(Path(options.out).read_text())
    for file in files:
        one = outcomes(source, file, options)
        result = {name: value for name, value in result.items() if not name.startswith(f"{file}::") or options.only}
        result.update(one)
        print(file, dict(collections.Counter(outcome for outcome, _ in one.values())), flush=True)
        Path(options.out).write_text(json.dumps(result, indent=1))


def compare(ours: Path, theirs: Path) -> None:
    """Prints which tests that pass in the second result fail in the first, and the counts."""
    here, there = json.loads(ours.read_text()), json.loads(theirs.read_text())
    counted = [name for name, (outcome, _) in there.items() if outcome == "passed"]
    missed = [name for name in counted if here.get(name, ("absent", ""))[0] != "passed"]
    for name in missed:
        outcome, why = here.get(name, ("absent", ""))
        print(f"{outcome} {name}\n    {_reason(why)}")
    passed = len(counted) - len(missed)
    print(f"{passed} of {len(counted)} pass ({100 * passed / max(1, len(counted)):.1f} %)")


def _reason(why: str) -> str:
    lines = [line for line in why.splitlines() if line.startswith("E ")]
    return " | ".join(line[2:].strip() for line in lines[-2:]) or why[-200:].replace("\n", " | ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", help="a checkout of a library")
    parser.add_argument("--files", action="append", default=[], help="only test files with this word in their path")
    parser.add_argument("--target", choices=("tfmini", "tensorflow"), default="tfmini")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the target")
    parser.add_argument("--path", action="append", default=[], help="a folder for PYTHONPATH; may be repeated")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one test")
    parser.add_argument("--only", default="", help="only tests that match pytest's -k")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes of other files that --out has")
    parser.add_argument("--out", default="outcomes.json")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OURS", "THEIRS"))
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare)
    elif options.file:
        run_file(options.file, options.target, options.out, options.limit, options.only)
    elif options.source:
        suite(options)
    else:
        parser.error("give a checkout")


if __name__ == "__main__":
    main()
