"""Programs of `tests.programs.era` that edit graphs: ``tf.contrib.graph_editor``, ``copy_graph`` and ``testing``."""

from __future__ import annotations

import os
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

from tests.programs.era import outcome, program, run


class Example:
    """A graph with two scopes, a variable, control inputs and collections."""

    def __init__(self, tf: Any) -> None:
        self.g = tf.Graph()
        with self.g.as_default():
            self.x, self.y = tf.placeholder(tf.float32, [2], "x"), tf.placeholder(tf.float32, [2], "y")
            self.v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
            with tf.name_scope("s"):
                self.a = tf.add(self.x, self.y, name="a")
                self.b = tf.multiply(self.a, self.x, name="b")
                self.c = tf.negative(self.a, name="c")
            with tf.name_scope("t"):
                self.p = tf.add(self.x, self.v, name="p")
                with tf.control_dependencies([self.c, self.a]):
                    self.q = tf.multiply(self.p, self.b, name="q")
                self.r = tf.identity(self.b, name="r")
                self.w = tf.add(self.q, self.r, name="w")
                with tf.control_dependencies([self.q]):
                    self.z = tf.no_op(name="z")
            tf.add_to_collection("mine", self.b)
            tf.add_to_collection("losses", self.b)

    def rows(self) -> dict[str, Any]:
        ops = [op for op in self.g.get_operations() if not op.name.startswith("v")]
        return {op.name: (op.type, names(op.inputs), sorted(c.name for c in op.control_inputs)) for op in ops}


def names(things: Any) -> Any:
    if isinstance(things, dict):
        return sorted((names(key), names(value)) for key, value in things.items())
    if isinstance(things, (set, frozenset)):
        return sorted(thing.name for thing in things)
    if hasattr(things, "connected_inputs"):
        parts = (things.ops, things.inputs, things.outputs, things.connected_inputs, things.connected_outputs)
        return [names(list(part)) for part in (*parts, things.passthroughs)]
    if isinstance(things, (list, tuple)) or type(things).__name__ in ("ListView", "_InputList"):
        return [names(thing) for thing in things]
    return getattr(things, "name", things)


def cases(tf: Any, table: dict[str, Callable[[Example], Any]]) -> dict[str, Any]:
    """Of each case: its names, and the ops that are new or have changed."""
    found = {}
    for key, case in table.items():
        example = Example(tf)
        before = example.rows()
        with example.g.as_default():
            try:
                answer = names(case(example))
            except Exception as error:
                answer = type(error).__name__
        found[key] = answer, {name: row for name, row in example.rows().items() if before.get(name) != row}
    return found


