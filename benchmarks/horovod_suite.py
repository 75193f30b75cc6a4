"""Runs Horovod's own tests for TensorFlow on tfmini, as `docs/reference/conformance.md` counts them.

    python benchmarks/horovod_suite.py SOURCE --np 2 --out r2.json

SOURCE is a checkout of Horovod; nothing of it is part of this repository. A run is one `tfmini launch` with a worker
per rank, in which all ranks run the same tests in one order and wait for each other between two tests. A test's outcome
is the worst of its ranks. Tests that fail are run once more, each in a launch of its own, since a rank that leaves a
test early may spoil the next one.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FILES = {
    "0.19": ["test/test_tensorflow.py"],
    "0.28": [f"test/parallel/test_tensorflow{part}.py" for part in ("", "_process_sets", "_process_sets_dynamic")],
}
ORDER = ("passed", "skipped", "failed")  # from good to bad
TEST_S, RUN_S = 240, 1500
# Why a test does not count: a pattern in the reason of its skip or in its text.
OUT_OF_REACH = {
    "gpu": r"GPU|gpu_required",
    "keras": r"tf\.keras|SyncBatchNormalization",
    "eager": r"[Ee]ager execution|GradientTape\(",
    "tensorflow 2": r"TF 2\.6",
}


def files_of(source: Path) -> list[Path]:
    """The test files of a checkout, for the version that it has."""
    found = [source / name for names in FILES.values() for name in names if (source / name).exists()]
    if not found:
        raise SystemExit(f"{source} has none of Horovod's tests for TensorFlow; give the folder with its test/.")
    return found


# ---- in a rank --------------------------------------------------------------------------------------------------


def _stand_in(name: str, **values: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(values)
    sys.modules[name] = module


def _skip_gpu(test: unittest.TestCase, message: str) -> None:
    test.skipTest(message)


def rank_main(file: str, out: str, only: str) -> None:
    """Runs the tests of one file in one rank; appends a line per test to ``out.RANK``."""
    task = json.loads(os.environ["TF_CONFIG"])
    rank, size = task["task"]["index"], len(task["cluster"]["worker"])
    os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"] = str(rank), str(size)
    # Helpers of Horovod's tests that come from its launcher; the tests use nothing else of them.
    _stand_in("common", mpi_env_rank_and_size=lambda: (rank, size), skip_or_fail_gpu_test=_skip_gpu)
    for name in ("horovod.runner", "horovod.runner.common", "horovod.runner.common.util"):
        _stand_in(name, __path__=[])
    _stand_in("horovod.runner.common.util.env", get_env_rank_and_size=lambda: (rank, size))
    tensorflow: Any = importlib.import_module("tensorflow")
    tensorflow.enable_eager_execution = lambda *_, **__: None  # the tests run in graph mode
    path = Path(file)
    sys.path[:0] = [str(path.parent)]
    module = importlib.import_module(path.stem)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    with open(f"{out}.{rank}", "a") as lines:
        for cls, tests in _by_class(suite, only).items():
            cls.setUpClass()
            for test in tests:
                outcome, why = _run(test)
                lines.write(json.dumps([test._testMethodName, outcome, why]) + "\n")
                lines.flush()


def _by_class(suite: unittest.TestSuite, only: str) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for test in _flat(suite):
        name = test._testMethodName
        if re.fullmatch(only, name) and name != "test_session":
            found.setdefault(type(test), []).append(test)
    return found


def _flat(suite: Iterable[Any]) -> Iterable[Any]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flat(item)
        else:
            yield item


class _Late(BaseException):
    """A test took too long."""


def _ring(*_: Any) -> None:
    raise _Late(f"longer than {TEST_S} s")


def _run(test: Any) -> tuple[str, str]:
    signal.signal(signal.SIGALRM, _ring)
    signal.alarm(TEST_S)
    try:
        test.setUp()
        getattr(test, test._testMethodName)()
        test.tearDown()
    except BaseException as error:  # noqa: BLE001 - pytest's skip is one, too
        if type(error).__name__ in ("SkipTest", "Skipped"):
            test.tearDown()
            return "skipped", str(error)
        return "failed", "".join(traceback.format_exception(error))[-2500:]
    finally:
        signal.alarm(0)
        test.doCleanups()
    return "passed", ""


# ---- the parent -------------------------------------------------------------------------------------------------


def launch(file: Path, ranks: int, only: str = ".*") -> dict[str, tuple[str, str]]:
    """Runs the tests of a file on so many ranks: the worst outcome of each test, with its reason."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "outcomes"
        command = [sys.executable, "-m", "tfmini", "launch", "--ps", "0", "--workers", str(ranks), "--keep-going"]
        command += ["--coordinator-timeout", str(RUN_S), __file__, "--rank-of", str(file), "--out", str(out)]
        subprocess.run([*command, "--only", only], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        parts = [_lines(Path(f"{out}.{rank}")) for rank in range(ranks)]
    missing = ("failed", "a rank ended before this test")
    return {
        name: max((part.get(name, missing) for part in parts), key=lambda outcome: ORDER.index(outcome[0]))
        for part in parts
        for name in part
    }


def _lines(path: Path) -> dict[str, tuple[str, str]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {name: (outcome, why) for name, outcome, why in rows}


def texts_of(file: Path) -> dict[str, str]:
    """The text of each test of a file."""
    parts = re.split(r"^    def (test_\w+)\(", file.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def out_of_reach(name: str, outcome: str, why: str, text: str) -> str:
    """Why a test does not count, or "": what was skipped for a reason, and what stands on eager mode or Keras."""
    searched = f"{name} {why}" if outcome == "skipped" else text if outcome == "failed" else ""
    if outcome == "failed" and "_executing_eagerly()" in text:
        searched = re.sub(r"GradientTape\(", "", text)  # it has a part for graphs, too
    return next((kind for kind, pattern in OUT_OF_REACH.items() if re.search(pattern, searched)), "")


def suite(source: Path, ranks: int) -> dict[str, Any]:
    """Runs all files of a checkout; the counts, and the tests that fail."""
    counts: collections.Counter[str] = collections.Counter()
    failed: dict[str, str] = {}
    for file in files_of(source):
        outcomes, texts = launch(file, ranks), texts_of(file)
        for name, (outcome, why) in outcomes.items():
            again = outcome == "failed" and not out_of_reach(name, outcome, why, texts.get(name, ""))
            outcome, why = launch(file, ranks, name).get(name, (outcome, why)) if again else (outcome, why)
            kind = out_of_reach(name, outcome, why, texts.get(name, ""))
            counts[f"needs {kind}" if kind else outcome] += 1
            if outcome == "failed" and not kind:
                failed[f"{file.name}:{name}"] = why
            print(f"{outcome:8} {kind:6} {file.name}:{name}", flush=True)
    return {"counts": dict(counts), "failed": failed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, nargs="?", help="a checkout of Horovod")
    parser.add_argument("--np", type=int, default=2, help="number of ranks")
    parser.add_argument("--out", default="", help="a JSON file for the result")
    parser.add_argument("--only", default=".*", help=argparse.SUPPRESS)
    parser.add_argument("--rank-of", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        rank_main(options.rank_of, options.out, options.only)
        return
    if options.source is None:
        parser.error("give a checkout of Horovod")
    result = suite(options.source, options.np)
    print(json.dumps(result["counts"]))
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
