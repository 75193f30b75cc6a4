"""Compressed gradients: nothing is lost, and training converges."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.show.inspection.api import inspect

EXAMPLES = Path(__file__).parents[3] / "examples"
WAYS = ["fp16", "int8", "topk:0.1"]
LATE_S = 120.0


@pytest.mark.parametrize("text", ["fp8", "topk", "topk:0", "topk:2", "topk:x", "int8:3"])
def test_an_unknown_way_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="compression is 'fp16', 'int8' or 'topk:FRACTION'"):
        tf.ParameterStore(compression=text)


@pytest.mark.parametrize("partition", [1, 3])
@pytest.mark.parametrize("staleness", [None, 0])
@pytest.mark.parametrize("way", WAYS)
def test_each_push_has_what_the_ones_before_left_out(way: str, staleness: int | None, partition: int) -> None:
    """The sum of all gradients is in the array, but for what the last push has left."""
    with tf.ParameterStore(compression=way, staleness=staleness, partition=partition) as store:
        store.declare("w", [20, 3])
        store.declare("n", (), tf.int64)
        store.declare("e", [5])
        random = np.random.RandomState(0)
        total = np.zeros((20, 3), np.float32)
        for turn in range(30):
            gradient = random.randn(20, 3).astype(np.float32)
            total += gradient
            store.push({"w": gradient, "n": 2, "e": tf.IndexedSlices(np.ones(1), [turn % 5])})
        zeros = {"w": np.zeros((20, 3), np.float32), "n": 0, "e": tf.IndexedSlices(np.zeros((0,)), [])}
        for _ in range(10):  # and then the rest comes
            store.push(zeros)
        np.testing.assert_allclose(store.pull("w"), total, atol={"topk:0.1": 1e-5}.get(way, 1e-4))
        assert (
            store.pull("n") == 60 and store.pull("e").tolist() == [6] * 5
        )  # whole numbers and rows are not compressed


def test_a_push_that_failed_leaves_no_trace() -> None:
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        tasks = cluster.tasks
        settings: dict[str, Any] = {"staleness": 0, "compression": "int8", "timeout_s": 1.0}
        with tf.ParameterStore(tasks[0], **settings) as one, tf.ParameterStore(tasks[1], **settings) as other:
            for store in (one, other):
                store.declare("w", [3])
            with pytest.raises(tf.errors.DeadlineExceededError):
                one.push({"w": np.array([1.0, 0.3, 0.001])})
            other.close()
            found = [one.push_pull({"w": [1.0, 0.3, 0.001]})["w"], *(one.push_pull({"w": [0.0] * 3})["w"],) * 1]
            assert found[0] == pytest.approx([1.0, 0.3, 0], abs=0.004)
            assert found[1] == pytest.approx([1.0, 0.3, 0.001], abs=1e-4)


@pytest.mark.parametrize("way", ["fp16", "int8", "topk:0.5"])
def test_a_number_that_is_not_finite_is_gone_when_values_are_set_again(way: str, tmp_path: Path) -> None:
    with tf.ParameterStore(compression=way) as store, np.errstate(invalid="ignore"):
        store.declare("w", [4])
        store.push({"w": np.ones(4)})
        path = store.save(str(tmp_path / "model"))
        for bad in (np.nan, np.inf, -np.inf):
            store.push({"w": [1, bad, 1, 1]})
            store.assign({"w": np.zeros(4)})
            found = [store.push_pull({"w": np.ones(4)})["w"] for _ in range(4)]
            np.testing.assert_allclose(found[-1], 4, atol=2.1)
            store.push({"w": [1, bad, 1, 1]})
            store.restore(path)
            assert np.isfinite(store.push_pull({"w": np.ones(4)})["w"]).all()


@pytest.mark.parametrize("set_anew", ["assign", "restore"])
def test_values_that_are_set_begin_without_the_residuals_of_earlier_gradients(set_anew: str, tmp_path: Path) -> None:
    with tf.ParameterStore(compression="topk:0.5") as store:
        for name in ("w", "other"):
            store.declare(name, [2])
        path = store.save(str(tmp_path / "model"))
        store.push({"w": [3, 1], "other": [3, 1]})
        if set_anew == "assign":
            store.assign({"w": np.zeros(2)})
        else:
            store.restore(path)
        for _ in range(2):
            store.push({"w": np.zeros(2), "other": np.zeros(2)})
        assert store.pull("w").tolist() == [0, 0]
        assert store.pull("other").tolist() == ([3, 1] if set_anew == "assign" else [0, 0])


_SCRIPT = """
import numpy as np
import tfmini as tf
with tf.LocalCluster(ps=1, workers=1) as cluster, tf.ParameterStore(cluster.target, compression={way!r}) as store:
    store.declare("w", [1000])
    store.push({{"w": np.ones(1000)}})
"""


@pytest.mark.parametrize(("way", "size"), [(None, 4000), ("fp16", 2000), ("int8", 1004), ("topk:0.01", 80)])
def test_the_inspector_shows_the_compressed_bytes(way: str | None, size: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(way=way))
    found = inspect(str(script), cluster={"ps": 1, "worker": 1})
    assert sum(transfer.bytes or 0 for transfer in found.transfers) == size


@pytest.mark.parametrize("way", ["int8", "topk:0.01"])
def test_the_digits_example_converges(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import digits_numpy

    def train(task: Any) -> float:
        with tf.ParameterStore(task, tf.train.AdagradOptimizer(0.5), staleness=0, compression=way) as store:
            return float(digits_numpy.train(store, task.index, 10))

    with tf.LocalCluster(ps=2, workers=2) as cluster:
        found = cluster.run(train, timeout_s=LATE_S)
    for module in ("digits", "digits_numpy"):
        sys.modules.pop(module, None)
    assert min(found) > 0.93