@program
def selected_parts_of_a_graph(tf: Any) -> Any:
    ge = tf.contrib.graph_editor
    waits = lambda s: ge.ControlOutputs(s.g)  # noqa: E731
    return cases(tf, {
        "boundary": lambda s: ge.compute_boundary_ts([s.w.op, s.q.op, s.b.op]),
        "twice": lambda s: ge.SubGraphView([s.b.op, s.b.op], [s.y, s.y]),
        "scopes": lambda s: [ge.get_name_scope_ops(s.g, scope) for scope in ("", "s", "s/", "s/a", "a")],
        "ops": lambda s: ge.select_ops(s.w.op, "s/.*", "(?#ts)t/.*", s.b.op, s.y, graph=s.g),
        "some ops": lambda s: ge.select_ops("(?#ops)s/.*", "t/.*", graph=s.g, restrict_ops_regex=True),
        "filtered": lambda s: ge.select_ops(s.a.op, "s/.*", graph=s.g, positive_filter=lambda op: op.type == "Mul"),
        "ts": lambda s: ge.select_ts(s.w, "s/.*", "(?#ops)t/.*", [s.y, s.w], s.b.op, graph=s.g),
        "both": lambda s: ge.select_ops_and_ts("s/.*", "(?#ts)t/.*", s.x, s.y.op, graph=s.g),
        "keyword": lambda s: ge.select_ops(s.a.op, other=1),
        "no graph": lambda s: ge.select_ops("s/.*"),
        "bad graph": lambda s: ge.select_ops("s/.*", graph=3),
        "other graph": lambda s: ge.sgv(Example(tf).a.op, graph=s.g),
        "nested": lambda s: ge.make_list_of_op([s.a.op, [s.b.op]]),
        "names": lambda s: ge.filter_ts_from_regex([s.a.op, s.b.op], "^s/.*:0"),
        "beside": lambda s: [ge.get_ops_ios([s.b.op]), ge.get_ops_ios([s.q.op], control_inputs=True),
                             ge.get_ops_ios([s.c.op], control_ios=waits(s))],
        "within": lambda s: ge.get_within_boundary_ops(s.g, [s.b.op], [s.a.op, s.x.op, s.q.op, s.r.op, s.y.op]),
        "inside": lambda s: ge.get_within_boundary_ops(s.g, [s.b.op], [s.a.op, s.q.op], inclusive=False),
        "crossed": lambda s: ge.get_within_boundary_ops(s.g, [s.b.op], [s.b.op]),
        "intersection": lambda s: set(ge.get_walks_intersection_ops([s.c.op], [s.w.op], control_ios=waits(s))),
        "union": lambda s: set(ge.get_walks_union_ops([s.c.op], [s.b.op], forward_inclusive=False)),
        "outside": lambda s: set(ge.get_backward_walk_ops(s.q, False, control_inputs=True, stop_at_ts=[s.b])),
        "waiting": lambda s: [waits(s).get_all(), waits(s).get(s.c.op), list(waits(s).get(s.x.op))],
        "which": lambda s: [ge.check_cios(True), ge.check_cios(control_ios=waits(s))[0]],
        "not these": lambda s: ge.check_cios(False, 3),
        "placeholders": lambda s: [
            ge.placeholder_name(), ge.placeholder_name(s.a), ge.placeholder_name(s.a, ""),
            ge.placeholder_name(s.a, "q/"), ge.placeholder_name(s.a, prefix="p"), ge.placeholder_name(scope="z"),
            ge.make_placeholder_from_tensor(s.a), ge.make_placeholder_from_tensor(s.a, "q"), ge.ph(tf.int32),
            ge.ph(tf.int32, [2], "z"),
            str(ge.make_placeholder_from_dtype_and_shape(tf.float32, [None], prefix="w"))],
    })  # fmt: skip


@program
def views_of_a_graph(tf: Any) -> Any:
    ge = tf.contrib.graph_editor
    view = lambda s: ge.sgv(s.a.op, s.b.op, s.c.op)  # noqa: E731
    text = lambda s: [line for line in str(ge.sgv(s.a.op, s.w)).split("\n") if "graphid" not in line]  # noqa: E731
    return cases(tf, {
        "view": lambda s: [view(s), ge.sgv("(?#ts)s/.*", s.b.op, graph=s.g), ge.sgv_scope("s", s.g)],
        "text": lambda s: [text(s), str(ge.sgv()), bool(view(s)), bool(ge.sgv()), ge.sgv().graph],
        "inputs": lambda s: [view(s).remap_inputs([1]), view(s).remap_inputs([s.y, s.x])],
        "outputs": lambda s: [view(s).remap_outputs([1, 1, 0]), view(s).remap_outputs([s.c]), view(s).remap([1], [])],
        "twice": lambda s: view(s).remap_inputs([1, 1]),
        "far": lambda s: view(s).remap_inputs([3]),
        "default": lambda s: [view(s).remap([1], [1, 1]).remap_default(), view(s).remap([1], [0]).remap_default(False)],
        "once": lambda s: view(s).remap([1], [1, 1]).remap_outputs_make_unique(),
        "taken": lambda s: [view(s).remap_outputs_to_consumers(), ge.sgv(s.w.op).remap_outputs_to_consumers()],
        "used": lambda s: [view(s).remap([], outputs).remove_unused_ops() for outputs in ([0], [1], [])],
        "passed": lambda s: ge.sgv(s.q, s.w, s.a.op).remap([0], [1]),
        "parts": lambda s: [view(s).op(1), view(s).find_op_by_name("s/c"), view(s).input_index(s.y),
                            view(s).output_index(s.c), view(s).consumers(), ge.sgv(s.q).is_passthrough(s.q)],
        "unknown": lambda s: view(s).find_op_by_name("c"),
        "copy": lambda s: view(s).remap([1], [1, 1]).copy(),
        "same": lambda s: [ge.sgv(v) is v for v in [view(s)]],
        "bad": lambda s: ge.sgv(3),
    })  # fmt: skip


