"""What goes wrong between the ranks of a collective, with real processes: six failures, six texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster

_WORKER = """
import json, logging, os, sys
import tfmini as tf
from tfmini.train.replicas.elastic import Ranks
cluster, index, scenario, fifo = json.loads(sys.argv[1]), int(sys.argv[3]), sys.argv[4], sys.argv[5]

class Show(logging.Handler):
    def emit(self, record):
        print("WARNING", record.getMessage().replace(chr(10), " "), flush=True)

log = logging.getLogger("tfmini")
log.addHandler(Show()); log.setLevel(logging.WARNING); log.propagate = False
server = tf.train.Server(cluster, job_name="worker", task_index=index)
count = len(cluster["worker"])
ranks = Ranks(count, index)
odd = index == 1
name = "b" if odd and scenario == "name" else "" if scenario == "earlier" else "a"
size = 4 if odd and scenario == "shape" else 3
dtype = tf.float64 if odd and scenario == "dtype" else tf.float32
first = ranks.all_reduce(tf.zeros([size], dtype), name)
if scenario == "root":  # each rank takes itself for it
    first = ranks.broadcast(tf.zeros([3]), index, name)
with tf.control_dependencies([first] if scenario == "skipped" and not odd else []):
    second = ranks.all_reduce(tf.ones([200_000]), name and "second")
session = tf.Session(server.target)

def meet(session):  # rank 1 fails before the first or second result of a step, when rank 0 has got both
    third = session.make_callable([first.op] if scenario == "steps" else [first.op, second.op])
    executor, wanted = server.worker.collectives, 2 if scenario == "part" else 1
    if odd:
        answer, seen = executor.answer, []
        def fail_at(member, exchange):
            seen.append(exchange)
            if len(seen) != wanted:
                return answer(member, exchange)
            open(fifo).read()
            executor.fail(member, tf.errors.UnavailableError(None, None, "cut by a test"), True)
        executor.answer = fail_at
    for _ in range(3):
        try:
            third()
            print("WARNING finished", flush=True)
        except tf.errors.UnavailableError:  # rank 0 may have begun the next step
            executor.answer = answer if odd else executor.answer

print("ready", flush=True)
try:
    if odd and scenario in ("skipped", "earlier"):
        session.run(second.op)
    if scenario in ("dead", "slow"):
        session.run([first.op, second.op])
    if odd and scenario == "dead":
        os.kill(os.getpid(), 9)
    if odd and scenario == "slow":
        open(fifo).read()  # until the test lets it go
    session.run([first.op, second.op])
    if scenario == "earlier":
        session.run([first.op, second.op])
    if scenario in ("steps", "part"):
        meet(session)
    print("OK", flush=True)
except tf.errors.OpError as error:
    text = str(error).replace(chr(10), " ")
    print("ERROR", type(error).__name__, text, flush=True)
server.join()
"""


def outcomes(scenario: str, workers: int = 2, fifo: str = "-") -> tuple[list[str], list[str]]:
    """What all ranks come to, and their warnings. A rank that waits for ever runs into the limit of the test."""
    with ProcessCluster(ps=0, workers=workers, program=_WORKER, arguments=[scenario, fifo]) as cluster:
        for i in range(workers):
            cluster.wait_ready("worker", i)
        results: list[str] = []
        warnings: list[str] = []
        for process in cluster.processes.values():
            assert process.stdout is not None
            while (line := process.stdout.readline()).startswith("WARNING"):
                warnings.append(line)
                if fifo != "-" and len(warnings) == 1:
                    Path(fifo).write_text("go")
            results.append(line)
        return results, warnings


@pytest.mark.parametrize(
    ("scenario", "parts"),
    [
        ("name", ["call skipped: rank", "waits in", '"a" all-reduce', '"b" all-reduce']),
        ("shape", ["Shape mismatch in a collective: rank", "float32[3]", "float32[4]"]),
        ("dtype", ["Dtype mismatch in a collective: rank", "float32[3]", "float64[3]"]),
        ("root", ["Op mismatch in a collective: rank", '"a_1" broadcast(from rank 0)', '"a_1" broadcast(from rank 1)']),
        ("skipped", ["call skipped: rank", "waits in", '"a" all-reduce', '"second" all-reduce']),
        ("earlier", ["call skipped: rank 1 (", "left one out in an earlier step", "step 1", "step 2"]),
    ],
)
def test_a_mismatch_between_ranks_shows_both_sides(scenario: str, parts: list[str]) -> None:
    lines, _ = outcomes(scenario)
    errors = [line for line in lines if line.startswith("ERROR FailedPreconditionError")]
    assert len(errors) == 2, lines
    for line in errors:
        for part in (*parts, "rank 0 (/job:worker/replica:0/task:0", "rank 1 (/job:worker/replica:0/task:1"):
            assert part in line


@pytest.mark.parametrize("scenario", ["steps", "part"])
def test_ranks_at_different_steps_are_told(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_LANE", "off")  # in messages, a rank has its result before the other one has
    fifo = str(tmp_path / "go")
    os.mkfifo(fifo)
    results, warnings = outcomes(scenario, fifo=fifo)
    assert warnings == ["WARNING finished\n"]
    other = "has finished 1" if scenario == "steps" else "has the results of a part of a step"
    for line in results:
        assert line.startswith("ERROR FailedPreconditionError"), results
        assert "/job:worker/replica:0/task:0/device:CPU:0 has finished 2, " in line
        assert f"/job:worker/replica:0/task:1/device:CPU:0 {other}." in line


def test_a_dead_rank_is_named() -> None:
    lines, _ = outcomes("dead", workers=3)
    failed = [line for line in lines if line.startswith("ERROR")]
    assert len(failed) == 2
    for line in failed:
        assert line.startswith("ERROR UnavailableError"), lines
        assert "rank 1 (/job:worker/replica:0/task:1" in line


def test_a_slow_rank_causes_a_warning_and_is_waited_for(tmp_path: Path) -> None:
    fifo = str(tmp_path / "go")
    os.mkfifo(fifo)
    results, warnings = outcomes("slow", fifo=fifo)
    assert warnings[0].startswith("WARNING Slow rank: rank 0"), warnings
    assert "for rank 1 (/job:worker/replica:0/task:1" in warnings[0]
    assert "all-reduce(Add, Id) float32[" in warnings[0]
    assert results == ["OK\n", "OK\n"], results
