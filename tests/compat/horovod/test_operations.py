"""Horovod's collectives: their names and factors, and a script under `tfmini launch`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tfmini as tf
from tests.launch.programs import launched
from tfmini.compat import horovod
from tfmini.compat.horovod import world
from tfmini.compat.horovod.world import World
from tfmini.runtime import process
from tfmini.train.replicas.elastic import Ranks


def test_collectives_have_horovods_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "worlds", [World(["localhost"] * 2, 0, None)])
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [3], "x"), tf.placeholder(tf.float32, [3], "y")
        rows = tf.IndexedSlices(y, tf.placeholder(tf.int64, [3], "i"))
        horovod.allreduce(x, op=horovod.Sum, compression=horovod.Compression.fp16)
        horovod.allreduce(rows)
        horovod.allgather(y)
        horovod.broadcast(x, 1)
        with tf.name_scope("tower"):
            horovod.broadcast(x, 1, "mine")
            horovod.broadcast(x, 1, "mine", ignore_name_scope=True)
        horovod.allreduce(x, name="mine")
        horovod.allgather(y)
        names = [op.get_attr("_collective_name") for op in graph.get_operations() if op.type.startswith("Collective")]
    slices = ["HorovodAllreduce_y_0/values", "HorovodAllreduce_y_0/indices"]
    again = ["tower/mine", "mine", "mine_1", "HorovodAllgather_y_0_1"]
    expected = ["HorovodAllreduce_x_0", *slices, "HorovodAllgather_y_0", "HorovodBroadcast_x_0", *again]
    assert [name.decode() for name in names] == expected


def test_horovods_factors_truncate_integers_and_round_halves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "worlds", [World(["localhost"], 0, None)])
    rows = tf.IndexedSlices(tf.fill([1, 2], tf.constant(7, tf.uint8)), tf.constant([0]), tf.constant([4, 2]))
    third = tf.constant([3.0], tf.float16)
    values = [
        horovod.allreduce(tf.constant([-3]), op=horovod.Sum, prescale_factor=0.5),
        horovod.allreduce(third, op=horovod.Sum, prescale_factor=1 / 3),
        horovod.allreduce(rows).values,
    ]
    with tf.Session() as session:
        assert [value.tolist() for value in session.run(values)] == [[-1], [1.0], [[7.0, 7.0]]]
    with pytest.raises(NotImplementedError, match="tf.convert_to_tensor"):
        horovod.allreduce(rows, prescale_factor=2.0)


def test_one_worker_gets_its_own_values_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "worlds", [World(["localhost"], 0, None)])
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    several = [*horovod.grouped_allreduce([x, x]), *horovod.grouped_allgather([x]), *horovod.grouped_reducescatter([x])]
    several += [horovod.alltoall(x), horovod.reducescatter(x, op=horovod.Sum), horovod.broadcast(x, 0)]
    part, received = horovod.alltoall(x, [1])
    slope = tf.gradients(part * 2, x)[0]
    with tf.Session() as session:
        assert all((value == [[1, 2], [3, 4]]).all() for value in session.run(several))
        got = session.run([part, received, slope])
    assert [value.tolist() for value in got] == [[[1, 2]], [1], [[2, 2], [0, 0]]]
    with pytest.raises(ValueError, match="scalar"):
        horovod.reducescatter(tf.constant(1.0))
    with pytest.raises(ValueError, match="root_rank 1 is not in the process set"):
        horovod.broadcast(x, 1)


_SCRIPT = """
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
assert hvd.local_rank() == hvd.rank() and hvd.local_size() == hvd.size() == 2
x = tf.constant([[1.0], [3.0]])[hvd.rank()]
w = tf.get_variable("w", initializer=tf.constant([float(hvd.rank())]))
flag = tf.get_variable("flag", initializer=tf.constant(hvd.rank() == 0), trainable=False)
opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.5), compression=hvd.Compression.fp16)
train = opt.minimize(tf.reduce_sum(w * x), tf.train.get_or_create_global_step())
mean, total = hvd.allreduce(x), hvd.allreduce(x, average=False, name="x")
rows = hvd.allgather(tf.fill([1 + hvd.rank(), 1], hvd.rank()))
sent = hvd.broadcast(x, 1)
both = hvd.allreduce(tf.constant([hvd.rank() + 1], tf.uint8), op=hvd.Max)
gradients = [
    tf.gradients(y * (hvd.rank() + 1), z)[0]
    for y, z in ((total, x), (sent, x))
]
own = tf.fill([1 + hvd.rank(), 1], 1.0)
gradients.append(tf.gradients(hvd.allgather(own) * tf.constant([[1.0], [2.0], [3.0]]), own)[0])
for wrong in (lambda: hvd.callbacks, lambda: hvd.allreduce(x, op=hvd.Adasum), lambda: hvd.DistributedOptimizer(3)):
    try:
        wrong()
    except (AttributeError, NotImplementedError, ValueError) as error:
        assert "Keras" in str(error) or "Adasum" in str(error) or "inherit" in str(error), error
    else:
        raise AssertionError(wrong)