@program
def changed_connections_of_a_graph(tf: Any) -> Any:
    ge = tf.contrib.graph_editor
    pairs = {
        "single": lambda s: (ge.sgv(s.b.op), ge.sgv(s.q.op)),
        "passed": lambda s: (ge.sgv(s.c.op), ge.sgv(s.r)),
        "inner": lambda s: (ge.sgv(s.a.op, s.c.op).remap_outputs([0, 1]), ge.sgv(s.b.op, s.q.op).remap_inputs([0, 2])),
        "mapped": lambda s: (ge.sgv(s.a.op).remap([1, 0], [0]), ge.sgv(s.p.op, s.c.op).remap([2, 1], [0])),
        "tensors": lambda s: (ge.sgv(s.y, s.b), ge.sgv(s.x, s.q)),
        "bad": lambda s: (ge.sgv(s.a.op), ge.sgv(s.r.op)),
    }
    found = {}
    for name in ("inputs", "outputs", "ios"):
        for act in ("reroute", "swap"):
            change = getattr(ge, f"{act}_{name}")
            changed = {key: lambda s, change=change, pair=pair: change(*pair(s)) for key, pair in pairs.items()}
            found[f"{act}_{name}"] = cases(tf, changed)
    ts = {
        "some": lambda s: ge.reroute_ts([s.x], [s.b], can_modify=[s.q.op]),
        "others": lambda s: ge.reroute_ts(s.x, s.b, cannot_modify=s.q.op),
        "twice": lambda s: ge.reroute_ts([s.x, s.y], [s.b, s.b]),
        "sizes": lambda s: ge.reroute_ts([s.x, s.y], [s.b]),
        "dtypes": lambda s: ge.reroute_ts([tf.constant([1, 2])], [s.x]),
        "shapes": lambda s: ge.reroute_ts([tf.constant([1.0, 2.0, 3.0])], [s.x]),
        "swapped": lambda s: ge.swap_ts([s.p, s.q], [s.b, s.r]),
        "back": lambda s: ge.swap_ts([s.x, s.b], [s.b, s.x]),
        "waits": lambda s: ge.add_control_inputs(s.q.op, s.x.op),
        "waits already": lambda s: ge.add_control_inputs(s.q.op, [s.c.op]),
        "does not wait": lambda s: ge.remove_control_inputs(s.q.op, [s.x.op]),
        "waits less": lambda s: ge.remove_control_inputs(s.q.op, [s.c.op]),
    }  # fmt: skip
    return found, cases(tf, ts)


