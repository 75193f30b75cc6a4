"""The placer: who decides, who follows, and what it says when it cannot."""

from __future__ import annotations

import pytest

from tests.placement.letters import cluster, graph, node
from tfmini.errors import InvalidArgumentError
from tfmini.placement import decision
from tfmini.placement.placer import DeviceAttributes, place

TWO_PS = cluster("ps/0", "ps/1", "worker/0", "worker/1")
WORKER1 = "/job:worker/replica:0/task:1/device:CPU:0"
LOCAL = "/job:localhost/replica:0/task:0/device:CPU:0"
WORKER0 = "/job:worker/replica:0/task:0/device:CPU:0"
PS0, PS1 = (f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2))


def run(*nodes, devices=TWO_PS, default=WORKER1, **options):
    return place(graph(*nodes), devices, default_device=default, **options)


def error(*nodes, **options) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        run(*nodes, **options)
    return caught.value.message


def kinds(placed, name):
    return [reason.kind for reason in placed[name].reasons]


def test_unplaced_ops_go_to_the_clients_task():
    placed = run(node("c", "Const"), node("a", "Add", "c", "c"))
    assert placed.devices() == {"c": WORKER1, "a": WORKER1}
    assert kinds(placed, "a") == [decision.DEFAULT]


def test_partial_request_prefers_own_task_then_names():
    placed = run(node("w", "Const", device="/job:worker"), node("p", "Const", device="/job:ps"))
    assert placed.devices() == {"w": WORKER1, "p": PS0}
    assert placed["p"].reasons[0].text == "explicit request '/job:ps'"


def test_reference_edge_beats_the_consumers_request():
    placed = run(
        node("v", "Var", device="/job:ps/task:1"),
        node("c", "Const"),
        node("v/Assign", "Assign", "v", "c", device="/job:worker/task:0"),
    )
    assert placed["v/Assign"].device == PS1
    assert kinds(placed, "v/Assign") == [decision.REFERENCE, decision.IGNORED, decision.EXPLICIT]
    assert placed["v/Assign"].reasons[0].other == "v"
    assert placed["c"].device == PS1 and kinds(placed, "c") == [decision.FOLLOWS_CONSUMER]


def test_a_queue_that_sessions_share_is_where_all_of_them_look():
    def shared(device: str):
        queue = node("queue", "Queue", device=device)
        return queue.replace(attrs={**queue.attrs, "shared_name": b"jobs"})

    for home in (WORKER1, PS1):
        placed = run(shared("/cpu:0"), node("use", "Use", "queue"), default=home)
        assert {placed[name].device for name in ("queue", "use")} == {PS0}
        assert kinds(placed, "queue") == [decision.EXPLICIT, decision.MEETING] and "'jobs'" in placed.explain("queue")
        assert run(shared(""), default=home)["queue"].device == PS0  # nobody uses it yet
        assert run(shared("/job:ps/task:1"), default=home)["queue"].device == PS1
        assert run(shared("/job:worker"), node("use", "Use", "queue"), default=home)["use"].device == WORKER0
        assert run(node("queue", "Queue"), node("use", "Use", "queue"), default=home)["use"].device == home


def test_plain_read_is_free_but_colocated_read_stays():
    v = node("v", "Var", device="/job:ps/task:1")
    placed = run(v, node("free", "Read", "v"), node("v/read", "Read", "v", group="v"))
    assert placed["free"].device == WORKER1
    assert placed["v/read"].device == PS1
    assert placed["v/read"].reasons[0].text == "colocated with v via loc:@v"


def test_request_of_a_later_member_places_the_group():
    placed = run(node("a", "Const"), node("b", "Const", group="a", device="/job:ps/task:1"))
    assert placed["a"].device == placed["b"].device == PS1
    assert placed["a"].reasons[0].other == "b"


def test_a_colocation_group_may_name_no_op():
    placed = run(node("a", "Const", group="g", device="/job:ps/task:1"), node("b", "Add", "a", "a", group="g"))
    assert placed["b"].device == PS1


