"""The sources and clusters of inspections, and the messages of the command for mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tfmini as tf
from tfmini import errors, protos
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.clusters import read_cluster
from tfmini.show.inspection.sources import ScriptError
from tfmini.show.inspection.trace import read_trace
from tfmini.tools.cli import main

BUILD = """
import tensorflow as tf

def build():
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        w = tf.get_variable("W", [3])
        tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w) * tf.placeholder(tf.float32, [3], name="x")))
"""
SESSION = (
    BUILD
    + """
build()
with tf.Session("grpc://localhost:1") as sess:
    sess.run(tf.global_variables_initializer())
    raise SystemError("the script went on")
"""
)


def tasks(found) -> list[str]:
    return [d.device.split("/device")[0].replace("/replica:0", "") for d in found.devices]


def build() -> tf.Graph:
    with tf.Graph().as_default() as graph:
        exec(BUILD.replace("tensorflow", "tfmini") + "\nbuild()", {})  # without the alias `tensorflow`
    return graph


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "inspected_module.py").write_text(BUILD)
    (tmp_path / "script.py").write_text(SESSION)
    yield tmp_path
    monkeypatch.delitem(__import__("sys").modules, "inspected_module", raising=False)


def test_a_script_runs_until_its_first_session_would(folder) -> None:
    found = inspect("script.py", ps=1, workers=2)
    assert found.targets == ("Adagrad",) and {"variable read", "gradient of W"} <= {t.role for t in found.transfers}


def test_a_function_builds_the_graph(folder) -> None:
    assert inspect(entry="inspected_module:build", ps=1, workers=1).targets == ("Adagrad",)
    with pytest.raises(ScriptError, match="has no function biuld"):
        inspect(entry="inspected_module:biuld")
    with pytest.raises(ScriptError, match="must be module:function"):
        inspect(entry="inspected_module")


@pytest.mark.parametrize("text", [
    '{"ps": ["a:1"], "worker": ["b:1", "c:1"]}',
    '{"ps": 1, "worker": 2}',
    '{"cluster": {"ps": ["a:1"], "worker": {"0": "b:1", "1": "c:1"}}, "task": {"type": "ps", "index": 0}}',
])  # fmt: skip
def test_a_cluster_is_read_from_json(tmp_path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    found = inspect(build(), cluster=tmp_path / "cluster.json")
    assert tasks(found) == ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"]


def test_a_cluster_is_read_from_yaml(tmp_path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "cluster.yaml").write_text("ps: [a:1]\nworker: 2\n")
    found = inspect(build(), cluster=tmp_path / "cluster.yaml")
    assert tasks(found) == ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"]


def test_a_cluster_is_read_from_tf_config(monkeypatch) -> None:
    config = {"cluster": {"ps": ["a:1"], "chief": ["b:1"], "worker": ["c:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    found = inspect(build())
    assert tasks(found) == ["/job:chief/task:0", "/job:ps/task:0", "/job:worker/task:0"]
    assert found.master.startswith("/job:chief")


def test_without_a_cluster_the_graphs_requests_define_it() -> None:
    assert tasks(inspect(build())) == ["/job:ps/task:0", "/job:worker/task:0"]


def test_the_summary_says_what_was_guessed_and_what_cannot_run(folder) -> None:
    guess = "guessed cluster: no cluster was given, so it has the tasks that the graph's devices name: ps 0, worker 0. "
    unknown = tf.GraphDef()
    unknown.node.add(name="own", op="MyCompany>Mystery", device="/job:ps/task:1")
    (folder / "unknown.pb").write_bytes(unknown.SerializeToString())
    gpu = 'with tf.device("/device:GPU:0"):\n  w = tf.get_variable("w", [2])\ntf.Session().run(w)'
    (folder / "gpu.py").write_text(f"import tensorflow as tf\n{gpu}")
    said = {name: " ".join(run(name)[1].split()) for name in ("script.py", "unknown.pb", "gpu.py")}
    assert guess + "Give --ps and --workers, or --cluster. task" in said["script.py"]
    assert "devices name: ps 0-1; and worker 0 for the client." in said["unknown.pb"]
    assert "step: no training op was found, so the step runs all ops without consumers." in said["unknown.pb"]
    assert "not executable: 1 op(s) of type MyCompany>Mystery (custom op: opaque). A step that" in said["unknown.pb"]
    assert "a session refuses this graph: Cannot assign a device for operation w: node w was" in said["gpu.py"]
    assert "The placement shown is that with allow_soft_placement=True." in said["gpu.py"]
    assert "guess" not in run("script.py", "--ps", "1")[1] + said["gpu.py"]


def test_the_client_is_the_worker_that_the_graph_is_built_for() -> None:
    with tf.device("/job:worker/task:1"):
        fetched = tf.identity(tf.placeholder(tf.float32, []), name="out")
    assert inspect(fetches=fetched, workers=3).master.startswith("/job:worker/replica:0/task:1/")
    assert inspect(fetches=fetched, workers=3, master="/job:worker/task:2").master.startswith(
        "/job:worker/replica:0/task:2/"
    )


def test_a_saved_model_is_inspected(tmp_path) -> None:
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    y = tf.matmul(x, tf.get_variable("W", [3, 4]), name="y")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": y})
    found = inspect(tmp_path / "model", fetches="y:0", workers=1)
    assert found.fetches == ("y:0",) and found.feeds == ("x:0",)
    assert {d.flops for d in found.devices} == {2 * 2 * 3 * 4}


def test_collections_of_a_meta_graph_are_read(tmp_path) -> None:
    with tf.Graph().as_default() as graph:
        tf.get_variable("mine", [2], collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.get_variable("W", [3])))
        meta = tf.train.export_meta_graph(graph=graph)
    found = inspect(meta, workers=1)
    assert found.local_variables == ["mine"] and found.targets == ("GradientDescent",)


def test_a_variable_of_custom_ops_is_opaque_and_unknown_is_null() -> None:
    graph_def = tf.GraphDef()
    graph_def.node.add(name="own", op="MyCompany>Mystery", device="/job:ps/task:0")
    graph_def.node.add(name="use", op="MyCompany>Other", input=["own:1"], device="/job:worker/task:0")
    found = inspect(graph_def, ps=1, workers=1, fetches="use")
    row = found.to_json()["transfers"][0]
    assert (row["tensor"], row["dtype"], row["shape"], row["bytes"]) == ("own:1", None, None, None)
    assert {w.kind for w in found.warnings} >= {"not executable"}


# ---------------------------------------------------------------- mistakes


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["inspect", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize("arguments, said", [
    (["nothing.py"], "'nothing.py' does not exist"),
    ([], "Give a SOURCE, or --entry"),
    (["script.py", "--entry", "m:f"], "Give a SOURCE or --entry, not both"),
    (["script.py", "--steps=3"], "(Options of the script itself come after --.)"),
    (["script.py", "--ps", "1", "--fetch", "Adagrat"], "the graph has no op Adagrat; there is Adagrad"),
    (["script.py", "--ps", "1", "--fetch", "W/read:1"], "W/read (Identity) has 1 output(s)"),
    (["script.py", "--ps", "1", "--feed", "y:0"], "Cannot feed y:0: the graph has no op y"),
    (["script.py", "--ps", "1", "--why", "Wread"], "There is W/read"),
    (["script.py", "--ps", "1", "--master", "/job:worker/task:9"], "it has ps 0, worker 0"),
    (["script.py", "--ps", "0", "--workers", "0"], "has no task"),
    (["script.py", "--cluster", "list.json"], "list.json contains no cluster but a list"),
    (["script.py", "--cluster", "cut.json"], "cut.json is not valid JSON"),
    (["script.py", "--cluster", "text.json"], "tasks for job 'ps' must be a list"),
    (["script.py", "--ps", "0", "--workers", "1"], "/job:ps/task:0 but available devices are [ /job:worker"),
    (["script.py", "--ps", "1", "--diff", "list.json"], "list.json: not the output of tfmini inspect --json"),
    (["script.py", "--ps", "1", "--html", "no/where.html"], "Cannot write no/where.html"),
    (["fails.py"], "line 3 (tf.matmul(x, x)): ValueError: Dimensions must be equal"),
    (["exits.py"], "exits.py ended before it had built a graph: give me --data. Does it need arguments"),
    (["--entry", "no_such_module:build"], "build failed before its first session: ModuleNotFoundError: No module"),
    (["empty.py"], "empty.py built no graph"),
    (["cut.json"], "cut.json is no GraphDef, MetaGraphDef or SavedModel"),
    (["."], "is a directory without saved_model.pb or saved_model.pbtxt. It has other.pb"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_remedy(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "list.json").write_text("[1]")
    (folder / "cut.json").write_text('{"ps": ["a:1"')
    (folder / "text.json").write_text('{"ps": "a:1"}')
    fails = ["import tensorflow as tf", "x = tf.placeholder(tf.float32, [2, 3])", "tf.matmul(x, x)"]
    (folder / "fails.py").write_text("\n".join(fails))
    (folder / "exits.py").write_text("raise SystemExit('give me --data')\n")
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "other.pb").write_text("")
    code, output = run(*arguments)
    assert code != 0 and said in output.replace("\n", " "), output


def test_differences_from_an_earlier_run_are_shown(folder: Path) -> None:
    code, output = run("script.py", "--ps", "1", "--json")
    assert code == 0
    (folder / "before.json").write_text(output)
    assert run("script.py", "--ps", "1", "--diff", "before.json") == (0, "no difference\n")
    (folder / "script.py").write_text(SESSION.replace('"W", [3]', '"V", [3]'))
    code, output = run("script.py", "--ps", "1", "--diff", "before.json")
    assert "+ V" in output and "- W" in output and "+ wire V/read:0: ps/0 -> worker/0" in output


def test_pictures_are_written(folder: Path) -> None:
    assert run("script.py", "--ps", "1", "--dot", "a.dot", "--svg", "a.svg", "--html", "a.html") == (0, "")
    assert (folder / "a.dot").read_text().startswith("digraph")
    assert (folder / "a.svg").read_text().startswith("<svg") and "</html>" in (folder / "a.html").read_text()


# ---- hostile files ------------------------------------------------------------------------------


def _written(path: Path, *nodes: tuple[str, str, list[str]], device: str = "", **attrs: bytes) -> Path:
    graph_def = protos.GraphDef()
    for name, op, inputs in nodes:
        node = graph_def.node.add(name=name, op=op, input=inputs, device=device)
        for key, value in attrs.items():
            node.attr[key].s = value
    path.write_bytes(graph_def.SerializeToString())
    return path


def test_a_short_file_cannot_ask_for_any_number_of_outputs_or_tasks(tmp_path: Path) -> None:
    """52 bytes took 6 GB and two minutes."""
    path = _written(tmp_path / "g.pb", ("a", "CustomOp", []), ("b", "OtherOp", ["a:300000000"]))
    with pytest.raises(ValueError, match="output 300000000 of 'a': ops that tfmini does not know may have 65536"):
        inspect(str(path))
    path = _written(tmp_path / "g.pb", ("a", "NoOp", []), device="/job:ps/task:300000000")
    with pytest.raises(ValueError, match="The graph's devices would need 300000001 tasks; at most 65536"):
        inspect(str(path))
    (tmp_path / "c.json").write_text('{"ps": 1000000000}')
    with pytest.raises(ValueError, match="c.json would need 1000000000 tasks"):
        inspect(str(path), cluster=str(tmp_path / "c.json"))


def test_attrs_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises((ValueError, errors.InvalidArgumentError), match="Attr 'T' of node 'b'"):
        inspect(str(_written(tmp_path / "g.pb", ("b", "Identity", []), T=b"x")))
    with pytest.raises((ValueError, errors.InvalidArgumentError), match="Attr '_class' of node 'b'"):
        inspect(str(_written(tmp_path / "g.pb", ("b", "NoOp", []), _class=b"x")))


def test_a_text_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    depth = 400
    inner = 'func { name: "f" attr { key: "y" value {' * depth + "i: 1" + "} } }" * depth
    path = tmp_path / "deep.pbtxt"
    path.write_text('node { name: "a" op: "NoOp" attr { key: "x" value { ' + inner + " } } }")
    with pytest.raises(ValueError, match="deep.pbtxt: .* nested too deeply"):
        inspect(str(path))


def test_other_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"\xff\xfe", b"[" * 3000, b"a: &a [*a]", b'{"ps": {"x": "a:1"}}', b"- - - 3"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="x"):
            read_cluster(str(path))
    for content in (b"", b"{}", b"{" * 3000, b'{"otherData": 3}', b"\xff" * 40):
        path.write_bytes(content)
        if content:
            with pytest.raises(ValueError, match="neither a timeline of"):
                read_trace(path)