@program
def detached_parts_of_a_graph(tf: Any) -> Any:
    ge = tf.contrib.graph_editor
    both = lambda s: ge.sgv(s.b.op, s.q.op)  # noqa: E731
    waits = lambda s: ge.ControlOutputs(s.g)  # noqa: E731
    found = cases(tf, {
        "inputs": lambda s: [ge.detach_inputs(s.q.op), str(s.q.op.inputs[0].shape)],
        "inputs that wait": lambda s: ge.detach_inputs(ge.sgv(s.q.op, s.w.op, s.y), control_inputs=True),
        "outputs": lambda s: ge.detach_outputs(ge.sgv(s.b.op, s.w.op)),
        "outputs that wait": lambda s: ge.detach_outputs(ge.sgv(s.c.op, s.q.op), control_outputs=waits(s)),
        "detach": lambda s: ge.detach(both(s)),
        "detach all": lambda s: ge.detach(both(s), control_ios=waits(s)),
        "detach some": lambda s: ge.detach(both(s).remap([0], [1])),
        "control inputs": lambda s: ge.detach_control_inputs(ge.sgv(s.q.op, s.c.op)),
        "control outputs": lambda s: ge.detach_control_outputs(s.c.op, waits(s)),
        "no outputs": lambda s: ge.detach_control_outputs(s.c.op, None),
        "bypass": lambda s: ge.bypass(s.r.op),
        "bypass two": lambda s: ge.bypass(both(s).remap_inputs([0, 1])),
        "not as many": lambda s: ge.bypass(s.b.op),
        "connect": lambda s: ge.connect(ge.sgv(s.b.op, s.c.op), ge.sgv(s.w.op)),
        "connect alone": lambda s: ge.connect(ge.sgv(s.a.op), ge.sgv(s.r.op), disconnect_first=True),
    })  # fmt: skip
    example = Example(tf)
    with example.g.as_default():
        _, (before,) = ge.bypass(example.r.op)
        feeds = {example.x: [1.0, 2.0], example.y: [3.0, 4.0]}
        return found, run(tf, [example.w, example.r], {**feeds, before: [9.0, 9.0]})


@program
def copied_parts_of_a_graph(tf: Any) -> Any:
    ge = tf.contrib.graph_editor
    both = lambda s: ge.sgv(s.b.op, s.q.op)  # noqa: E731

    def other(s: Example, view: Any, **settings: Any) -> Any:
        graph = tf.Graph()
        made, info = ge.copy(view, graph, **settings)
        held = {key: names(graph.get_collection(key)) for key in graph.get_all_collection_keys() if "var" not in key}
        rows = [(op.name, op.type, names(op.inputs), names(op.control_inputs)) for op in graph.get_operations()]
        return made, rows, sorted(held.items()), info.transformed(s.b)

    def informed(s: Example) -> Any:
        made, info = ge.copy(both(s), dst_scope="D")
        text = [line for line in str(info).split("\n") if "graph[" not in line]
        found = [info.transformed((s.b, [s.q, s.x])), info.transformed({"a": s.b}), info.original(made.ops), text]
        return [*found, info.transformed(s.x, lambda t: t), info.transformed(s.x)]

    def own(handlers: dict[str, Any], **settings: Any) -> Callable[[Example], Any]:
        copier = ge.Transformer()
        for key, handler in handlers.items():
            setattr(copier, f"transform_{key}_handler", handler)
        return lambda s: copier(both(s), s.g, "D", **settings)[0]

    def sums(info: Any, op: Any, inputs: Any) -> Any:
        with tf.name_scope("Q/"):
            made = tf.add(*inputs).op
        return made, made.outputs

    def on_cpu(node_def: Any) -> Any:
        node_def.device = "/device:CPU:3"
        return node_def

    def devices(s: Example) -> Any:
        handler = lambda info, op, inputs: ge.copy_op_handler(info, op, inputs, True, on_cpu)  # noqa: E731
        return [op.device for op in own({"op": handler})(s).ops]

    inside = lambda info, op: ge.transform_op_if_inside_handler(info, op, keep_if_possible=False)  # noqa: E731
    keep = ge.keep_t_if_possible_handler
    return cases(tf, {
        "copy": lambda s: ge.copy([s.b.op, s.q.op])[0],
        "scopes": lambda s: [ge.copy(s.b.op, dst_scope=scope)[0] for scope in ("t", "t/", "D")],
        "same scope": lambda s: ge.copy(s.b.op, dst_scope="t", reuse_dst_scope=True)[0],
        "source": lambda s: ge.copy(s.c.op, dst_scope="D", src_scope="s")[0],
        "not in source": lambda s: ge.copy(s.c.op, dst_scope="D", src_scope="t")[0],
        "hidden": lambda s: ge.copy(both(s).remap([0], [1, 1]), dst_scope="D")[0],
        "other graph": lambda s: other(s, [s.b.op, s.q.op, s.c.op], dst_scope="D"),
        "hidden there": lambda s: other(s, ge.sgv(s.b.op, s.p.op).remap_inputs([])),
        "info": informed,
        "replaced": lambda s: ge.copy_with_input_replacements(both(s), {s.x: s.y}, dst_scope="D")[0],
        "no graph": lambda s: ge.copy(s.b.op, 3),
        "graph_replace": lambda s: ge.graph_replace([s.w, (s.c,)], {s.b: s.x}, dst_scope="D"),
        "control": lambda s: ge.graph_replace({"w": s.w}, {s.a: s.x}),
        "apart": lambda s: ge.graph_replace(s.c, {s.b: s.x}),
        "own op": own({"op": sums}),
        "own inputs": own({"external_input": keep, "control_input": inside}),
        "devices": devices,
        "in place": own({"op": lambda info, op, inputs: (op, op.outputs)}),
    })  # fmt: skip


