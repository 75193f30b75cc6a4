"""Runs the unit tests of a library built on TensorFlow 1, on tfmini or on TensorFlow.

`docs/lab-book/programs.md` has the results beside TensorFlow 1.15.5, `docs/reference/conformance.md` those beside 2.21.

    python benchmarks/library_suites.py SOURCE --target tfmini --out ours.json
    python benchmarks/library_suites.py SOURCE --target tensorflow --python ORACLE --path SHIM --out theirs.json
    python benchmarks/library_suites.py --compare ours.json theirs.json --both

SOURCE is a checkout of the library; nothing of it is part of this repository. Each test file runs with pytest in a fork
of a process in which ``import tensorflow`` means the target; ``--cpu`` cuts a file that takes too long. ORACLE is a
Python with the target and with pytest 7: TensorFlow 1.15.5 (a copy of `.oracle1x`, whose packages the tests of tfmini
need as they are, after ``pip install 'pytest<8'``), without a SHIM; for TensorFlow 2, SHIM is a folder whose package
``tensorflow`` is `tensorflow.compat.v1` without the behaviour of version 2 (`../shared/corpus/shim`). ``--path`` also
takes folders with the packages that the library needs. A test that TensorFlow passes counts; the comparison lists those
that fail here. With ``--both`` only the files count that ran on both sides, as in the table of the lab book.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the Python of the time knows no dict[str, str]
    from collections.abc import Iterator

    Outcomes = dict[str, tuple[str, str]]
PATTERNS = ("*_test.py", "test_*.py")


# ---- in the process of one test file ----------------------------------------------------------------------------


class _Late(BaseException):
    """A test took too long."""


class Recorder:
    """A plugin of pytest that appends a line for each test to a file, and ends a test that takes too long."""

    def __init__(self, out: str, limit_s: int) -> None:
        self._out, self._limit_s = out, limit_s

    def pytest_runtest_setup(self, item: Any) -> None:
        flags = sys.modules.get("absl.flags")
        if flags and not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # the main program of absl does so; tests read their temporary folder
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


def prepare(target: str, preload: list[str]) -> None:
    """Imports the target and some modules, and for tfmini gives Python back what it had, as `tfmini run` does."""
    if target == "tfmini":
        for name in ("tfmini.compat.internals", "tfmini.compat.old_python"):
            importlib.import_module(name).install()
    for name in ("tensorflow", "pytest", *preload):
        importlib.import_module(name)


def run_file(file: str, out: str, limit_s: int, only: str) -> None:
    """Runs the tests of one file in this process, which ends with them."""
    pytest: Any = importlib.import_module("pytest")
    sys.argv = [file]
    # The tests' own warnings and their exits at the end of a main program say nothing about the target.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins take a second for each file
    # An error of a finalizer is formatted by parsing code, which breaks another parse of Python 3.11 if the collector
    # has interrupted one.
    off = [
        word for plugin in ("cacheprovider", "faulthandler", "unraisableexception") for word in ("-p", f"no:{plugin}")
    ]
    arguments = [file, "-q", *off]
    arguments += ["-W", "ignore", "-c", os.devnull, "--rootdir", os.getcwd(), *(["-k", only] if only else [])]
    os._exit(int(pytest.main(arguments, plugins=[Recorder(out, limit_s)])))


def run_files(options: argparse.Namespace) -> None:
    """Runs each file in a fork of this process, which imports the target once."""
    prepare(options.target, options.preload)
    for number, file in enumerate(options.file):
        process = os.fork()
        if not process:
            with open(f"{options.out}/{number}.log", "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            if options.cpu:
                resource.setrlimit(resource.RLIMIT_CPU, (options.cpu, options.cpu))
            run_file(file, f"{options.out}/{number}", options.limit, options.only)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):  # by the limit of CPU time, or a crash: the tests behind it did not run
            with open(f"{options.out}/{number}", "a") as lines:
                why = f"ended by signal {os.WTERMSIG(status)}"
                lines.write(json.dumps([f"{file}::(process)", "failed", why]) + "\n")
        print(number, flush=True)


# ---- the parent -------------------------------------------------------------------------------------------------


def outcomes(source: Path, files: list[Path], options: argparse.Namespace) -> Iterator[tuple[Path, Outcomes]]:
    """Runs the files: for each, test -> its outcome (passed, failed, skipped) and why."""
    paths = [*map(os.path.abspath, options.path), str(source), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with tempfile.TemporaryDirectory() as folder:
        command = [options.python, str(Path(__file__).resolve()), "--target", options.target, "--out", folder]
        command += ["--limit", str(options.limit), "--cpu", str(options.cpu), "--only", options.only]
        command += [*(f"--preload={name}" for name in options.preload), *(f"--file={file}" for file in files)]
        child = subprocess.Popen(command, cwd=source, env=environment, stdout=subprocess.PIPE, text=True)
        for line in filter(str.isdigit, map(str.strip, child.stdout or ())):  # libraries print when they are imported
            yield files[int(line)], _read(Path(folder) / line, files[int(line)])
        child.wait()


def _read(out: Path, file: Path) -> Outcomes:
    if not out.exists():
        return {f"{file}::(process)": ("failed", Path(f"{out}.log").read_text(errors="replace")[-4000:])}
    return {name: (outcome, why) for name, outcome, why in map(json.loads, out.read_text().splitlines())}


def suite(options: argparse.Namespace) -> None:
    """Runs all test files of a checkout and writes the outcomes."""
    source = options.source.resolve()
    found = sorted({path for pattern in PATTERNS for path in source.rglob(pattern)})
    files = [path.relative_to(source) for path in found]
    files = [file for file in files if not options.files or any(word in str(file) for word in options.files)]
    result: Outcomes = {}
    if options.resume and Path(options.out).exists():
        result = json.loads(Path(options.out).read_text())
    if options.only_missing:
        done = {name.partition("::")[0] for name in result}
        files = [file for file in files if str(file) not in done]
    for file, one in outcomes(source, files, options):
        result = {name: value for name, value in result.items() if not name.startswith(f"{file}::") or options.only}
        result.update(one)
        print(file, dict(collections.Counter(outcome for outcome, _ in one.values())), flush=True)
        Path(options.out).write_text(json.dumps(result, indent=1))


def compare(ours: Path, theirs: Path, both: bool) -> None:
    """Prints which tests that pass in the second result fail in the first, and the counts; `both`: of common files."""
    here, there = json.loads(ours.read_text()), json.loads(theirs.read_text())
    if both:
        ran = {name.partition("::")[0] for name in here}
        there = {name: value for name, value in there.items() if name.partition("::")[0] in ran}
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
    parser.add_argument("--preload", action="append", default=[], help="a module to import once, before the forks")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one test")
    parser.add_argument("--cpu", type=int, default=0, help="seconds of CPU for one file, then it is cut; 0: no limit")
    parser.add_argument("--only", default="", help="only tests that match pytest's -k")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes of other files that --out has")
    parser.add_argument("--only-missing", action="store_true", help="with --resume: only files that --out lacks")
    parser.add_argument("--out", default="outcomes.json")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OURS", "THEIRS"))
    parser.add_argument("--both", action="store_true", help="compare only the files that both results have")
    parser.add_argument("--file", action="append", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare, options.both)
    elif options.file:
        run_files(options)
    elif options.source:
        suite(options)
    else:
        parser.error("give a checkout")


if __name__ == "__main__":
    main()