try:
    import horovod.torch
except ImportError as error:
    assert "out of its scope" in str(error)
from horovod.tensorflow.compression import Compression
assert Compression is hvd.Compression and not hvd.nccl_built() and hvd.cross_size() == 1
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
at_end = tf.train.FinalOpsHook(w)
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=2), at_end]
with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
    values = session.run([mean, total, rows, sent])
    assert [v.ravel().tolist() for v in values] == [[2], [4], [0, 1, 1], [3]], values
    assert session.run(both).tolist() == [2]
    slopes = [v.ravel().tolist() for v in session.run(gradients)]
    assert slopes == [[3], [1.5 * hvd.rank()], [[1], [2, 3]][hvd.rank()]], slopes
    while not session.should_stop():
        _, value, yes = session.run([train, w, flag])
assert at_end.final_ops_values.tolist() == [-2.0]
print("reached", value.dtype, yes, flush=True)
"""


@pytest.mark.cluster
def test_a_horovod_script_runs_under_launch(tmp_path: Path) -> None:
    output = launched(tmp_path, _SCRIPT, "--workers", "2")
    assert output.count("reached float32 True") == 2  # the ps serves, and ends with the workers


_EARLY_SESSION = """
import tensorflow as tf
import horovod.tensorflow as hvd
with tf.Session() as session:  # as Horovod's own tests do
    hvd.init()
    print("sum", session.run(hvd.allreduce(tf.ones([]) * (hvd.rank() + 1), average=False)), flush=True)
