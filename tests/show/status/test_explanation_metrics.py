"""Metrics in Prometheus's text format."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tfmini.runtime import snapshot as s
from tfmini.show.status.explanation import CLUSTER, METRICS, STALENESS, to_prometheus

DOCS = Path(__file__).parents[3] / "docs"
PS, WORKER = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"
PROMTOOL = os.environ.get("TFMINI_PROMTOOL") or shutil.which("promtool")


def full_cluster() -> s.ClusterSnapshot:
    """A snapshot with something of everything, odd names included."""
    link = s.LinkSnapshot('client at "h\\"\n', "ready", "zmq", 10, 20, 1, 2)
    accumulator = s.AccumulatorSnapshot("W/grad", 1, 2, 7, 3, 1, (s.ContributionSnapshot(WORKER, 3, 1),))
    ps = s.TaskSnapshot(
        PS, "h:1", uptime_s=1.5, cpu_s=0.25, memory_bytes=1 << 20, steps=3, links=(link,), accumulators=(accumulator,),
        waits=(s.WaitSnapshot("1", "", s.ELEMENT, "an element", 2.5, on="q"),),
        queues=(s.QueueSnapshot("q", "F", 0, -1),),
        collectives=(s.CollectiveSnapshot("1", 2, 5, 6, 7),), scalars=(s.ScalarSnapshot("loss", 4, float("nan"), 0.0),),
        staleness=(s.StalenessSnapshot(WORKER, 6, 1.5, 0, 9, (3, 1, 1, 0, 1)),), counters={"malformed": 2},
    )  # fmt: skip
    return s.ClusterSnapshot("h:1", 0.0, 0.04, (ps, s.TaskSnapshot(WORKER, "h:2", s.SILENT, "refused")))


def test_the_text_has_help_type_and_the_values_of_each_task() -> None:
    text = to_prometheus(full_cluster())
    for line in (
        "# HELP tfmini_up 1 if the task answers, else 0.\n# TYPE tfmini_up gauge\n",
        f'tfmini_up{{task="{PS}"}} 1\ntfmini_up{{task="{WORKER}"}} 0\n',
        f'tfmini_cpu_seconds_total{{task="{PS}"}} 0.25\n',
        f'tfmini_link_sent_bytes_total{{task="{PS}",peer="client at \\"h\\\\\\"\\n"}} 10\n',
        f'tfmini_waits{{task="{PS}",kind="element"}} 1\n',
        f'tfmini_gradients_dropped_total{{task="{PS}",accumulator="W/grad",worker="{WORKER}"}} 1\n',
        f'tfmini_scalar{{task="{PS}",tag="loss"}} NaN\n',
        "tfmini_deadlocks 0\n",
    ):
        assert line in text
    assert text.count(f'task="{WORKER}"}} ') == 1  # a silent task has no counters that would seem to fall


def test_staleness_is_a_histogram() -> None:
    text = to_prometheus(full_cluster())
    found = re.findall(rf'{STALENESS}_bucket{{[^}}]*le="([^"]+)"}} (\d+)', text)
    assert found == [("0", "3"), ("1", "4"), ("3", "5"), ("7", "5"), ("+Inf", "6")]
    assert f'{STALENESS}_sum{{task="{PS}",worker="{WORKER}"}} 9\n' in text


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Debian's package prometheus (TFMINI_PROMTOOL)")
def test_promtool_accepts_the_metrics() -> None:
    for cluster in (full_cluster(), s.ClusterSnapshot("", 0.0, 0.0, ())):
        text = to_prometheus(cluster)
        command = [str(PROMTOOL), "check", "metrics"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=200)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_page_documents_every_metric_and_the_board_uses_no_other() -> None:
    names = {metric.name for metric in METRICS} | {STALENESS} | {name for name, _ in CLUSTER}
    page = (DOCS / "guides" / "status.md").read_text()
    assert set(re.findall(r"^\| `(tfmini_\w+)` ", page, re.MULTILINE)) == names
    board = json.loads((DOCS / "reference" / "grafana.json").read_text())
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", name) if name.startswith(STALENESS) else name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\btfmini_\w+", target["expr"])
    }
    assert shown and shown <= names
