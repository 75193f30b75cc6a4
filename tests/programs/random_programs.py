"""Random programs with control flow, on one task, two devices and three tasks, beside TensorFlow.

    python -m tests.programs.random_programs --count 2000
    python -m tests.programs.random_programs --only 17
    python -m tests.programs.random_programs --freeze

`generator` makes the programs. ``TFMINI_ORACLE`` names the Python that has TensorFlow. Where TensorFlow refuses a
program (it has errors of its own in gradients of loops), tfmini's forms are compared with each other. Random devices
may contradict a colocation, which TensorFlow refuses as well: such a form counts as refused.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tfmini as tf
from tests.oracle import Oracle
from tests.programs.generator import outcome, outcomes

ANSWERS = Path(__file__).with_name("answers.json")
FROZEN = (*range(40), 311, 1398)
"""The seeds of the slice in the suite; behind the first ones, those that have found a fault."""
_BATCH = 100
_TASKS = ["/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"]
_LIMIT_MS = 60_000

Form = Callable[[int], Any]
"""Runs the program of a seed; returns its numbers, or its error as text."""


@contextmanager
def forms() -> Iterator[dict[str, Form]]:
    """The ways in which tfmini runs a program."""
    log = logging.getLogger("tensorflow")
    level = log.level
    log.setLevel(logging.ERROR)
    config = tf.ConfigProto(operation_timeout_in_ms=_LIMIT_MS)
    two = tf.ConfigProto(operation_timeout_in_ms=_LIMIT_MS, device_count={"CPU": 2})
    workers, servers = tf.test.create_local_cluster(num_workers=2, num_ps=1)
    target = workers[0].target
    try:
        yield {
            "one task": lambda seed: outcome(tf, seed, config=config),
            "two devices": lambda seed: outcome(tf, seed, "", ["/cpu:0", "/cpu:1"], two),
            "three tasks": lambda seed: outcome(tf, seed, target, _TASKS, config),
        }
    finally:
        log.setLevel(level)
        for server in [*workers, *servers]:
            server.stop()


def difference(ways: dict[str, Form], seed: int, answer: Any, counts: Counter[str] | None = None) -> str | None:
    """What a form computes that the others do not; None if all agree with ``answer``, TensorFlow's outcome."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gradients of unknown shape become dense
        found = {name: run(seed) for name, run in ways.items()}
    expected = answer if isinstance(answer, list) else found["one task"]
    for name, result in found.items():
        is_refused = name != "one task" and isinstance(result, str) and "Cannot colocate nodes" in result
        if counts is not None:
            counts[f"{'refused' if is_refused else 'ran'} on {name}"] += 1
        if not is_refused and not _agree(result, expected):
            return f"{name}: {str(result)[:600]}, not {str(expected)[:600]}"
    return None


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a.split(":")[0] == b.split(":")[0]
    if [len(run) for run in a] != [len(run) for run in b]:
        return False
    return all(np.allclose(x, y, rtol=1e-3, atol=1e-4, equal_nan=True) for x, y in zip(a, b))


def _answers(oracle: Oracle | None, seeds: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Each seed with TensorFlow's outcome, or None without TensorFlow."""
    for first in range(0, len(seeds), _BATCH):
        batch = list(seeds[first : first + _BATCH])
        yield from zip(batch, [None] * len(batch) if oracle is None else oracle.call(outcomes, batch))


def _freeze(oracle: Oracle) -> None:
    rows = {
        seed: answer if isinstance(answer, str) else [[float(f"{x:.6g}") for x in run] for run in answer]
        for seed, answer in _answers(oracle, FROZEN)
    }
    lines = ",\n".join(f'"{seed}": {json.dumps(row)}' for seed, row in rows.items())
    ANSWERS.write_text("{\n" + lines + "\n}\n")


def _run(oracle: Oracle | None, seeds: Sequence[int]) -> int:
    begin, failed = time.monotonic(), []
    counts: Counter[str] = Counter()
    with forms() as ways:
        for seed, answer in _answers(oracle, seeds):
            if oracle is not None:
                counts["refused by TensorFlow" if isinstance(answer, str) else "compared with TensorFlow"] += 1
            told = difference(ways, seed, answer, counts)
            if told is not None:
                failed.append(seed)
                print(f"program {seed} differs: {told}", flush=True)
            elif len(seeds) == 1:
                print(f"program {seed}: {answer}")
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{len(seeds)} programs in {time.monotonic() - begin:.0f} s, {told}. Failing seeds: {failed}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--only", type=int)
    parser.add_argument("--freeze", action="store_true", help="write TensorFlow's outcomes of the slice in the suite")
    options = parser.parse_args()
    python = os.environ.get("TFMINI_ORACLE")
    oracle = Oracle(python) if python and Path(python).exists() else None
    if options.freeze:
        assert oracle is not None, "TFMINI_ORACLE must name a Python that has TensorFlow"
        _freeze(oracle)
        return 0
    only = options.only
    return _run(oracle, [only] if only is not None else range(options.seed, options.seed + options.count))


if __name__ == "__main__":
    sys.exit(main())