"""


@pytest.mark.cluster
def test_a_session_may_be_opened_before_horovods_init_and_end_after_a_collective(tmp_path: Path) -> None:
    assert launched(tmp_path, _EARLY_SESSION, "--ps", "0", "--workers", "2").count("sum 3.0") == 2


@pytest.fixture
def target_of_sessions() -> Iterator[Callable[[str], None]]:
    """Sets whose server runs the sessions that name no target, as `hvd.init` does, until the end of the test."""
    yield process.set_default_target
    process.set_default_target("")


def test_a_used_session_does_not_follow_horovods_init(target_of_sessions: Callable[[str], None]) -> None:
    server = tf.train.Server.create_local_server()
    ranks = Ranks(2, 0)
    with tf.Session() as used, tf.Session() as unused:
        used.run(tf.constant(1))
        target_of_sessions(server.target)
        unused.run(tf.constant(1))
        assert "/job:local/" in unused.list_devices()[0].name and "/job:localhost/" in used.list_devices()[0].name
        reduced = ranks.all_reduce(tf.ones([2]), "x")
        with pytest.raises(tf.errors.InvalidArgumentError, match="wait for ever.*hvd.init"):
            used.run(reduced)
    server.stop()


def test_sessions_without_a_target_have_variables_and_queues_of_their_own(
    target_of_sessions: Callable[[str], None],
) -> None:
    with tf.train.Server.create_local_server() as server, tf.Graph().as_default():
        target_of_sessions(server.target)
        ref = tf.get_variable("w", initializer=1.0)
        resource = tf.get_variable("r", initializer=1.0, use_resource=True)
        queue = tf.FIFOQueue(3, tf.float32, shared_name="q")
        table = tf.contrib.lookup.MutableHashTable(tf.string, tf.int64, -1, name="t")
        row = table.insert(tf.constant("a"), tf.constant(1, tf.int64))
        put = [queue.enqueue(5.0), row, tf.assign(ref, 7.0), tf.assign(resource, 7.0)]
        state = [ref, resource, queue.size(), table.size()]
        with tf.Session() as one, tf.Session() as two, tf.Session(server.target) as shared:
            for session in (one, two, shared):
                session.run(tf.global_variables_initializer())
            one.run(put)
            assert [session.run(state) for session in (one, two, shared)] == [[7, 7, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]
            shared.run(put)
            assert two.run(state) == [1, 1, 0, 0] and one.sess_str == b""
        with tf.Session() as later:
            assert later.run(tf.report_uninitialized_variables()).tolist() == [b"w", b"r"]
            tf.Session.reset("")
            with pytest.raises(tf.errors.AbortedError, match="was reset"):
                later.run(state)
        with tf.Session(server.target) as shared:
            assert shared.run(ref) == 7  # a reset of this process's sessions leaves the server's state alone


_ORDERS = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
rank = hvd.rank()
turn = (lambda names: names) if rank == 0 else (lambda names: names[::-1])
x = tf.constant([rank + 1.0])
twice = tf.concat([x, x], 0)
total = {name: hvd.allreduce(x * factor, name=name, op=hvd.Sum) for name, factor in turn([("a", 1), ("b", 10)])}
scoped = {}
for scope in turn(["one", "two"]):
    with tf.name_scope(scope):
        scoped[scope] = hvd.allgather(tf.fill([1], scope == "one"), name="same")
chain = hvd.allreduce(total["a"] + 1, name="after a", op=hvd.Sum)
kinds = {"gather": hvd.allgather(x), "sent": hvd.broadcast(x, 1), "all": hvd.alltoall(twice),
         "part": hvd.reducescatter(twice, op=hvd.Sum)}
shapes = turn([("w", 1), ("v", 2), ("u", 3)])
ws = {name: tf.get_variable(name, initializer=[float(rank)] * size) for name, size in shapes}
loss = sum(tf.reduce_sum(ws[name]) * (rank + 1) * factor for name, factor in shapes)
opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0))
train = opt.minimize(loss, var_list=[ws[name] for name in turn(list("wvu"))])
spread = hvd.broadcast_variables([ws[name] for name in turn(list("vwu"))], 1)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(spread)
    if rank == 0:  # all in one step, and on the other rank in several steps and in another order
        got = session.run([total, chain, kinds, scoped, train])[:-1]
    else:
        values = {name: session.run(kinds[name]) for name in reversed(sorted(kinds))}
        marks = {scope: session.run(scoped[scope]) for scope in ("two", "one")}
        sums = {"b": session.run([total["b"], train])[0]}
        sums["a"], after = session.run([total["a"], chain])
        got = [sums, after, values, marks]
    assert {name: value.tolist() for name, value in got[0].items()} == {"a": [3], "b": [30]} and got[1] == [8], got
    rows = {"gather": [1, 2], "sent": [2], "all": [1, 2], "part": [3]}
    assert {name: value.tolist() for name, value in got[2].items()} == rows, got[2]
    assert {name: value.tolist() for name, value in got[3].items()} == {"one": [True] * 2, "two": [False] * 2}, got[3]
    assert [session.run(ws[name]).tolist() for name in "wvu"] == [[-0.5], [-2] * 2, [-3.5] * 3]
print("all in order", flush=True)
"""