@program
def tools_of_the_graph_editor(tf: Any) -> Any:
    util = tf.contrib.graph_editor.util
    one, other = Example(tf), Example(tf)
    listed = util.ListView([1, 2])
    return [
        util.concatenate_unique([1, 2], [2, 3, 3]), util.flatten_tree([1, [2, (3,)], {"a": 4}]),
        util.transform_tree([1, (2, {"a": 3}), iter([4])], lambda n: n * 2), [listed[0], len(listed), listed + [3]],
        [util.is_iterable(thing) for thing in ([1], 3, one.a)], [util.scope_finalize(s) for s in ("a", "a/", "", None)],
        [util.scope_basename(s) for s in ("a/b", "a", "a/")], [util.scope_dirname(s) for s in ("a/b/c", "a")],
        util.get_unique_graph([one.a, one.b.op]) is one.g, util.get_unique_graph([], none_if_empty=True),
        names(util.find_corresponding([one.a, {"b": one.b.op}], other.g)), util.check_graphs(one.a, one.b.op),
        names(tf.contrib.graph_editor.edit.detach_inputs(one.q.op)[1]), tf.contrib.graph_editor.select.select_ops(),
    ]  # fmt: skip


@program
def graphs_copied_to_others(tf: Any) -> Any:
    copies = tf.contrib.copy_graph
    with tf.Graph().as_default():
        v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
        w = tf.Variable(v.initialized_value() * 2, name="w", trainable=False, use_resource=False)
        x = tf.placeholder(tf.float32, [2], "x")
        with tf.name_scope("s"), tf.control_dependencies([w.op]):
            y = tf.multiply(x, v, name="y")
        z = tf.unstack(tf.add(y, w, name="z"), name="parts")
        tf.add_to_collection("mine", y)
        tf.add_to_collection("losses", y)
        tf.add_to_collection("kept", v)
    other, plain = tf.Graph(), tf.Graph()

    def kept(graph: Any) -> Any:
        rows = [(op.name, op.type, names(op.inputs), names(op.control_inputs)) for op in graph.get_operations()]
        return rows, sorted((k, names(graph.get_collection(k))) for k in graph.get_all_collection_keys())

    made = [copies.copy_variable_to_graph(variable, other) for variable in (v, w)]
    found = [str(variable.shape) for variable in made] + [type(made[0]).__name__]
    found += [copies.copy_op_to_graph(z[1], other, made).name, copies.copy_op_to_graph(y.op, other, made).name]
    found += [copies.copy_op_to_graph(v, other, made).name, kept(other)]
    scoped = [copies.copy_variable_to_graph(v, plain, "q")]
    found += [copies.copy_op_to_graph(y, plain, scoped, scope="q").name, kept(plain)]
    found += [copies.get_copied_op(thing, other).name for thing in (z[0], y.op, v)]
    found += [outcome(lambda: copies.get_copied_op(y, plain)), copies.get_copied_op(y, plain, "q").name]
    found.append(outcome(lambda: copies.copy_variable_to_graph(y, other)))
    with other.as_default():
        return found, run(tf, copies.get_copied_op(z[1], other), {"x:0": [3.0, 4.0]})


