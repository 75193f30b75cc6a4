"""The examples run as their README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfmini as tf

REPOSITORY = Path(__file__).parents[1]

pytestmark = pytest.mark.cluster


def launch(*arguments: str) -> str:
    """What `tfmini launch` prints for an example, which must end well."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tfmini", "launch", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_training_with_checkpoints_goes_on_where_it_ended(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    script = "examples/digits_checkpoints.py"

    def train(steps: int) -> str:
        options = (f"--logdir={tmp_path}", f"--steps={steps}", "--save_steps=20", "--keep=2")
        return launch("--ps", "1", "--workers", "2", script, *options)

    assert "a new run in" in train(40)
    first = str(tf.train.latest_checkpoint(str(tmp_path)))
    assert int(first.rpartition("-")[2]) >= 40
    output = train(80)
    assert f"going on from {first}" in output
    assert len(re.findall(r"test accuracy \d+\.\d %", output)) >= 2
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert len(state.all_model_checkpoint_paths) == 2 == len(list(tmp_path.glob("*.index")))
    tags = {
        value.tag
        for path in sorted(tmp_path.glob("events.out.tfevents.*"))
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert {"loss", "test_accuracy", "filters/image/0"} <= tags
    assert any(tag.startswith("softmax/W") for tag in tags)


@pytest.mark.parametrize("script", ["digits_async.py", "digits_sync.py"])
def test_workers_may_compress_the_gradients_of_the_digits(script: str) -> None:
    pytest.importorskip("sklearn")
    output = launch("--ps", "1", "--workers", "2", f"examples/{script}", "--compression=int8", "--steps=100")
    assert re.search(r"test accuracy \d+\.\d %", output), output


def test_wide_and_deep_learns_from_ids_that_nobody_knew() -> None:
    output = launch("--ps", "2", "--workers", "4", "examples/wide_and_deep.py", "--steps=600")
    found = re.search(r"rows of the deep part: (\d+); area under the curve: (0\.\d+)", output)
    assert found is not None, output
    assert int(found[1]) > 500
    assert float(found[2]) > 0.6  # 0.5 is chance


def test_every_example_is_in_the_list() -> None:
    folder = REPOSITORY / "examples"
    text = (folder / "README.md").read_text()
    assert [path.name for path in folder.glob("*.py") if f"`{path.name}`" not in text] == []


def test_factors_are_found_by_rows_of_numpy_arrays() -> None:
    output = launch("--ps", "2", "--workers", "2", "examples/factors_numpy.py")
    errors = [float(found) for found in re.findall(r"error (\d\.\d+), of which noise 0.1", output)]
    assert len(errors) == 2 and max(errors) < 0.2, output


def test_the_shards_of_the_digits_are_learnt_from_once_per_epoch() -> None:
    pytest.importorskip("sklearn")
    output = launch("--ps", "2", "--workers", "3", "examples/digits_numpy.py", "--shards", "--epochs", "10")
    found = [float(share) for share in re.findall(r"([\d.]+) of the test digits are right", output)]
    assert len(found) == 3 and min(found) > 0.9, output
