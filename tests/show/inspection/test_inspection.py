"""Sources, views, roles, lint and the command."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import tfmini as tf
from tests.show.inspection.cluster_graphs import towers
from tests.show.inspection.test_layout import check
from tfmini import protos
from tfmini.show.inspection.api import difference, inspect
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.drawing import placed
from tfmini.show.inspection.pages import page
from tfmini.show.inspection.pictures import FEW_TASKS, condense, dot, picture, picture_of_ops, picture_of_tasks, svg
from tfmini.show.inspection.text import VIEWS, show
from tfmini.text import printable
from tfmini.tools.cli import main

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def model(**settings) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default(), tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        weights = tf.get_variable("W", [3, 2])
        loss = tf.reduce_sum(tf.matmul(x, weights))
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdagradOptimizer(0.1)
        if settings:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, **settings)
        optimizer.minimize(loss, global_step=step)
        tf.global_variables_initializer()
    return graph


@pytest.fixture(scope="module")
def found():
    return inspect(model(), ps=1, workers=2, batch=8)


def test_the_transfers_of_a_training_step(found) -> None:
    rows = {(t.role, t.src, t.dst, t.bytes) for t in found.transfers if not t.control}
    assert rows == {("variable read", PS, WORKER, 24), ("gradient of W", WORKER, PS, 24)}
    assert found.targets == ("Adagrad",) and found.feeds == ("x:0",)
    assert all(t.key.startswith(f"{t.src};") and t.consumers for t in found.transfers)


def test_json_has_the_schema(found) -> None:
    data = json.loads(json.dumps(found.to_json()))
    assert set(data) == {"tasks", "transfers", "placement", "warnings"}
    assert {t["device"]: t["state_bytes"] for t in data["tasks"]}[PS] == 24 + 24 + 8
    flops = {"flops", "leaves_out_flops", "flops_at_most"}
    assert set(data["tasks"][0]) == {"device", "ops", "variables", "state_bytes"} | flops
    keys = {"tensor", "src", "dst", "dtype", "shape", "bytes", "role", "control", "loop", "conditional"}
    assert all(set(t) == keys for t in data["transfers"])
    assert data["placement"]["W"]["device"] == PS and "explicit request" in data["placement"]["W"]["reasons"][0]


@pytest.mark.parametrize("name", VIEWS)
def test_views_fit_a_screen(found, name: str) -> None:
    text = show(found, name)
    assert text.strip() and len(text.splitlines()) < 60


def test_why_follows_the_chain_of_reasons(found) -> None:
    device, *reasons = found.why("W/read")
    assert device == PS and any("W" in reason for reason in reasons)


def test_differences_of_placements_and_graphs_are_shown(found) -> None:
    assert str(difference(found, found)) == str(difference(found.to_json(), found)) == "no difference"
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        tf.constant(1.0, name="x")
    assert difference(inspect(graph, ps=1, workers=1), inspect(graph.as_graph_def(), ps=1, workers=1)).lines() == []
    with tf.Graph().as_default() as other, tf.device("/job:worker/task:0"):
        tf.constant(1.0, name="x")
    assert difference(inspect(graph, ps=1, workers=1), inspect(other, ps=1, workers=1)).moved == (("x", PS, WORKER),)
    assert difference(found, inspect(other, ps=1, workers=1)).gone_transfers
    with pytest.raises(ValueError, match="not the output of tfmini inspect --json"):
        difference({"tasks": []}, found)


def test_dot_has_a_cluster_per_task(found) -> None:
    text = dot(found)
    assert "gradient of W" in text and text.count("subgraph") == 3


def test_svg_has_a_frame_per_task_and_the_transfers(found) -> None:
    root = ElementTree.fromstring(svg(found))
    space = "{http://www.w3.org/2000/svg}"
    titles = [e.text for e in root.iter(f"{space}title")]
    kinds = [e.get("class", "").split() for e in root.iter(f"{space}g")]
    assert sum("frame" in kind for kind in kinds) == 2 and sum("idle" in kind for kind in kinds) == 1
    assert any("gradient of W, 24 B" in title for title in titles)
    assert sum("wire" in kind for kind in kinds) >= 2
    texts = {e.text for e in root.iter(f"{space}text")}
    assert {"ps/0", "worker/0", "24 B", "dashed: order only, no bytes"} <= texts
    assert sum(map(len, condense(found, 8).groups.values())) < sum(map(len, condense(found, 60).groups.values()))


def test_the_legend_fits_into_a_small_picture(found) -> None:
    """Also where the font is as wide as 6.2 units a letter."""
    root = ElementTree.fromstring(svg(found))
    legend = next(e for e in root.iter() if e.get("class") == "legend")
    longest = max(len(e.text) for e in legend.iter() if e.tag.endswith("}text"))
    assert longest > 60 and 16 + 32 + 6.2 * longest < float(root.get("width"))


def test_a_name_that_is_not_there_is_told_with_similar_ones(found) -> None:
    with pytest.raises(KeyError, match="no op 'W/reed'. Did you mean .*'W/read'"):
        found.why("W/reed")
    with pytest.raises(ValueError, match="no view 'wires'; the views are summary, .*wire"):
        found.text("wires")


@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (2, 2), (4, 4), (8, 8), (2, 14)])
def test_pictures_have_room_for_all_that_they_tell(ps: int, workers: int) -> None:
    """No line passes behind a box, and no label meets another: in the pictures of graphs, too."""
    found = inspect(towers(ps, workers, layers=3), ps=ps, workers=workers)
    few = len(found.devices) <= FEW_TASKS
    check(*placed(picture_of_ops(found, condense(found, 28)) if few else picture_of_tasks(found, folded=False)))
    if len(found.devices) > 8:
        folded = picture_of_tasks(found, folded=True)
        assert len(folded.boxes) < ps + workers
        check(*placed(folded))


def test_thousands_of_ops_without_scopes_are_a_picture_of_tasks() -> None:
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
        x = tf.get_variable("W", [2])
        for i in range(3000):
            x = tf.tanh(x, name=f"flat_{i}")
    found = inspect(graph, ps=1, workers=1, fetches=["flat_2999"])
    began = time.thread_time()
    shown = picture(found)
    assert [box.columns for box in shown.boxes] == [(), ()] and "3,002 ops" in svg(found)
    assert time.thread_time() - began < 5


def test_a_line_has_one_direction_and_the_colour_of_its_sender() -> None:
    shown = picture_of_tasks(inspect(towers(2, 4, layers=2), ps=2, workers=4), folded=False)
    colours = {box.key: box.colour for box in shown.boxes}
    assert len(set(colours.values())) == 6
    assert all(wire.colour == colours[wire.source] for wire in shown.wires)
    ways = {(wire.source, wire.target): wire.label for wire in shown.wires}
    # 32,768 and 131,072 elements of four bytes are read, and as many come back for each worker but the first.
    assert ways["ps/0", "worker/1"] == "131 kB" and ways["worker/1", "ps/0"] == "131 kB"


def test_collectives_are_in_all_views() -> None:
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
        loss = tf.reduce_sum(tf.get_variable("W", [40000]))
        tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), 4, 0).minimize(loss)
    found = inspect(graph, ps=0, workers=4)
    assert found.warnings == []
    # The ring: each sends 2·3/4 of the 160,000 bytes to the next.
    each = [(short(t.src)[-1], short(t.dst)[-1], t.bytes, t.messages, t.role) for t in found.transfers]
    assert each == [(str(i), str((i + 1) % 4), 240000, 6, "all-reduce of W") for i in range(4)]
    tasks = show(found, "tasks").splitlines()
    assert [line.split()[-2:] for line in tasks[1:5]] == [["240,000", "240,000"]] * 4
    assert "4 in 24 message(s), 960,000 B" in show(found, "wire")
    assert show(found, "step").count("all-reduce of W (240,000 B in 6 messages)") == 4


def test_a_graph_of_a_thousand_ops_fits_a_screen() -> None:
    train = []
    with tf.Graph().as_default() as graph:
        for worker in range(4):
            setter = tf.train.replica_device_setter(ps_tasks=4, worker_device=f"/job:worker/task:{worker}")
            with tf.device(setter), tf.variable_scope("model", reuse=tf.AUTO_REUSE):
                x = tf.placeholder(tf.float32, [8, 4])
                for i in range(24):
                    x = tf.nn.relu(tf.matmul(x, tf.get_variable(f"W{i}", [4, 4])))
                train.append(tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(x)))
        tf.group(*train, name="all")
    assert len(graph.get_operations()) > 1000
    found = inspect(graph, ps=4, workers=4, fetches="all")
    for name in VIEWS:
        lines = show(found, name).splitlines()
        assert len(lines) <= 50 and max(map(len, lines)) <= 120, name
    assert "--full" in show(found, "step") and len(show(found, "wire", full=True).splitlines()) > 100


def test_the_page_is_self_contained(found) -> None:
    text = page(found)
    assert text.count("<script") == text.count("</script>") == 3
    assert "gradient of W" in text and " src=" not in text.partition("<script>")[0]


def test_graphs_with_foreign_and_custom_ops_open() -> None:
    graph_def = model().as_graph_def()
    for name, op, source in (("parsed", "DecodeCsvOfOthers", "W/read"), ("mine", "MyOwnOp", "W/read")):
        node = graph_def.node.add(name=name, op=op, input=[source], device="/job:worker/task:0")
        node.attr["output_types"].list.type.extend([1, 3])
    user = graph_def.node.add(name="user", op="Neg", input=["mine:1"], device="/job:ps/task:0")
    user.attr["T"].type = 1
    found = inspect(graph_def, ps=1, workers=1, fetches=["user", "parsed"])
    assert {t.tensor: t.dtype.name for t in found.transfers}["mine:1"] == "float32"
    assert {w.kind for w in found.warnings} >= {"not executable"}
    assert found.shapes["gradients/MatMul_grad/MatMul_1", 0] == (3, 2)


@pytest.mark.parametrize("form", ["pb", "pbtxt", "meta"])
def test_graphs_are_read_from_files(tmp_path, form: str) -> None:
    graph = model()
    path = tmp_path / f"model.{form}"
    if form == "meta":
        with graph.as_default():
            tf.train.export_meta_graph(str(path))
    else:
        tf.train.write_graph(graph, str(tmp_path), path.name, as_text=form == "pbtxt")
    assert inspect(str(path), ps=1, workers=1).targets == ("Adagrad",)


def test_the_command_prints_the_views(tmp_path) -> None:
    tf.train.write_graph(model(), str(tmp_path), "model.pb", as_text=False)
    path = str(tmp_path / "model.pb")
    result = CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--workers", "1", "--json"])
    assert result.exit_code == 0 and json.loads(result.output)["transfers"]
    text = CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--workers", "1"]).output
    assert "gradient of W" in text
    assert "explicit" in CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--why", "W"]).output
    assert CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--fetch", "nothing"]).exit_code == 1


# ---------------------------------------------------------------- names of a graph from elsewhere

ODD = [
    "a\x1b]0;OWNED\x07\x1b[2Jb", "a[/b]", "[link=file:///etc/passwd]x", "a\nFORGED", 'a"];x [URL="javascript:1"', "a\\",
    'a\\"];evil[label="', "</script><script>alert(1)</script>", "/*SCRIPT*/", "/*LIBRARIES*/", "a\u2028b\u202ec",
    "\x00\x85",
]  # fmt: skip


def graph_of(name: str) -> protos.GraphDef:
    graph = protos.GraphDef()
    graph.node.add(name=name, op="Placeholder").attr["dtype"].type = 1
    for number, device in enumerate(("/job:ps/task:0", "/job:worker/task:0")):
        source = f"user{number - 1}" if number else name
        graph.node.add(name=f"user{number}", op="Identity", input=[source], device=device).attr["T"].type = 1
    return graph


@pytest.fixture(params=ODD)
def odd(request):
    return request.param, inspect(graph_of(request.param), fetches=["user1:0"])


def test_odd_names_are_shown_and_do_nothing_else(odd) -> None:
    name, found = odd
    for view in VIEWS:
        text = show(found, view, full=True, width=400)
        assert all(line.isprintable() for line in text.splitlines())
        assert not any(line.startswith("FORGED") for line in text.splitlines())
    assert printable(name) in show(found, "why", full=True, width=400)


def test_the_differences_of_odd_names_are_shown_and_do_nothing_else(odd, tmp_path) -> None:
    name, _ = odd
    for file, graph in (("new.pb", graph_of(name)), ("old.pb", graph_of("x"))):
        (tmp_path / file).write_bytes(graph.SerializeToString())
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "new.pb"), "--diff", str(tmp_path / "old.pb")])
    assert done.exit_code == 0 and all(line.isprintable() for line in done.output.splitlines())
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "new.pb"), "--why", "\x1b[2J"])
    assert done.exit_code == 1 and "\x1b" not in done.output


def test_no_name_leaves_its_quotes_in_dot(odd) -> None:
    lines = dot(odd[1]).splitlines()
    outside = [re.sub(r'"(?:[^"\\]|\\.)*"', "", line) for line in lines]
    attribute = (
        r"(?:label=|rankdir=LR; compound=true|style=\w+|shape=box|fontname=|color=firebrick|node|;|, | |\[|\]|->)*"
    )
    assert all(re.fullmatch(rf"digraph step {{|  subgraph cluster_\d+ {{|\s*}}|{attribute}", line) for line in outside)


def test_a_picture_of_odd_names_is_xml(odd) -> None:
    name, found = odd
    titles = [each.text for each in ElementTree.fromstring(svg(found)).iter("{http://www.w3.org/2000/svg}title")]
    assert any(printable(name) in title for title in titles)


def test_a_page_of_odd_names_has_the_scripts_of_any_other(odd) -> None:
    def without_data(text: str) -> str:
        (line,) = [line for line in text.splitlines() if '"transfers":' in line and '"messages":' in line]
        assert line.count("<") == 2 and line.endswith("</script>")
        return text.replace(line, "")

    assert without_data(page(odd[1])) == without_data(page(inspect(graph_of("x"), fetches=["user1:0"])))


def test_an_inspection_prints_and_saves_itself(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        read = tf.identity(tf.get_variable("W", [4]))
        with tf.device("/job:worker/task:0"):
            tf.reduce_sum(read, name="out")
    found = tf.inspect(graph, ps=1, workers=1, fetches="out")
    assert isinstance(found, tf.Inspection)
    assert found.text() == show(found, "summary") and found.text("wire", width=90) == show(found, "wire", width=90)
    assert [load.sends for load in found.overview().loads] == [16, 0]
    for name, part in {"a.html": "<html", "a.svg": "<svg", "a.dot": "digraph", "a.json": '"transfers"'}.items():
        found.save(tmp_path / name)
        assert part in (tmp_path / name).read_text()
    with pytest.raises(ValueError, match=r"a.png can be written as .html, .svg, .dot, .json"):
        found.save(tmp_path / "a.png")
