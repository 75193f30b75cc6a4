"""Programs with conds, loops and tensor arrays: what they fetch, as source text over ``tf`` and ``np``.

Each is run by tfmini, by TensorFlow, and once more by TensorFlow from the GraphDef that tfmini made.
A program assigns ``fetches`` (a list of tensors) and may assign ``feeds`` ({tensor: value}).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CASES: dict[str, str] = {
    "cond": """
x = tf.placeholder(tf.float32, [2]); p = tf.placeholder(tf.bool, [])
y = tf.cond(p, lambda: x * 2., lambda: tf.constant([3., 4.]))
fetches = [y] + tf.gradients(y, x); feeds = {x: [1., 2.], p: True}
""",
    "cond_false": """
x = tf.placeholder(tf.float32, [None]); p = tf.placeholder(tf.bool, [])
y = tf.cond(p, lambda: x * 2., lambda: tf.square(x))
fetches = [y] + tf.gradients(y, x); feeds = {x: [1., 2., 3.], p: False}
""",
    "cond_unused_in_other_branch": """
x = tf.placeholder(tf.float32, [None]); w = tf.constant([2., 3.]); p = tf.placeholder(tf.bool, [])
y = tf.cond(p, lambda: x * w, lambda: x + 1.)
fetches = [y] + tf.gradients(y, [x, w]); feeds = {x: [1., 2.], p: False}
""",
    "cond_nested": """
x = tf.placeholder(tf.float32, []); p = x > 1.; q = x > 2.
y = tf.cond(p, lambda: tf.cond(q, lambda: x * x * x, lambda: x * x), lambda: -x)
fetches = [y] + tf.gradients(y, x); feeds = {x: 1.5}
""",
    "cond_second_order": """
x = tf.placeholder(tf.float32, []); p = x > 1.
y = tf.cond(p, lambda: x * x * x, lambda: x * x)
g = tf.gradients(y, x)[0]; h = tf.gradients(g, x)[0]
fetches = [y, g, h]; feeds = {x: 3.}
""",
    "cond_structure": """
x = tf.constant([1., 2.]); p = tf.placeholder(tf.bool, [])
out = tf.cond(p, lambda: {'b': x, 'a': (x * 2., [x * 3.])}, lambda: {'b': -x, 'a': (x, [x])})
fetches = [out['a'][0], out['a'][1][0], out['b']]; feeds = {p: True}
""",
    "cond_slices": """
params = tf.constant(np.arange(12.).reshape(4, 3), tf.float32); p = tf.placeholder(tf.bool, [])
y = tf.cond(p, lambda: tf.gather(params, [1, 1, 2]), lambda: tf.gather(params, [0, 3, 3]))
fetches = [y, tf.convert_to_tensor(tf.gradients(y * y, params)[0])]; feeds = {p: True}
""",
    "cond_merges_slices": """
p = tf.placeholder(tf.bool, []); v = tf.constant([[1., 2.], [3., 4.]])
y = tf.cond(p, lambda: tf.IndexedSlices(v, tf.constant([0, 2]), tf.constant([4, 2])),
            lambda: tf.IndexedSlices(-v, tf.constant([1, 1], tf.int64), tf.constant([4, 2])))
fetches = [y.values, y.indices, y.dense_shape]; feeds = {p: False}
""",
    "cond_operations": """
p = tf.placeholder(tf.bool, [])
y = tf.cond(p, lambda: tf.no_op(), lambda: tf.no_op())
fetches = [y]; feeds = {p: False}
""",
    "cond_control_inputs": """
p = tf.placeholder(tf.bool, []); x = tf.constant(3.)
with tf.control_dependencies([x]):
    y = tf.cond(p, lambda: tf.constant(1.), lambda: x)
fetches = [y]; feeds = {p: True}
""",
    "case": """
x = tf.placeholder(tf.int32, [])
y = tf.case([(x < 1, lambda: tf.constant(10)), (x < 3, lambda: x * 2)], default=lambda: -x)
fetches = [y]; feeds = {x: 2}
""",
    "case_exclusive": """
x = tf.placeholder(tf.int32, [])
y = tf.case([(x < 1, lambda: tf.constant(10)), (x > 3, lambda: x * 2)], exclusive=True)
fetches = [y]; feeds = {x: 5}
""",
    "assert_guard": """
x = tf.placeholder(tf.float32, [2])
with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0.), [x])]):
    y = x + 1.
fetches = [y]; feeds = {x: [1., 2.]}
""",
    "while": """
x = tf.placeholder(tf.float32, [])
i, a = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * x), [tf.constant(0), x])
fetches = [i, a] + tf.gradients(a, x); feeds = {x: 1.5}
""",
    "while_never": """