@pytest.mark.cluster
@pytest.mark.parametrize("lane", ["on", "off"])
def test_ranks_may_build_and_run_named_collectives_in_different_orders(
    lane: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFMINI_LANE", lane)
    assert launched(tmp_path, _ORDERS, "--ps", "0", "--workers", "2").count("all in order") == 2


_ENDS = """
import signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
rank, way = hvd.rank(), sys.argv[1]
ends = rank == int(sys.argv[2])  # before the others
count = 3 if ends else 9
total = hvd.allreduce(tf.ones([2]), name="total", op=hvd.Sum)
if way == "raises":
    with tf.Session() as session:
        session.run(total)
        if ends:
            raise ValueError("no more data")
        session.run(hvd.allgather(tf.ones([1]), name="rows"))
elif way == "plain":
    session = tf.Session()  # never closed
    for _ in range(count):
        session.run(total)
elif way == "shutdown":
    with tf.Session() as session:
        session.run(total)
    if ends:
        hvd.shutdown()
        signal.pause()  # it lives until the launcher ends it
    with tf.Session() as session:
        session.run(total)
else:
    data = tf.data.Dataset.range(count).make_one_shot_iterator().get_next()
    w = tf.get_variable("w", initializer=1.0)
    sgd = tf.train.GradientDescentOptimizer(0.1)
    opt = hvd.DistributedOptimizer(sgd)
    train = opt.minimize(w * tf.cast(data, tf.float32), tf.train.get_or_create_global_step())
    with tf.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
        while not session.should_stop():
            session.run(train)
print("ended in good order", flush=True)
"""


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("way", "first", "why"),
    [
        ("steps", 0, "its process has ended"),
        ("steps", 1, "its process has ended"),
        ("plain", 0, "its process has ended"),
        ("raises", 1, "its script has failed with ValueError: no more data"),
        ("shutdown", 1, "its server has been stopped"),
    ],
)
def test_a_rank_that_ends_before_the_others_ends_their_run_with_an_error(
    way: str, first: int, why: str, tmp_path: Path
) -> None:
    """It has not been preempted: nobody may wait for its return."""
    script = tmp_path / "ends.py"
    script.write_text(_ENDS)
    options = ["--keep-going"] if way == "raises" else []
    command = [sys.executable, "-m", "tfmini", "launch", "--ps", "0", "--workers", "3", *options, str(script)]
    command += [way, str(first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"UnknownError: rank {first} (/job:worker/replica:0/task:{first}/device:CPU:0) has ended" in done.stdout
    assert why in done.stdout
    assert done.stdout.count("ended in good order") == (way in ("steps", "plain"))


_AGAIN = """
import time
from pathlib import Path
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
rank, here = hvd.rank(), Path(__file__).parent
total = hvd.allreduce(tf.ones([2]), name="total", op=hvd.Sum)
for turn in range(3):
    with tf.Session() as session:
        assert session.run(total).tolist() == [3, 3]
    while rank == turn and len(list(here.glob(f"new.{turn}.*"))) < 2:
        time.sleep(0.01)  # the others have new servers, and may call the group's leader, before it has one
    hvd.shutdown()
    hvd.init()
    (here / f"new.{turn}.{rank}").touch()
with tf.Session() as session:
    assert session.run(total).tolist() == [3, 3]
print("again", flush=True)
"""


_LATE = """
import json, os
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor
dial = Endpoint.dial
def late(self, peer):
    is_late = not str(peer.expected_task).endswith("task:0")
    get_reactor().call_later(0.3 * is_late, dial, self, peer)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    Endpoint.dial = late
"""
"""The data of rank 1 reach rank 2 after rank 0 has its result and has stopped its server."""


@pytest.mark.cluster
@pytest.mark.parametrize(("before", "lane"), [("", "on"), (_LATE, "on"), (_LATE, "off")])
def test_ranks_may_shut_horovod_down_and_initialise_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, lane: str
) -> None:
    monkeypatch.setenv("TFMINI_LANE", lane)
    assert launched(tmp_path, before + _AGAIN, "--ps", "0", "--workers", "3").count("again") == 3


_COLLECTIVES = """
import time
from pathlib import Path
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
even = hvd.ProcessSet([0, 2])
hvd.init(process_sets=[even])
here = Path(__file__).parent
rank, others = hvd.rank(), [1, 2][: hvd.size() - 1]
x = tf.reshape(tf.range(14.0), [7, 2]) * (rank + 1)
part = hvd.reducescatter(x, op=hvd.Sum)
rows, received = hvd.alltoall(x, [rank, 1, 2])
packed = hvd.grouped_allreduce([x, tf.constant([rank]), x[:1]], op=hvd.Max)
unknown = tf.placeholder_with_default(np.full([3], rank), [None])
sent = hvd.broadcast(unknown, 2)
slopes = [tf.gradients(part, x)[0], tf.gradients(rows * (rank + 1), x)[0]]
inside = hvd.allreduce(x[:1, 1], average=False, name="inside", process_set=even)
is_inside = tf.equal(hvd.process_set_included_op(even.process_set_id), 1)
mean = lambda: hvd.allreduce(x[:1, 1], name="mean", process_set=even)
members = tf.cond(is_inside, mean, lambda: x[:1, 1])
with tf.Session() as session:
    got = session.run([part, rows, received, *packed, sent])
    low, high = [(0, 3), (3, 5), (5, 7)][rank]
    whole = np.arange(14.0).reshape(7, 2)
    assert (got[0] == 6 * whole[low:high]).all(), got[0]
    starts = {0: [0, 0, 0], 1: [0, 1, 2], 2: [1, 2, 3]}[rank]
    counts = [[0, 1, 2][source] if rank == 0 else rank for source in range(3)]
    expected = [whole[starts[s] : starts[s] + counts[s]] * (s + 1) for s in range(3)]
    assert (got[1] == np.concatenate(expected)).all() and got[2].tolist() == counts, got[1:3]
    assert (got[3] == 3 * whole).all() and got[4] == [2] and (got[5] == 3 * whole[:1]).all(), got[3:6]
    assert got[6].tolist() == [2, 2, 2]
    one, two = session.run(slopes)
    assert (one == 3).all() and two[:, 0].tolist() == [1] * rank + [2] + [3] * 2 + [0] * (4 - rank), two
    assert session.run([hvd.rank_op(), hvd.size_op(even.process_set_id)]) == [rank, 2]
    if rank == 1:
        try:
            session.run(inside)
        except tf.errors.InvalidArgumentError as error:
            assert "Rank 1 runs hvd.allreduce of inside in the process set 1 of the ranks [0, 2]" in str(error), error
    else:
        assert session.run(inside).tolist() == [4]
    assert session.run(members).tolist() == [2]
    told = hvd.broadcast_object({"a": (1, b"x"), 3: np.ones(2)} if rank == 1 else None, 1)
    assert told["a"] == (1, b"x") and told[3].tolist() == [1, 1], told
    assert hvd.allgather_object("x" * rank) == ["", "x", "xx"]
    # The failure of a rank ends the collectives of all; it may overtake the last result of another one.
    (here / f"through.{rank}").touch()
    while len(list(here.glob("through.*"))) < 3:
        time.sleep(0.01)  # polls for other processes
    for wrong in (hvd.alltoall(tf.zeros([4])), hvd.allreduce(tf.zeros([rank + 1]))):
        try:
            session.run(wrong)
        except (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError) as error:
            assert "cannot divide 4 rows" in str(error) or "Shape mismatch" in str(error), error
        else:
            raise AssertionError(wrong)
    print("sum after the errors", session.run(hvd.allreduce(tf.ones([]), average=False)), flush=True)
"""


@pytest.mark.cluster
def test_three_ranks_scatter_exchange_and_agree_after_errors(tmp_path: Path) -> None:
    assert launched(tmp_path, _COLLECTIVES, "--ps", "0", "--workers", "3").count("sum after the errors 3.0") == 3