def test_members_of_a_group_may_have_partial_requests():
    placed = run(
        node("a", "Var", device="/job:ps"),
        *(node(f"b{i}", "Const", group="a", device="/job:ps/task:1") for i in range(3)),
        node("c", "Const", group="a", device="/job:ps"),
    )
    assert set(placed.devices().values()) == {PS1}
    assert kinds(placed, "b2")[0] == decision.EXPLICIT


def test_colocation_conflict_names_both_ops_requests_and_remedy():
    text = error(
        node("a", "Const", device="/job:ps/task:0"),
        node("b", "Const", device="/job:worker/task:0", group="a"),
    )
    assert text.startswith(
        "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with "
        "incompatible jobs: '/job:worker/task:0' and '/job:ps/task:0'"
    )
    assert "'b' asks for '/job:worker/task:0', 'a' asks for '/job:ps/task:0'" in text
    assert "outside tf.colocate_with" in text


def test_soft_placement_drops_types_not_jobs():
    a, b = node("a", "Const", device="/job:ps/gpu:0"), node("b", "Const", device="/job:ps/cpu:0", group="a")
    assert "incompatible types" in error(a, b)
    assert run(a, b, soft_placement=True)["b"].device == PS0
    assert "available devices" in error(node("c", "Const", device="/job:nope"), soft_placement=True)


def test_soft_placement_sets_a_colocation_aside_that_contradicts_a_request():
    # The stack of a loop's gradient is colocated with the read of a resource variable, but used on the worker.
    graph = [
        node("v", "Handle", device="/job:ps/task:0"),
        node("a", "Const", device="/job:ps/task:0"),
        node("b", "Const", device="/job:worker/task:0", group="a"),
    ]
    assert "which ignores the colocation" in error(*graph)
    placed = run(*graph, soft_placement=True)
    assert placed["a"].device == PS0 and placed["b"].device.startswith("/job:worker/replica:0/task:0")
    assert [r.kind for r in placed["b"].reasons] == [decision.EXPLICIT, decision.SET_APART]
    assert "not colocated with a" in placed["b"].reasons[1].text


def test_two_stateful_inputs_on_different_devices_conflict():
    both = node("both", "TestBoth", "v", "w")
    text = error(node("v", "Handle", device="/job:ps/task:0"), node("w", "Handle", device="/job:ps/task:1"), both)
    assert text.startswith("Cannot place the graph because a reference or resource edge connects colocation groups")
    assert "/job:ps/task:1 vs /job:ps/task:0. The edge src node is w , and the dst node is both" in text


def test_a_dataset_goes_where_its_iterator_is():
    placed = run(
        node("x", "Const"),
        node("data", "Source", "x", device="/job:ps/task:0"),
        node("other", "Source", "x"),
        node("both", "Zip", "data", "other", device="/job:ps/task:1"),
        node("changed", "Change", "both", "x"),
        node("iterator", "Handle", device="/job:worker/task:0"),
        node("begin", "Begin", "changed", "iterator"),
    )
    home = "/job:worker/replica:0/task:0/device:CPU:0"
    assert {placed[name].device for name in ("data", "other", "both", "changed", "iterator", "begin")} == {home}
    assert decision.IGNORED in kinds(placed, "data") and "values that cannot be sent" in placed.explain("data")


def test_the_reader_of_an_optional_goes_to_its_iterator():
    placed = run(
        node("iterator", "Handle", device="/job:ps/task:1"),
        node("optional", "Optional", "iterator"),
        node("passed", "Pass", "optional", device="/job:worker/task:0"),
        node("value", "Read variant", "passed", device="/job:worker/task:0"),
    )
    assert {placed[name].device for name in ("optional", "passed", "value")} == {PS1}
    assert kinds(placed, "value") == [decision.REFERENCE, decision.IGNORED, decision.EXPLICIT]