x = tf.placeholder(tf.float32, [2])
i, a = tf.while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * x), [tf.constant(0), x * 3.])
fetches = [i, a] + tf.gradients(a, x); feeds = {x: [1.5, 2.]}
""",
    "while_matmul": """
w = tf.constant([[.5, .1], [-.2, .3]]); x = tf.constant([[1., 2.]])
_, y = tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [0, x])
fetches = [y] + tf.gradients(y, [w, x])
""",
    "while_unknown_shape": """
x = tf.placeholder(tf.float32, [None]); w = tf.placeholder(tf.float32, [None])
_, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * w + x), [0, x])
fetches = [y] + tf.gradients(y, [w, x]); feeds = {x: [1., 2.], w: [.5, 3.]}
""",
    "while_shape_invariant": """
m = tf.constant([[1., 2.]])
i, y = tf.while_loop(lambda i, m: i < 3, lambda i, m: [i + 1, tf.concat([m, m], 0)], [tf.constant(0), m],
                     shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])])
fetches = [y] + tf.gradients(y, m)
""",
    "while_maximum_iterations": """
x = tf.constant(2.)
y = tf.while_loop(lambda y: y < 1000., lambda y: y * x, [x], maximum_iterations=3)
fetches = [y] + tf.gradients(y, x)
""",
    "while_unused_variable": """
x = tf.constant(2.); z = tf.constant(5.)
_, y, _ = tf.while_loop(lambda i, y, z: i < 3, lambda i, y, z: (i + 1, y * z, z + x), [0, x, z])
fetches = [y] + tf.gradients(y, [x, z])
""",
    "while_forgets": """
x = tf.placeholder(tf.float32, [None]); z = tf.placeholder(tf.float32, [None])
_, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, z * 2.), [0, x])
fetches = [y] + tf.gradients(y, [x, z]); feeds = {x: [1., 2.], z: [3., 4.]}
""",
    "while_no_backprop": """
x = tf.constant(2.)
y = tf.while_loop(lambda y: y < 100., lambda y: y * x, [x], back_prop=False)
fetches = [y, tf.gradients(y + x, x)[0]]
""",
    "while_nested": """
x = tf.constant(1.1)
def outer(i, y):
    _, y = tf.while_loop(lambda j, y: j < 3, lambda j, y: (j + 1, y * x + tf.cast(i, tf.float32)), [0, y])
    return i + 1, tf.sin(y) * x
_, y = tf.while_loop(lambda i, y: i < 4, outer, [0, x])
fetches = [y] + tf.gradients(y, x)
""",
    "while_nested_varying": """
x = tf.placeholder(tf.float32, [None])
def outer(i, y):
    _, y = tf.while_loop(lambda j, y: j < i, lambda j, y: (j + 1, y * x), [0, y])
    return i + 1, y + x
_, y = tf.while_loop(lambda i, y: i < 4, outer, [0, x])
fetches = [y] + tf.gradients(y, x); feeds = {x: [1.1, .9]}
""",
    "cond_in_while": """
x = tf.constant(1.5)
def body(i, y):
    return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y + tf.sin(x))
_, y = tf.while_loop(lambda i, y: i < 5, body, [0, x])
fetches = [y] + tf.gradients(y, x)
""",
    "cond_in_while_unknown_shape": """
x = tf.placeholder(tf.float32, [None]); z = tf.placeholder(tf.float32, [None])
def body(i, y):
    return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y + z)
_, y = tf.while_loop(lambda i, y: i < 5, body, [0, x])
fetches = [y] + tf.gradients(y, [x, z]); feeds = {x: [1.5, 2.], z: [.5, .25]}
""",
    "while_in_cond": """
x = tf.placeholder(tf.float32, []); p = x > 1.
y = tf.cond(p, lambda: tf.while_loop(lambda y: y < 50., lambda y: y * x, [x]), lambda: x * 3.)
fetches = [y] + tf.gradients(y, x); feeds = {x: 1.5}
""",
    "while_in_cond_untaken": """
x = tf.placeholder(tf.float32, []); p = x > 1.
y = tf.cond(p, lambda: tf.while_loop(lambda y: y < 50., lambda y: y * x, [x]), lambda: x * 3.)
fetches = [y] + tf.gradients(y, x); feeds = {x: .5}
""",
    "while_slices": """
params = tf.constant(np.arange(12.).reshape(4, 3), tf.float32)
_, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.gather(params, [i, 3]) * y), [0, tf.ones([2, 3])])
fetches = [y, tf.convert_to_tensor(tf.gradients(y, params)[0])]
""",
    "while_gradient_inside": """
