"""ClusterSpec in every accepted form, a server's checks of it, and TF_CONFIG."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tfmini import errors, listen_fd, protos
from tfmini.cluster import (
    ClusterSpec,
    ClusterTask,
    HostPort,
    check_server_cluster,
    cluster_from_tf_config,
    parse_address,
)

DENSE = {"worker": ["w0:1", "w1:2"], "ps": ["p0:3"]}
SPARSE = {"worker": {4: "w4:1", 2: "w2:2"}, "ps": []}


def test_a_dense_cluster_lists_its_tasks() -> None:
    cluster = ClusterSpec(DENSE)
    assert cluster.jobs == ["worker", "ps"]
    assert cluster.num_tasks("worker") == 2
    assert cluster.task_indices("worker") == [0, 1]
    assert cluster.task_address("worker", 1) == "w1:2"
    assert cluster.job_tasks("worker") == ["w0:1", "w1:2"]
    assert cluster.as_dict() == DENSE
    assert str(cluster) == "ClusterSpec({'ps': ['p0:3'], 'worker': ['w0:1', 'w1:2']})"
    assert list(cluster.tasks())[1] == ClusterTask("worker", 1, "w1:2")
    assert list(cluster.tasks())[2].name == "/job:ps/task:0"


def test_a_sparse_cluster_lists_its_tasks() -> None:
    cluster = ClusterSpec(SPARSE)
    assert cluster.num_tasks("worker") == 2
    assert cluster.task_indices("worker") == [2, 4]
    assert cluster.job_tasks("worker") == [None, None, "w2:2", None, "w4:1"]
    assert cluster.as_dict() == {"worker": {2: "w2:2", 4: "w4:1"}, "ps": {}}
    with pytest.raises(ValueError, match="Job 'ps' has no tasks"):
        cluster.job_tasks("ps")


def test_all_accepted_forms_are_equivalent() -> None:
    cluster = ClusterSpec(DENSE)
    forms: list[Any] = [
        {"worker": ("w0:1", "w1:2"), "ps": ("p0:3",)},
        {"worker": {0: "w0:1", 1: "w1:2"}, "ps": {0: "p0:3"}},
        {b"worker": [b"w0:1", b"w1:2"], b"ps": [b"p0:3"]},
        cluster,
        cluster.as_cluster_def(),
    ]
    for form in forms:
        assert ClusterSpec(form) == cluster
        assert ClusterSpec(form).as_cluster_def() == cluster.as_cluster_def()


def test_equality_compares_the_inner_form() -> None:
    assert ClusterSpec({"w": ["a:1"]}) == {"w": {0: "a:1"}}
    assert ClusterSpec({"w": ["a:1"]}) != {"w": ["a:1"]}
    assert not ClusterSpec({})
    assert ClusterSpec(DENSE)
    with pytest.raises(TypeError, match="unhashable"):
        hash(ClusterSpec({}))


def test_cluster_def_is_sorted_unless_it_came_from_one() -> None:
    assert [job.name for job in ClusterSpec(DENSE).as_cluster_def().job] == ["ps", "worker"]
    message = protos.ClusterDef()
    message.job.add(name="z").tasks[3] = "a:1"
    message.job.add(name="b").tasks[0] = "a:2"
    cluster = ClusterSpec(message)
    assert cluster.jobs == ["z", "b"]
    assert cluster.as_cluster_def() == message
    assert ClusterSpec(ClusterSpec(DENSE)).jobs == ["ps", "worker"]


def test_changing_the_source_does_not_change_the_cluster() -> None:
    tasks = {0: "a:1"}
    cluster = ClusterSpec({"w": tasks})
    tasks[0] = "changed"
    cluster.as_cluster_def().job[0].tasks[0] = "changed"
    assert cluster.task_address("w", 0) == "a:1"


@pytest.mark.parametrize(
    ("form", "error", "message"),
    [
        (
            ["a:1"],
            TypeError,
            "`cluster` must be a dictionary mapping one or more job names to lists of network",
        ),
        (None, TypeError, "or a `ClusterDef` protocol buffer"),
        (
            {"w": "a:1"},
            TypeError,
            "The tasks for job 'w' must be a list or a dictionary from integers to strings.",
        ),
        (
            {"w": {"x": "a:1"}},
            TypeError,
            "The tasks for job 'w' must be a list or a dictionary from integers",
        ),
        ({1: ["a:1"]}, TypeError, "Job name 1 must be bytes or unicode"),
        ({"w": [1]}, TypeError, "Task address 1 must be bytes or unicode"),
        ({"w": {-1: "a:1"}}, ValueError, "Task index -1 in job 'w' must not be negative"),
    ],
)
def test_invalid_clusters_are_refused(form: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ClusterSpec(form)


def test_unknown_jobs_and_tasks_are_refused() -> None:
    cluster = ClusterSpec(DENSE)
    for ask in (cluster.num_tasks, cluster.task_indices, cluster.job_tasks):
        with pytest.raises(ValueError, match="No such job in cluster: 'x'"):
            ask("x")
    with pytest.raises(ValueError, match="No such job in cluster: 'x'"):
        cluster.task_address("x", 0)
    with pytest.raises(ValueError, match="No task with index 5 in job 'ps'"):
        cluster.task_address("ps", 5)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("localhost:0", "localhost", 0), ("h.example:65535", "h.example", 65535), ("[::1]:2222", "::1", 2222)],
)
def test_addresses_are_parsed(address: str, host: str, port: int) -> None:
    assert parse_address(address) == HostPort(host, port)
    assert str(parse_address(address)) == address


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost", "no port"),
        ("", "no port"),
        (":2222", "not a host name"),
        ("a b:2222", "not a host name"),
        ("host/x:1", "not a host name"),
        ("h:", "'' is not a port number"),
        ("h:x", "'x' is not a port number"),
        ("h:-1", "not a port number"),
        ("h:65536", "not a port number"),
        ("h:²", "not a port number"),
        ("::1:2222", "IPv6 host needs brackets"),
        ("grpc://h:2222", "without 'grpc://'"),
    ],
)
def test_malformed_addresses_are_refused(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(address)


def test_a_servers_own_address_is_returned() -> None:
    assert check_server_cluster(ClusterSpec({"w": ["h:1", "h:2"]}), "w", 1) == HostPort("h", 2)
    assert check_server_cluster(ClusterSpec({"local": ["localhost:0"]}), "local", 0).port == 0


@pytest.mark.parametrize(
    ("jobs", "error", "message"),
    [
        ({"ps": ["h:1"]}, errors.InternalError, "Job \"w\" was not defined in cluster.*'ps'"),
        ({"w": {0: "h:1", 2: "h:2"}}, errors.InvalidArgumentError, 'Task 1 was not defined in job "w".*0, 2'),
        ({"w": ["h:1", "h"]}, errors.InvalidArgumentError, 'Could not parse port for local server from "h".'),
        ({"w": ["h", "h:1"]}, errors.InvalidArgumentError, 'address "h" of /job:w/task:0 is not of the form'),
        ({"w": ["h:0", "h:1"]}, errors.InvalidArgumentError, "/job:w/task:0 has port 0"),
        ({"w": ["h:1", "H:1"]}, errors.InvalidArgumentError, "/job:w/task:0 and /job:w/task:1 have the same"),
        (
            {"w": ["a:1", "localhost:7"], "ps": ["127.0.0.1:7"]},
            errors.InvalidArgumentError,
            '/job:w/task:1 and /job:ps/task:0 have the same address "127.0.0.1:7"',
        ),
    ],
)
def test_a_server_refuses_an_unfit_definition(jobs: dict[str, Any], error: type[errors.OpError], message: str) -> None:
    with pytest.raises(error, match=message):
        check_server_cluster(ClusterSpec(jobs), "w", 1)


# ---------------------------------------------------------------- TF_CONFIG


def _config(cluster: Any = None, task: Any = None) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_tf_config_is_read() -> None:
    config = cluster_from_tf_config(_config(DENSE, {"type": "worker", "index": 1}))
    assert config == (ClusterSpec(DENSE), "worker", 1)
    assert cluster_from_tf_config(_config(DENSE, {"type": "ps", "index": "0"})).task_id == 0
    assert cluster_from_tf_config(_config({"w": {"3": "h:1"}}, {"type": "w", "index": 3})).task_type == "w"
    assert cluster_from_tf_config(_config(DENSE, {"type": "evaluator"})) == (
        ClusterSpec(DENSE),
        "evaluator",
        0,
    )
    for role in ("chief", "master"):
        assert cluster_from_tf_config(_config({role: ["h:1"]}, {"type": role})).task_type == role


def test_without_tf_config_there_is_no_cluster() -> None:
    for env in ({}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}):
        assert cluster_from_tf_config(env) == (ClusterSpec({}), None, None)


def test_tf_config_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", _config(DENSE)["TF_CONFIG"])
    assert cluster_from_tf_config().cluster == ClusterSpec(DENSE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG is not valid JSON"),
        ("[1]", "TF_CONFIG must be a JSON object"),
        ('{"cluster": ["a:1"]}', "'cluster' in TF_CONFIG must map job names"),
        ('{"cluster": {"w": "a:1"}}', "'cluster' in TF_CONFIG is wrong: The tasks for job 'w'"),
        ('{"cluster": {"w": {"x": "a:1"}}}', "'cluster' in TF_CONFIG is wrong"),
        ('{"task": "ps"}', "'task' in TF_CONFIG must be an object"),
        ('{"task": {"type": "boss"}}', "The task type 'boss' in TF_CONFIG is neither one of chief,"),
        ('{"task": {"type": "ps", "index": null}}', "The task index None in TF_CONFIG must be an integer"),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
            "this process is /job:worker/task:1, which is not in its cluster",
        ),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps"}}', "/job:ps/task:0, which is not in its"),
    ],
)
def test_invalid_tf_config_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster_from_tf_config({"TF_CONFIG": text})


# ---------------------------------------------------------------- inherited listeners


def test_a_listener_is_claimed_once() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        env = {listen_fd.LISTEN_FD_ENV: str(listener.fileno())}
        assert listen_fd.claim(port, env) is None  # it does not listen yet
        listener.listen()
        assert listen_fd.claim(port + 1, env) is None
        assert listen_fd.claim(port, env) == listener.fileno()
        assert listen_fd.claim(port, env) is None


@pytest.mark.parametrize("value", ["", "x", "-1", "987654"])
def test_stale_listener_variables_are_ignored(value: str) -> None:
    assert listen_fd.claim(2222, {listen_fd.LISTEN_FD_ENV: value}) is None
    assert listen_fd.claim(2222, {}) is None


def test_zeromq_serves_a_claimed_listener() -> None:
    zmq = pytest.importorskip("zmq")
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    with zmq.Context() as context, context.socket(zmq.REQ) as client, context.socket(zmq.REP) as server:
        client.linger = server.linger = 0
        client.connect(address)  # before the server exists: the backlog keeps the connection
        client.send(b"early")
        server.setsockopt(zmq.USE_FD, listener.detach())
        server.bind(address)
        assert server.poll(5000)
        assert server.recv() == b"early"


@pytest.mark.parametrize(
    "text",
    ["[" * 3000, '{"task": {"type": "worker", "index": Infinity}}', '{"task": {"type": "worker", "index": 1e400}}',
     '{"cluster": {"ps": {"1000000000": "a:1"}}}', '{"cluster": {"ps": 3}}', '{"cluster": {"ps": {"x": "a:1"}}}',
     '{"task": [1]}', '{"task": "worker"}', "[]", "\ud800"],
)  # fmt: skip
def test_a_hostile_tf_config_is_refused_with_one_class(text: str) -> None:
    with pytest.raises(ValueError):
        cluster_from_tf_config({"TF_CONFIG": text})


def test_a_task_index_has_a_bound() -> None:
    """A sparse job's tasks become a list as long as the largest index says."""
    with pytest.raises(ValueError, match="Task index 1000000000 in job 'ps' must not be negative, nor 1048576"):
        ClusterSpec({"ps": {10**9: "a:1"}})