def test_a_dataset_that_uses_state_of_another_task_is_refused():
    text = error(
        node("x", "Const"),
        node("table", "Handle", device="/job:ps/task:0"),
        node("data", "Source", "x"),
        node("uses", "Capture", "data", "table"),
        node("iterator", "Handle", device="/job:worker/task:0"),
        node("begin", "Begin", "uses", "iterator"),
    )
    assert text.startswith("Cannot place 'begin' with 'uses', of which it takes a dataset")
    assert "'uses' has to be on /job:ps/task:0 (because of table)" in text
    assert "'begin' on /job:worker/task:0 (because of iterator). A dataset goes where its iterator is" in text


def test_a_value_of_state_on_one_task_for_state_on_another_is_refused():
    text = error(
        node("one", "Handle", device="/job:ps/task:0"),
        node("two", "Handle", device="/job:ps/task:1"),
        node("inner", "Optional", "one"),
        node("uses", "Capture", "inner", "two"),
    )
    assert "'inner' has to be on /job:ps/task:0 (because of one), but 'uses' on /job:ps/task:1 (because of two)" in text


def test_state_on_two_devices_of_a_task_keeps_both_for_a_dataset():
    devices = [DeviceAttributes(f"/job:worker/replica:0/task:0/device:CPU:{i}", "CPU") for i in range(2)]
    zero, one = (device.name for device in devices)
    placed = run(
        node("x", "Const"),
        node("table", "Handle", device="/cpu:1"),
        node("data", "Source", "x"),
        node("uses", "Capture", "data", "table"),
        node("iterator", "Handle", device="/cpu:0"),
        node("begin", "Begin", "uses", "iterator"),
        devices=devices,
        default=zero,
    )
    assert placed["uses"].device == one and placed["iterator"].device == zero


def test_a_requested_device_that_does_not_exist_is_refused():
    text = error(node("a", "Const", device="/job:ps/task:7"), devices=cluster("ps/0", "ps/1"), default=PS0)
    assert text == (
        "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:ps/task:7 "
        "but available "
        f"devices are [ {PS0}, {PS1} ]. Make sure the device specification refers to a valid device. "
        "The tasks of the job 'ps' are 0, 1.\n\t [[{{node a}}]]"
    )


@pytest.mark.parametrize("request_, said", [
    ("/job:wroker/task:0", "The cluster has no job 'wroker'; its jobs are ps, worker."),
    ("/job:worker/task:9", "The tasks of the job 'worker' are 0."),
    ("/job:ps/task:0/device:CPU:3", "A task has more CPU devices if its server gets a ConfigProto with device_count="),
    ("/job:ps/task:0/device:GPU:1", "CUDA is not enabled. Remove the device request, or set allow_soft_placement=True"),
])  # fmt: skip
def test_a_refusal_says_what_the_cluster_has_instead(request_: str, said: str):
    assert said in error(node("a", "Const", device=request_), devices=cluster("ps/0", "worker/0"), default=PS0)


@pytest.mark.parametrize("job", ["/job:ps/task:0", "/job:worker"])
def test_a_cluster_device_is_refused_in_a_local_session(job):
    text = error(node("a", "Const", device=job), devices=cluster("localhost/0"), default=LOCAL)
    assert "was explicitly assigned to" in text
    assert "pinned to a cluster device" in text and "tf.Session(server.target)" in text
    assert "import_meta_graph(..., clear_devices=True)" in text


def test_a_device_that_filters_leave_out_is_told_from_one_that_does_not_exist():
    shown, hidden = cluster("worker/0"), [d.name for d in cluster("ps/0", "worker/1")]
    options = {"devices": shown, "default": shown[0].name, "hidden": hidden}
    for request_ in ("/job:ps", "/job:worker/task:1"):
        text = error(node("a", "Const", device=request_), **options)
        assert f"The cluster has {hidden[request_ != '/job:ps']}, but the device_filters of this session's" in text
    assert "device_filters" not in error(node("a", "Const", device="/job:worker/task:2"), **options)