x = tf.constant(3.); w = tf.constant(2.)
def body(i, y):
    return i + 1, y + tf.gradients(w * w * w * y, w)[0]
_, y = tf.while_loop(lambda i, y: i < 3, body, [0, x])
fetches = [y]
""",
    "while_control_inputs": """
x = tf.constant(2.); n = tf.constant(4)
with tf.control_dependencies([x]):
    i, y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * x), [tf.constant(0), x])
fetches = [i, y] + tf.gradients(y, x)
""",
    "while_dependencies_inside": """
x = tf.constant(2.)
def body(i, y):
    check = tf.Assert(y < 100., [y])
    with tf.control_dependencies([check]):
        y = y * x
    with tf.control_dependencies(None):
        free = tf.constant(1)
    return i + free, y
i, y = tf.while_loop(lambda i, y: i < 4, body, [tf.constant(0), x])
fetches = [i, y] + tf.gradients(y, x)
""",
    "tensor_array": """
x = tf.constant([1., 2., 3.])
ta = tf.TensorArray(tf.float32, 3).unstack(x)
out = tf.TensorArray(tf.float32, 3)
_, out = tf.while_loop(lambda i, out: i < 3, lambda i, out: (i + 1, out.write(i, ta.read(i) * x[1])), [0, out])
y = out.stack()
fetches = [y, out.size()] + tf.gradients(y, x)
""",
    "tensor_array_split": """
x = tf.constant(np.arange(10.).reshape(5, 2), tf.float32)
ta = tf.TensorArray(tf.float32, 3, infer_shape=False).split(x, [1, 3, 1])
y = ta.concat() * 2.
fetches = [y] + tf.gradients(y, x)
""",
    "tensor_array_gather": """
x = tf.constant(np.arange(6.).reshape(3, 2), tf.float32)
ta = tf.TensorArray(tf.float32, 3, clear_after_read=False).scatter([2, 0, 1], x)
y = ta.gather([0, 2]) * ta.read(0)
fetches = [y] + tf.gradients(y, x)
""",
    "tensor_array_dynamic": """
x = tf.constant(2.)
ta = tf.TensorArray(tf.float32, 1, dynamic_size=True)
_, ta = tf.while_loop(lambda i, ta: i < 5, lambda i, ta: (i + 1, ta.write(i, x * tf.cast(i, tf.float32))), [0, ta])
y = ta.stack()
fetches = [y, ta.size()] + tf.gradients(y, x)
""",
    "tensor_array_in_cond": """
p = tf.placeholder(tf.bool, []); x = tf.constant([1., 2.])
ta = tf.TensorArray(tf.float32, 2)
ta = tf.cond(p, lambda: ta.unstack(x), lambda: ta.write(0, x[0] * 3.).write(1, x[1]))
y = ta.stack()
fetches = [y] + tf.gradients(y, x); feeds = {p: False}
""",
    "map_fn": """
x = tf.constant([1., 2., 3.]); w = tf.constant(2.)
y = tf.map_fn(lambda a: a * a * w, x)
fetches = [y] + tf.gradients(y, [x, w])
""",
    "map_fn_structure": """
x = tf.constant([1., 2., 3.]); k = tf.constant([1, 2, 3])
y, z = tf.map_fn(lambda a: (a[0] * 2., a[1] + 1), (x, k), dtype=(tf.float32, tf.int32))
fetches = [y, z] + tf.gradients(y, x)
""",
    "map_fn_in_cond": """
p = tf.placeholder(tf.bool, []); x = tf.constant([1., 2., 3.])
y = tf.cond(p, lambda: tf.map_fn(lambda z: z * 2., x), lambda: tf.constant([1., 1., 1.]))
fetches = [y] + tf.gradients(y, x); feeds = {p: True}
""",
    "map_fn_unknown": """
x = tf.placeholder(tf.float32, [None, 2])
y = tf.map_fn(lambda a: tf.reduce_sum(a * a), x)
fetches = [y] + tf.gradients(y, x); feeds = {x: [[1., 2.], [3., 4.], [5., 6.]]}
""",
    "scan": """
x = tf.constant([1., 2., 3., 4.])
y = tf.scan(lambda a, b: a * b, x)
fetches = [y] + tf.gradients(y, x)
""",
    "scan_initializer_reverse": """
x = tf.constant([1., 2., 3., 4.]); s = tf.constant(.5)
y = tf.scan(lambda a, b: a * b + s, x, initializer=s, reverse=True)
fetches = [y] + tf.gradients(y, [x, s])
""",
    "scan_structure": """