@program
def summaries_of_tests(tf: Any) -> Any:
    testing, folder = tf.contrib.testing, tempfile.mkdtemp()
    summary = tf.Summary(value=[tf.Summary.Value(tag="a", simple_value=1), tf.Summary.Value(tag="b", simple_value=2)])
    other = tf.Summary(value=[tf.Summary.Value(tag="a", image=tf.Summary.Image(height=2))])
    found = [testing.latest_event_file(folder), list(testing.latest_events(folder)), testing.latest_summaries(folder)]
    for tags, numbers in ((["b", "a"], {"a": 1.001}), (["a"], {}), (["a", "b"], {"a": 3.0}), (["a", "b"], {"c": 3.0})):
        found.append(outcome(lambda t=tags, n=numbers: testing.assert_summary(t, n, summary)))
    writer = tf.summary.FileWriter(folder)
    for step in (3, 4):
        writer.add_summary(summary, step)
    writer.close()
    events = testing.latest_summaries(folder)
    found += [[event.step for event in events], len(list(testing.latest_events(folder)))]
    found += [os.path.basename(testing.latest_event_file(folder))[:10]]
    found += [testing.simple_values_from_events(events, ["b", "c"])]
    found += [testing.to_summary_proto(other.SerializeToString()).value[0].image.height]
    graph, case = tf.get_default_graph(), unittest.TestCase()
    fake = testing.FakeSummaryWriter("there", graph)
    fake.add_summary(summary, 1)
    fake.add_summary(summary.SerializeToString(), 1)
    fake.add_graph(graph)
    fake.add_meta_graph(tf.MetaGraphDef(), 1)
    fake.add_session_log(tf.SessionLog(), 1)
    found += [{step: len(kept) for step, kept in fake.summaries.items()}]
    for wanted in (
        {"expected_logdir": "there", "expected_graph": graph, "expected_summaries": {1: {"a": 1.0, "b": 2.0}}},
        {"expected_added_graphs": [graph], "expected_session_logs": [tf.SessionLog()]},
        {"expected_added_meta_graphs": []}, {"expected_logdir": "here"}, {"expected_graph": tf.Graph()},
        {"expected_summaries": {1: {"a": 1.0}}}, {"expected_summaries": {2: {}}}, {"expected_session_logs": []},
    ):  # fmt: skip
        found.append(outcome(lambda w=wanted: fake.assert_summaries(case, **w)))
    found += [outcome(lambda: fake.add_graph(graph, -1)), outcome(lambda: fake.add_meta_graph(None, -1))]
    return [*found, outcome(lambda: fake.add_graph(graph, graph_def=tf.GraphDef()))]


@program
def ops_of_a_graph_def(tf: Any) -> Any:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2])
        tf.cond(x[0] > 0.0, lambda: tf.negative(x), lambda: tf.identity(x))
    util, graph_def = tf.contrib.util, graph.as_graph_def()
    listed = util.stripped_op_list_for_graph(graph_def)
    unknown = tf.GraphDef()
    unknown.node.add(name="a", op="NoSuchOp")
    described = [(op.name, [arg.name for arg in op.input_arg], op.summary) for op in listed.op]
    return sorted(util.ops_used_by_graph_def(graph_def)), described, outcome(
        lambda: util.stripped_op_list_for_graph(unknown)
    )  # fmt: skip
