"""The servers of every example, launched as a cluster of processes, register the graphs that the inspector shows."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.show.inspection.spy import rows
from tfmini import protos
from tfmini.placement.task_graph import Route
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.findings import Inspection

EXAMPLES = Path(__file__).parents[3] / "examples"
RUNS = {
    "digits_async.py": (2, 2, ["--steps=3"]),
    "digits_checkpoints.py": (1, 2, ["--steps=3"]),
    "digits_sync.py": (2, 2, ["--steps=3"]),
    "digits_in_graph.py": (1, 2, []),
    "digits_allreduce.py": (0, 2, ["--steps=2"]),
    "digits_local.py": (0, 2, ["--steps=2", "--period=2"]),
    "digits_numpy.py": (2, 2, ["--epochs=1"]),
    "factors_numpy.py": (2, 2, []),
    "wide_and_deep.py": (2, 2, ["--steps=3"]),
    "word_count.py": (1, 2, ["--epochs=1"]),
}


def test_no_example_is_left_out() -> None:
    assert {*RUNS, "digits.py"} == {path.name for path in EXAMPLES.glob("*.py")}  # they share digits.py


def records(script: str, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The plans of masters and the graphs that workers registered, in a run of an example."""
    ps, workers, arguments = RUNS[script]
    spy = Path(__file__).with_name("spy.py")
    command = [sys.executable, "-m", "tfmini", "launch", "--ps", str(ps), "--workers", str(workers), str(spy),
               str(folder), str(EXAMPLES / script), *arguments]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=400)
    lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return [r for r in lines if r["kind"] == "plan"], [r for r in lines if r["kind"] == "registered"]


def inspected(script: str, plan: dict[str, Any]) -> Inspection:
    ps, workers, _ = RUNS[script]
    graph_def = protos.GraphDef.FromString(base64.b64decode(plan["graph_def"]))
    # A session without a target runs in its own process.
    cluster = {"localhost": 1} if "localhost" in plan["master"] else {"ps": ps, "worker": workers}
    return inspect(graph_def, cluster=cluster, master=plan["master"].rpartition("/device")[0],
                   fetches=[*plan["fetches"], *plan["targets"]], feeds=plan["feeds"])  # fmt: skip


def numbered(text: str, first: int) -> str:
    """Names that the partitioner made, with the numbers that a session gives from ``first`` on."""
    return re.sub(r"_S(\d+)\b", lambda m: f"_S{int(m[1]) + first}", text)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("script", RUNS)
def test_servers_register_the_graphs_of_the_inspector(script: str, tmp_path: Path) -> None:
    if "digits" in script:
        pytest.importorskip("sklearn")
    plans, registered = records(script, tmp_path)
    ran = Counter(f"{r['task']} {json.dumps(r['nodes'])}" for r in registered)
    shown: Counter[str] = Counter()
    for plan in plans:
        found = inspected(script, plan)
        for task, graph in found.partitions.tasks.items():
            shown[f"{task} {numbered(json.dumps(rows(graph)), plan['first_number'])}"] += 1
        sent = sorted(name for graph in found.partitions.tasks.values() for name in graph.sends)
        assert sent == sorted(t.send for t in found.transfers if t.route in (Route.SENT, Route.INNER))
    assert plans and registered
    assert ran == shown