x = tf.constant([1., 2., 3.])
y, z = tf.scan(lambda a, _: (a[1], a[0] + a[1]), x, initializer=(tf.constant(0.), tf.constant(1.)))
fetches = [y, z]
""",
    "foldl": """
x = tf.constant([1., 2., 3.]); s = tf.constant(.5)
y = tf.foldl(lambda a, b: a * b + b, x); z = tf.foldl(lambda a, b: a * b + s, x, initializer=s)
fetches = [y, z] + tf.gradients(y + z, [x, s])
""",
    "foldr": """
x = tf.constant([1., 2., 3.]); s = tf.constant(.5)
y = tf.foldr(lambda a, b: a * b + b, x); z = tf.foldr(lambda a, b: a * b + s, x, initializer=s)
fetches = [y, z] + tf.gradients(y + z, [x, s])
""",
    "sparse_loop_variable": """
s = tf.SparseTensor([[0], [3]], [2., 4.], [10])
_, r = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.SparseTensor(s.indices, s.values * 2., s.dense_shape)),
                     [tf.constant(0), s])
fetches = [r.indices, r.values, r.dense_shape]
""",
    "colocated_gradients": """
x = tf.constant(1.5)
def body(i, y):
    return i + 1, tf.cond(i < 2, lambda: y * x, lambda: y + x)
_, y = tf.while_loop(lambda i, y: i < 4, body, [0, x])
fetches = [y] + tf.gradients(y, x, colocate_gradients_with_ops=True)
""",
    "gated_gradients": """
x = tf.constant(1.5); w = tf.constant(.5)
_, y = tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * x + w), [0, x])
fetches = [y] + tf.gradients(y, [x, w], gate_gradients=True)
""",
}


def build(source: str, tf: Any, np: Any) -> tuple[list[Any], dict[Any, Any]]:
    """Runs a program in the default graph; (fetches, feeds)."""
    names: dict[str, Any] = {"tf": tf, "np": np, "feeds": {}}
    exec(source, names)
    return names["fetches"], names["feeds"]


FLOW_OPS = (
    "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "ControlTrigger", "StackV2", "StackPushV2",
    "StackPopV2", "TensorArrayV3", "TensorArrayReadV3", "TensorArrayWriteV3", "TensorArrayGatherV3",
    "TensorArrayScatterV3", "TensorArrayGradV3", "TensorArrayConcatV3", "TensorArraySplitV3", "TensorArraySizeV3",
)  # fmt: skip


def flow_nodes(graph_def: Any) -> list[list[Any]]:
    """[name, op, inputs, frame] of the nodes that make up the control flow; inputs from other nodes are ``*``."""
    flow = {node.name for node in graph_def.node if node.op in FLOW_OPS}
    found = []
    for node in graph_def.node:
        if node.op in FLOW_OPS:
            frame = node.attr["frame_name"].s.decode() if "frame_name" in node.attr else ""
            inputs = [text if text.lstrip("^").split(":")[0] in flow else "*" for text in node.input]
            found.append([node.name, node.op, inputs, frame])
    return sorted(found)


def native(tf: Any, source: str) -> dict[str, Any]:
    """A program's values, with its graph (serialized), fetches and feeds by name, and `flow_nodes`."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        fetches, feeds = build(source, tf, np)
        graph_def = graph.as_graph_def()
        values = session.run(fetches, feeds)
    return {
        "values": [None if value is None else np.asarray(value) for value in values],
        "nodes": flow_nodes(graph_def),
        "graph": graph_def.SerializeToString(),
        "fetches": [fetch.name for fetch in fetches],
        "feeds": {tensor.name: value for tensor, value in feeds.items()},
    }


def imported(tf: Any, case: dict[str, Any]) -> list[Any]:
    """The values of a graph that `native` gave."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(tf.GraphDef.FromString(case["graph"]), name="")
        values = session.run(case["fetches"], case["feeds"])
    return [None if value is None else np.asarray(value) for value in values]


def outcomes(tf: Any, graphs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{"native": case -> what TensorFlow makes of its program, "imported": case -> the values of our graph of it}.

    An error is given as {"error": text}.
    """
    made = {name: _outcome(native, tf, source) for name, source in CASES.items()}
    return {"native": made, "imported": {name: _outcome(imported, tf, case) for name, case in graphs.items()}}


def _outcome(function: Callable[[Any, Any], Any], tf: Any, case: Any) -> Any:
    try:
        return function(tf, case)
    except Exception as error:  # noqa: BLE001 - the test shows it
        return {"error": repr(error)[:2000]}