def test_a_gpu_that_does_not_exist_is_refused():
    a = node("a", "Add", "c", "c", device="/device:GPU:0")
    text = error(node("c", "Const"), a)
    assert "The requested device appears to be a GPU, but CUDA is not enabled." in text
    assert "allow_soft_placement=True" in text
    placed = run(node("c", "Const"), a, soft_placement=True)
    assert placed["a"].device == WORKER1 and decision.SOFT_PLACEMENT in kinds(placed, "a")


def test_an_op_without_gpu_kernel_is_refused_on_a_gpu():
    devices = cluster("worker/1", "worker/1:GPU")
    text = error(node("c", "Const", device="/device:GPU:0"), devices=devices)
    assert "'/device:GPU:0' because no supported kernel for GPU devices is available." in text
    assert "A GPU cannot run it: it has no lowering." in text


def test_the_preferred_device_type_is_chosen():
    devices = cluster("worker/1", "worker/1:NPU", "worker/0:NPU")
    placed = run(node("c", "Const"), node("g", "TestGpuOnly", "c", "c"), devices=devices)
    assert placed["g"].device == WORKER1.replace("CPU", "NPU")


def test_an_op_without_kernel_is_named():
    for kind in ("TestNoKernel", "TestUnheardOf"):
        text = error(node("c", "Const"), node("n", kind, "c"))
        assert text.startswith(f"No OpKernel was registered to support Op '{kind}' used by {{{{node n}}}}with these")
        assert "Registered devices: [CPU]" in text and "<no registered kernels>" in text
    placed = run(node("c", "Const"), node("n", "TestNoKernel", "c", device="/job:ps/task:0"))
    assert placed["n"].device == PS0


def test_members_without_a_common_device_type_are_named():
    devices = cluster("worker/1", "worker/1:NPU")
    text = error(node("c", "Const"), node("g", "TestGpuOnly", "c", "c", group="c"), devices=devices)
    assert "because no device type supports both of those nodes" in text


def test_a_malformed_request_names_the_node():
    assert "{{node c}}" in error(node("c", "Const", device="/job:a-b"))


def test_generator_stays_home_when_consumers_disagree():
    placed = run(
        node("c", "Const"),
        node("a", "Add", "c", "c", device="/job:ps/task:0"),
        node("b", "Add", "c", "c", device="/job:ps/task:1"),
    )
    assert placed["c"].device == WORKER1


def test_generators_request_beats_its_consumer():
    placed = run(node("c", "Const", device="/job:worker"), node("a", "Add", "c", "c", device="/job:ps/task:0"))
    assert placed["c"].device == WORKER1


def test_shape_reader_stays_with_its_input(monkeypatch):
    monkeypatch.setattr("tfmini.graph.device_types.kernel_for", lambda op, kind: object())
    placed = run(node("c", "Const"), node("a", "Add", "c", "c", device="/job:ps/task:1"), node("s", "Shape", "a"))
    assert placed["s"].device == PS1 and kinds(placed, "s") == [decision.FOLLOWS_INPUT]


def test_nodes_made_by_passes_keep_their_device():
    placed = run(node("_recv_x_0", "_Recv", device=PS1))
    assert placed["_recv_x_0"] == (PS1, (decision.preset,))


def test_extension_keeps_what_was_placed_and_groups_inherit():
    nodes = [node("v", "Var"), node("c", "Const", device="/job:worker/task:0")]
    nodes += [node("init", "Assign", "v", "c"), node("read", "Read", "v", group="v")]
    placed = run(*nodes, assigned={"v": PS1, "c": PS0})
    assert placed["c"] == (PS0, (decision.kept,))
    assert placed["init"].device == placed["read"].device == PS1
    assert kinds(placed, "read") == [decision.COLOCATED, decision.KEPT]
    text = error(*nodes, node("x", "Const", device="/job:ps/task:0", group="v"), assigned={"v": PS1})
    assert "incompatible tasks" in text


def test_explain_is_one_line():
    placed = run(node("c", "Const", device="/job:ps"))
    assert placed.explain("c") == f"c: {PS0} (explicit request '/job:ps')"
