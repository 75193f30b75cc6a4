"""The files of running jobs."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import click
import pytest

from tfmini import jobs
from tfmini.cluster import ClusterSpec
from tfmini.jobs import RunningJob, running_jobs, runtime_folder
from tfmini.rpc.keys import keys_in_memory, load_keys
from tfmini.tools.cluster_target import find_cluster

SPEC = ClusterSpec({"ps": ["localhost:1"], "worker": ["localhost:2"]})


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return tmp_path / "tfmini" / "jobs"


def test_a_job_is_found_while_it_runs_by_its_user_alone(folder: Path) -> None:
    with RunningJob("/home/me/train.py", "") as job:
        assert running_jobs() == []
        job.begin(SPEC)
        (found,) = running_jobs()
        (path,) = folder.glob("*.json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        for target in (None, f"train-{os.getpid()}", "train", str(os.getpid())):
            assert find_cluster(target).tasks == found.tasks
    assert found.name == f"train-{os.getpid()}" and found.tasks["/job:worker/replica:0/task:0"] == "localhost:2"
    assert running_jobs() == [] and list(folder.iterdir()) == []


def test_the_file_of_a_launcher_that_is_gone_is_removed(folder: Path) -> None:
    with RunningJob("train.py", "") as job:
        job.begin(SPEC)
        (path,) = folder.glob("*.json")
        text = path.read_text()
        later = json.loads(text) | {"started": 1}  # the process id belongs to another process by now
        path.write_text(json.dumps(later))
        assert running_jobs() == [] and not path.exists()
        path.write_text(text[:-5])
        assert running_jobs() == [] and not path.exists()


def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700)
    folder.parent.chmod(0o777)
    with RunningJob("train.py", "") as job:
        job.begin(SPEC)
    assert running_jobs() == [] and not folder.exists()


def test_without_a_runtime_directory_the_folder_has_the_users_number(tmp_path: Path) -> None:
    assert runtime_folder({}).name == f"tfmini-{os.getuid()}"
    assert runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path / "missing")}).name == f"tfmini-{os.getuid()}"


def test_an_address_is_taken_as_it_is_and_an_unknown_job_names_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_cluster("zmq://host:2222") == ("zmq://host:2222", {}, None)
    with pytest.raises(click.UsageError, match="Which cluster.*HOST:PORT"):
        find_cluster(None)
    with pytest.raises(click.UsageError, match="No such job 'x'.*No job runs"):
        find_cluster("x")
    known = [jobs.Job(f"train-{i}", i, 1, "train.py", 0.0, {"t": "a:1"}) for i in (1, 2)]
    monkeypatch.setattr("tfmini.tools.cluster_target.running_jobs", lambda: known)
    with pytest.raises(click.UsageError, match=r"Which job\? 2 of them run: train-1 \(1 task\), train-2"):
        find_cluster(None)
    with pytest.raises(click.UsageError, match=r"2 jobs run train; give the name of one: train-1 \(1 task\), train-2"):
        find_cluster("train")
    with pytest.raises(click.UsageError, match="No such job 'trian'. Did you mean 'train'.* The jobs are train-1"):
        find_cluster("trian")
    assert find_cluster("2").tasks == {"t": "a:1"}
    other = jobs.Job("other-3", 3, 1, "/home/me/other.py", 0.0, {"t": "a:3"})
    known.append(other)
    for name in ("other", "other.py", "/home/me/other.py"):
        assert find_cluster(name).tasks == {"t": "a:3"}


def test_the_address_of_a_job_has_the_key_of_the_job() -> None:
    with keys_in_memory() as key_file, RunningJob("train.py", key_file) as job:
        job.begin(SPEC)
        for target in ("localhost:2", "127.0.0.1:2", "zmq://localhost:2"):
            found = find_cluster(target)
            assert found.target == target and len(found.tasks) == 2 and found.keys == load_keys(key_file)
        assert find_cluster("localhost:3") == ("localhost:3", {}, None)


def test_a_wrong_tf_config_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(click.ClickException, match="^TF_CONFIG is not valid JSON"):
        find_cluster(None)


def test_tf_config_names_the_cluster_where_no_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": SPEC.as_dict(), "task": {"type": "worker", "index": 0}}))
    assert find_cluster(None).target == "localhost:1"
