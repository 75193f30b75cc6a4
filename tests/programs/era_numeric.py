"""Programs with equations, warped images and pruned weights of ``tf.contrib``: a part of `tests.programs.era`."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


@program
def differential_equations(tf: Any) -> Any:
    solve, y0, found = tf.contrib.integrate.odeint, np.array([1.0, 2.0]), []
    own = {"first_step": 0.3, "safety": 0.5, "ifactor": 2.0, "dfactor": 0.5, "max_num_steps": 99}
    cases = [
        (lambda y, t: -y, y0, [0.0, 1.0, 2.5]), (lambda y, t: tf.sin(t * 3) * y * 5, np.float64(1.0), [0.0, 3.0]),
        (lambda y, t: tf.stack([y[1] * 4, -y[0] * 4]), tf.constant([1.0, 0.0]), np.array([0.0, 0.3, 0.5])),
        (lambda y, t: y * 1j, np.array([1.0, 1j]), [0, 1]), (lambda y, t: y * 0, 1.0, [0.0, 1.0, 2.0]),
        (lambda y, t: tf.matmul(y, y) * tf.cast(t, tf.float32), tf.fill([2, 2], 0.2), [1.0, 1.2]),
    ]  # fmt: skip
    ways: list[dict[str, Any]] = [
        {"rtol": 1e-3, "atol": 1e-3}, {"method": "dopri5", "options": own, "rtol": 1e-3}, {},
    ]  # fmt: skip
    for i, case in enumerate(cases):
        for kwargs in ways[: 3 if i < 2 else 1]:
            y, info = solve(*case, full_output=True, **kwargs)
            found.append([tf.real(y), tf.imag(y), [info[key] for key in sorted(info)]])
    single = solve(lambda y, t: -y, 1.0, tf.constant([0.0, 1.0]), rtol=1e-4, full_output=True)
    found.append([single[0], single[1]["num_func_evals"], single[1]["integrate_points"]])

    def failed(*args: Any, **kwargs: Any) -> Any:
        return outcome(lambda: run(tf, solve(lambda y, t: -y, *args, **kwargs)))

    wrong = [(1, [1.0, 2]), (1.0, tf.constant([1, 2])), (1.0, [2.0, 1.0]), (1.0, [1.0, 1.0]), (1.0, 1.0)]
    bad: list[dict[str, Any]] = [
        {"method": "rk4"}, {"options": {}}, {"method": "dopri5", "options": {"a": 1}}, {"rtol": 0.0, "atol": 0.0},
        {"method": "dopri5", "options": {"max_num_steps": 1}},
    ]  # fmt: skip
    errors = [failed(*args) for args in wrong] + [failed(1.0, [0.0, 1.0], **kwargs) for kwargs in bad]
    errors += [outcome(lambda: run(tf, solve(lambda y, t: y * y, 1.0, [0.0, 2.0])))]
    shapes = [solve(lambda y, t: -y, tf.placeholder(tf.float64, shape), tf.placeholder(tf.float64, times))
              for shape, times in ((None, [2]), ([None, 3], None), ([2, 3], [None]), ([2], [4]))]  # fmt: skip
    return run(tf, found), errors, [str(y.shape) for y in shapes], [single[0].dtype, found[2][2][1].shape]


@program
def differential_equations_on_a_grid(tf: Any) -> Any:
    solve, y0, t = tf.contrib.integrate.odeint_fixed, np.array([1.0, 2.0]), [0.0, 1.0, 2.5]

    def slope(y: Any, t: Any) -> Any:
        return tf.sin(tf.cast(t, y.dtype) * 3) * tf.stack([y[1], -y[0]])

    ways: list[dict[str, Any]] = [{"dt": dt, "method": method} for method in ("rk4", "midpoint")
                                  for dt in (None, 0.3, [0.3, 0.1], [0.1], 10.0)]  # fmt: skip
    found = [solve(slope, y0, t, **way) for way in ways]
    found += [tf.real(solve(slope, np.array([1.0, 1j], np.complex64), t, 0.5)), solve(slope, y0, tf.constant([0.0, 1]))]
    wrong: list[dict[str, Any]] = [
             {"dt": [0.1, 0.2, 0.3]}, {"dt": [[0.1, 0.2]]}, {"method": "euler"}, {"t": [2.0, 1.0]}, {"t": [[1.0, 2.0]]},
             {"t": tf.constant([1, 2, 3])}, {"y0": np.array([1, 2])}, {"t": tf.constant([0.0, 1.0, 2.0]), "dt": 0.2},
             {"t": 1.0}, {"t": [1.0]}]  # fmt: skip

    def failed(way: dict[str, Any]) -> Any:
        return outcome(lambda: run(tf, solve(slope, **{"y0": y0, "t": t, **way})))

    shapes = [solve(slope, tf.placeholder(tf.float64, shape), tf.placeholder(tf.float64, times))
              for shape, times in (([None, 3], [None]), ([2, 3], [4]))]  # fmt: skip
    return run(tf, found), [failed(way) for way in wrong], [str(y.shape) for y in shapes], [y.dtype for y in found[-2:]]


@program
def gradients_of_differential_equations(tf: Any) -> Any:
    rate, y0 = tf.constant([0.5, 2.0], tf.float64), tf.constant([1.0, 2.0], tf.float64)
    t, found = tf.constant([0.0, 0.7, 1.3], tf.float64), []
    for make in (lambda f: tf.contrib.integrate.odeint(f, y0, t, 1e-4, 1e-5),
                 lambda f: tf.contrib.integrate.odeint_fixed(f, y0, t, 0.2),
                 lambda f: tf.contrib.integrate.odeint_fixed(f, y0, t, method="midpoint")):  # fmt: skip
        y = make(lambda y, t: -rate * y * y + tf.sin(t))
        found.append([y, *tf.gradients(y * y, [rate, y0, t])])
    return run(tf, found)


def _waves(*shape: int) -> Any:
    places = np.arange(np.prod(shape))
    return np.sin(places * 1.7 + 0.3 * places**2).reshape(shape).astype(np.float32)


@program
def warped_images(tf: Any) -> Any:
    image, dense, sparse = tf.contrib.image, tf.contrib.image.dense_image_warp, tf.contrib.image.sparse_image_warp
    pixels, flow = tf.constant(_waves(2, 4, 5, 3)), tf.constant(_waves(2, 4, 5, 2)[:, :, ::-1] * 3)
    a, b = tf.constant(_waves(2, 3, 2) * 1.5 + 2), tf.constant(_waves(2, 3, 2)[:, ::-1] * 1.2 + 2)
    some = tf.placeholder_with_default(pixels, [None, None, 5, None])
    warped = [dense(pixels, flow), dense(some, flow), dense(tf.cast(pixels, tf.float64), flow),
              dense(pixels, tf.cast(flow, tf.float64))]  # fmt: skip
    ways: list[dict[str, Any]] = [
        {"num_boundary_points": 1}, {"num_boundary_points": 2, "interpolation_order": 1}, {"interpolation_order": 3},
        {"num_boundary_points": 3, "regularization_weight": 0.1},
    ]  # fmt: skip
    found = [sparse(pixels, a, b, **way) for way in ways]
    slopes = tf.gradients(tf.square(warped[0]), [pixels, flow]) + tf.gradients(tf.square(found[3][0]), [pixels, a])
    points, values, queries = (tf.constant(_waves(2, 5, size) + np.arange(5)[:, None]) for size in (2, 3, 2))
    splines = [image.interpolate_spline(points, values, queries[:, :3], order, weight)
               for order in (1, 2, 3, 4, 2.5) for weight in (0.0, 0.1)]  # fmt: skip
    slopes += tf.gradients(tf.square(splines[2]), [points, values, queries])
    x = tf.placeholder(tf.float32, [None, None, 2])
    shapes = [dense(pixels, flow), *found[0], image.interpolate_spline(x, x, x, 2)]
    holder = lambda *shape: tf.placeholder(tf.float32, shape)  # noqa: E731
    wrong = [
        lambda: dense(holder(4, 5, 3), holder(4, 5, 2)), lambda: dense(tf.placeholder(tf.float32), flow),
        lambda: dense(pixels, holder(2, 4, 4, 2)), lambda: run(tf, dense(pixels[:, :1], flow[:, :1])),
        lambda: image.interpolate_spline(holder(1, 5, None), x, x, 2), lambda: image.interpolate_spline(x, x, x[0], 2),
        lambda: image.interpolate_spline(x, holder(1, 5, None), x, 2), lambda: sparse(tf.to_double(pixels), a, b),
        lambda: sparse(holder(None, 4, 5, 3), a, b), lambda: sparse(pixels, a, holder(2, 4, 2)),
        lambda: run(tf, image.interpolate_spline(points * 0, values, queries, 2)),
    ]  # fmt: skip
    return run(tf, [warped, found, splines, slopes]), [str(t.shape) for t in shapes], [outcome(way) for way in wrong]


@program
def regions_and_pairs(tf: Any) -> Any:
    image, random = tf.contrib.image, np.random.RandomState(0)
    table = np.array([[1, 1, 0, 2], [0, 1, 2, 2], [3, 3, 0, 2], [3, 0, 1, 1]])
    kinds = [np.uint8, np.float32, np.bool_, np.float16, np.int64, np.float64]
    found = [image.connected_components(tf.constant(table.astype(kind))) for kind in kinds]
    found += [image.connected_components(part) for part in (
        np.stack([table, table.T]), np.ones((2, 3), bool), [["a", "a"], ["", "b"]], np.zeros((0, 3)), np.zeros((2, 2)),
        random.rand(3, 20, 30) > 0.4, random.randint(0, 3, (20, 30)), [[float("nan"), float("nan"), -0.0]],
    )]  # fmt: skip
    shapes = [image.connected_components(tf.placeholder(tf.int32, shape)) for shape in ([None, 3], [2, None, None])]
    holder = tf.placeholder_with_default(np.ones(3, np.float32), None)
    match, distances, far = image.bipartite_match, tf.constant(_waves(5, 4)), float("inf")
    pairs = [match(distances, rows, k) for rows in (-1, 2, [3], 1.5, 0, -0.5) for k in (-1, 0, 1, 2, 9)]
    pairs += [match(tf.constant(random.randint(0, most, shape), tf.float32), -1, k)
              for most in (1, 2, 5) for shape in ((4, 4), (7, 3), (2, 9)) for k in (-1, 2)]  # fmt: skip
    pairs += [match([[far, far], [far, 1.0]], -1), match(tf.zeros([0, 3]), -1), match(tf.zeros([2, 0]), -1)]
    shapes += [*match(tf.placeholder(tf.float32, [None, 3]), -1), *match(tf.placeholder(tf.float32), -1)]
    wrong = [
        lambda: image.connected_components([1, 2]), lambda: image.connected_components(np.zeros((2, 2, 2, 2))),
        lambda: image.connected_components(tf.placeholder(tf.int32)), lambda: match([1.0], -1),
        lambda: image.connected_components(tf.zeros([2, 2], tf.complex64)), lambda: match([[1.0]], tf.constant(1)),
        lambda: run(tf, match(distances, 7.0)), lambda: run(tf, match(distances, [1.0, 2.0])),
        lambda: run(tf, match(holder, -1)),
    ]  # fmt: skip
    names = [found[0].dtype, found[0].op.type, pairs[0].row_to_col_match_indices.name, type(pairs[0]).__name__]
    return (
        run(tf, [found, [list(pair) for pair in pairs]]),
        [str(t.shape) for t in shapes],
        names,
        [outcome(way) for way in wrong],
    )


@program
def weights_under_masks(tf: Any) -> Any:
    pruning, found = tf.contrib.model_pruning, []

    def facts(graph: Any) -> Any:
        names = ("masks", "thresholds", "kernel", "masked_weights", "model_variables", "trainable_variables")
        lists = [[getattr(v, "name", None) for v in graph.get_collection(name)] for name in names]
        return lists, [(v.name, v.shape.as_list(), v.dtype.base_dtype.name) for v in tf.global_variables()]

    with tf.Graph().as_default() as graph:
        tf.set_random_seed(3)
        images = tf.constant(_waves(2, 6, 6, 3))
        net = pruning.masked_conv2d(images, 4, 3, scope="c")
        net = pruning.masked_conv2d(
            net, 4, [3, 3], 2, normalizer_fn=tf.contrib.layers.batch_norm, outputs_collections="o"
        )
        made = tf.train.get_or_create_global_step()
        net = pruning.masked_fully_connected(tf.layers.flatten(net), 5, weights_regularizer=tf.nn.l2_loss)
        slopes = tf.gradients(net, pruning.get_weights())
        values = run(tf, [tf.reduce_sum(net), [tf.reduce_sum(slope) for slope in slopes], made])
        kinds = sorted([op.name, op.type] for op in graph.get_operations() if op.name[:2] == "c/")
        kinds = [kind for kind in kinds if "Initializer" not in kind[0]]
        losses = [loss.name for loss in tf.losses.get_regularization_losses()]
        found.append([facts(graph), values, kinds, losses, [len(graph.get_collection("o"))]])
    for make in (lambda: pruning.MaskedBasicLSTMCell(4), lambda: pruning.MaskedLSTMCell(4),
                 lambda: pruning.MaskedLSTMCell(4, True, 0.5)):  # fmt: skip
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(3)
            outputs, state = tf.nn.dynamic_rnn(make(), tf.constant(_waves(2, 3, 5)), dtype=tf.float32)
            found.append([facts(graph)[1], run(tf, [outputs, list(state)])])
    with tf.Graph().as_default() as graph:
        with tf.variable_scope("a"):
            w = tf.get_variable("w", [3, 2])
            masked = [pruning.apply_mask(w, "b"), pruning.apply_mask(w), pruning.apply_mask(w, tf.get_variable_scope())]
            again = outcome(lambda: pruning.apply_mask(w, "b"))
        with tf.variable_scope("a", reuse=True):
            masked.append(pruning.apply_mask(w, "b"))
        masked.append(pruning.apply_mask(tf.zeros([2], tf.float64), "d"))
        sparse = [part.name for part in pruning.get_weight_sparsity()]
        found.append([facts(graph), [part.name for part in masked], again, sparse])
    return found


def _pruned(tf: Any, text: str, steps: Any) -> Any:
    """The masks, thresholds and sparsity of two layers, in some steps of a schedule."""
    with tf.Graph().as_default() as graph:
        for name, start in (("one", np.linspace(-1, 0.9, 24).reshape(6, 4)), ("two", np.sin(np.arange(72) * 1.0))):
            with tf.variable_scope(name):
                shape = [6, 4] if name == "one" else [3, 3, 2, 4]
                weights = tf.get_variable("w", initializer=start.reshape(shape).astype(np.float32))
                tf.contrib.model_pruning.apply_mask(weights, tf.get_variable_scope())
        step, at = tf.train.get_or_create_global_step(), tf.placeholder(tf.int64, [])
        pruning = tf.contrib.model_pruning.Pruning(tf.contrib.model_pruning.get_pruning_hparams().parse(text))
        change, move, found = pruning.conditional_mask_update_op(), step.assign(at), []
        pruning.add_pruning_summaries()
        state = [tf.contrib.model_pruning.get_thresholds(), tf.contrib.model_pruning.get_weight_sparsity()]
        merged, masks = tf.summary.merge_all(), tf.contrib.model_pruning.get_masks()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for i in steps:
                session.run(move, {at: i})
                found.append([session.run(change), session.run(state)])
            shown = [(v.tag, v.simple_value) for v in tf.Summary.FromString(session.run(merged)).value]
            variables = [v.name for v in tf.global_variables()] + [change.name, change.dtype.name]
            ends = [
                op.name for op in graph.get_operations() if op.name.endswith(("_assign", "sparsity", "mask_update"))
            ]
            return found, [session.run(mask).ravel().astype(int).tolist() for mask in masks], shown, variables, ends


@program
def schedules_of_pruning(tf: Any) -> Any:
    begin = "sparsity_function_begin_step=10,sparsity_function_end_step=60"
    texts = ["", "begin_pruning_step=20,end_pruning_step=100,target_sparsity=0.8," + begin, "threshold_decay=0.5",
             "initial_sparsity=.3,sparsity_function_exponent=1,pruning_frequency=25", "initial_sparsity=.7",
             "weight_sparsity_map=[one:0.9,two/w:0.25]", "weight_sparsity_map=[w:0.9]", "block_height=2,block_width=2",
             "block_height=2,block_width=4,block_pooling_function=MAX", "block_dims_map=[one:3x2]", "block_height=-1",
             "block_height=4,block_width=3", "pruning_frequency=0", "name=own,nbins=3"]  # fmt: skip
    found = [_pruned(tf, text, (0, 10, 20, 55, 60, 120)) for text in texts]
    wrong = ["target_sparsity=1.0", "sparsity_function_begin_step=100", "begin_pruning_step=-1", "threshold_decay=1.5",
             "begin_pruning_step=50,end_pruning_step=40", "weight_sparsity_map=[one]", "block_dims_map=[one:3]",
             "weight_sparsity_map=[one:2.0]", "initial_sparsity=-1", "end_pruning_step=-2",
             "weight_sparsity_map=[o.*:0.9,on.*:0.2]"]  # fmt: skip
    spec = tf.contrib.model_pruning.get_pruning_hparams()
    return found, [outcome(lambda text=text: _pruned(tf, text, (0,))) for text in wrong], sorted(spec.values().items())


@program
def training_with_pruning(tf: Any) -> Any:
    pruning, folder = tf.contrib.model_pruning, tempfile.mkdtemp()

    def model() -> Any:
        images, labels = tf.constant(_waves(8, 4, 4, 3)), tf.constant(np.arange(8) % 3)
        net = pruning.masked_conv2d(
            images, 6, 3, scope="c", weights_initializer=tf.constant_initializer(_waves(3, 3, 3, 6))
        )
        net = pruning.masked_fully_connected(tf.reshape(net, [8, -1]), 3, None, scope="f",
                                             weights_initializer=tf.constant_initializer(_waves(96, 3)))  # fmt: skip
        return net, tf.losses.sparse_softmax_cross_entropy(labels, net)

    logits, loss = model()
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, step)
    own = "pruning_frequency=3,sparsity_function_end_step=20,target_sparsity=0.7"
    change = pruning.Pruning(pruning.get_pruning_hparams().parse(own)).conditional_mask_update_op()
    losses, output = [], tf.identity(logits, "out")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(25):
            losses.append(session.run([loss, train])[0])
            session.run(change)
        masks = [mask.ravel().astype(int).tolist() for mask in session.run(pruning.get_masks())]
        tf.train.Saver().save(session, folder + "/model", 25)
        before = session.run(output)
        frozen = tf.graph_util.convert_variables_to_constants(session, session.graph.as_graph_def(), ["out"])
    made = [pruning.strip_pruning_vars_fn(frozen, ["out"]), pruning.graph_def_from_checkpoint(folder, ["out"])]
    nodes = [sorted([node.name, node.op, list(node.input)] for node in graph.node) for graph in made]
    with tf.Graph().as_default(), tf.Session() as session:
        after = session.run(tf.import_graph_def(made[0], return_elements=["out:0"])[0])
    wrong = outcome(lambda: pruning.graph_def_from_checkpoint("/tmp/nothing", ["out"]))
    return losses, masks, nodes, bool(np.allclose(before, after)), wrong


@program
def pieces_of_texts(tf: Any) -> Any:
    raw, texts = tf.raw_ops, [b"", b"a", b" a", b"a  ", b" a b c ", b"  ", b",", b"a,;b", b",,"]
    found = [raw.StringSplit(input=texts, delimiter=by, skip_empty=skip)
             for by in (b"", b" ", b",", b",;") for skip in (True, False)]  # fmt: skip
    found += [tf.strings.split(texts, by, most) for by in ("", ",") for most in (-1, 0, 1, 2)]
    rows = [["", "a", "b"], ["a", "", "b"], ["", "", "a"], ["", ""]]
    found += [raw.UnsortedSegmentJoin(inputs=row, segment_ids=[0] * len(row), num_segments=2, separator=",")
              for row in rows]  # fmt: skip
    for pattern, rewrite in (
        ("(a)", "<\\2>"),
        ("a*", "\\9"),
        ("a", "x\\"),
        ("a", "x\\q"),
        ("a*", "X"),
        ("(a)", "<\\1\\2>"),
    ):
        found += [tf.strings.regex_replace(["hab", "", b"\xff\xfe"], pattern, rewrite, everywhere)
                  for everywhere in (True, False)]  # fmt: skip
    return run(tf, found)


@program
def ranges_of_floats_by_bits(tf: Any) -> Any:
    found = []
    for dtype in (tf.float32, tf.float64):
        for bounds in ((-1.59, 3.83, 0.01), (0.0, 1.0, 0.1), (0.0, 0.7, 0.1), (1.0, 0.0, -0.1), (-0.08, 2.46, 0.01)):
            values = tf.range(*[tf.constant(bound, dtype) for bound in bounds])
            line = tf.linspace(*[tf.constant(bound, dtype) for bound in bounds[:2]], num=7)
            found.append([values[-3:], line, tf.size(values)])
    return [[a.view(f"i{a.itemsize}").tolist(), b.view(f"i{b.itemsize}").tolist(), c] for a, b, c in run(tf, found)]


@program
def segments_of_few_rows(tf: Any) -> Any:
    rows = ([-2, 1, -3, 9, 5], [-7, 6, -1, 0, -3])
    means = [tf.segment_mean(tf.constant(row, dtype), [0, 0, 1, 1, 3]) for row in rows
             for dtype in (tf.int32, tf.int64, tf.int8)]  # fmt: skip
    x, ids = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    feeds = {x: np.array([[3.0, -0.7], [-0.7, 0.2], [3.0, 1.0]], np.float32), ids: [-1, 2, 2]}
    found = []
    for values in (x, tf.placeholder_with_default(feeds[x], [3, 2])):
        for reduce in (tf.unsorted_segment_max, tf.unsorted_segment_min):
            found += tf.gradients(reduce(tf.ensure_shape(values, [3, 2]), tf.ensure_shape(ids, [3]), 4), [values])
        found += tf.gradients(tf.segment_mean(values, tf.abs(ids)), [values])
        found += [tf.gradients(tf.reduce_prod(values * 0.0 + [[0.0, 2.0]], axes), [values])[0]
                  for axes in ([0], [0, 1], tf.abs(ids[:1]))]  # fmt: skip
    return run(tf, means), run(tf, found, feeds)


@program
def gathers_along_axes_that_a_step_knows(tf: Any) -> Any:
    x, picked, axis = tf.placeholder(tf.float32), tf.placeholder(tf.int32), tf.placeholder(tf.int32, [])
    cases = [([3, 4, 2], [2, 1, 2], 1, 0), ([3, 4], [0, 0], 0, 0), ([2, 3, 2], [[0, 2], [1, 1]], 1, 1)]
    found = []
    for sizes, indices, at, batch in cases:
        if batch:  # 1.15.5 wants the rank of the indices
            picked = tf.placeholder(tf.int32, [None, None])
        y = tf.gather(x, picked, axis=axis, batch_dims=batch)
        feeds = {x: _waves(*sizes), picked: indices, axis: at}
        grads = tf.convert_to_tensor(tf.gradients(y * tf.cos(y), [x])[0])
        found.append(run(tf, [y, grads], feeds))
    return found


@program
def ties_in_volumes(tf: Any) -> Any:
    x = tf.constant(np.arange(72).reshape(1, 3, 4, 3, 2) * 7 % 4, tf.float32)
    found = []
    for ksize, strides, padding in (
        ([3, 3, 2], [3, 1, 3], "SAME"),
        ([1, 1, 3], [1, 1, 1], "VALID"),
        ([2] * 3, [2] * 3, "SAME"),
    ):
        y = tf.nn.max_pool3d(x, [1, *ksize, 1], [1, *strides, 1], padding)
        found += [y, *tf.gradients(y, [x], tf.constant(_waves(*y.shape.as_list())))]
    return run(tf, found)


@program
def rare_cases_of_kernels(tf: Any) -> Any:
    raw, image = tf.raw_ops, tf.constant(_waves(1, 3, 4, 1))
    tall = tf.constant(np.arange(6).reshape(1, 3, 2, 1))
    found = [
        raw.UniqueWithCountsV2(x=tf.zeros([0], tf.bool), axis=[0]), raw.UniqueV2(x=tf.zeros([2, 0]), axis=[0]),
        raw.UniqueV2(x=[["b", "a"], ["a", "b"], ["b", "a"]], axis=[0]),
        raw.CompareAndBitpack(input=[[True, False] * 4], threshold=True),
        tf.image.resize_bilinear(tf.cast(image, tf.bfloat16), [2, 7], align_corners=True),
        tf.image.non_max_suppression_overlaps([[1, 0.5, 0], [0, 1, 0], [0.5, 0, 1]], [0.75, 0.5, 0.3], 5, 0.25),
        [tf.nn.dilation2d(tf.cast(tall, dtype), tf.constant([[[2]], [[1]]], dtype), [1, 2, 1, 1], [1] * 4, "SAME")
         for dtype in (tf.uint8, tf.uint16, tf.int8, tf.int32)],
        tf.nn.dilation2d(tf.cast(-100 - tall, tf.int8), tf.constant([[[-3]], [[2]]], tf.int8), [1, 2, 1, 1], [1] * 4,
                         "SAME"),
        raw.ResizeNearestNeighborGrad(grads=tf.constant([[[[1.891], [0.1]]]], tf.float64), size=[2, 3]),
        raw.ResizeNearestNeighborGrad(grads=[[[[2**30 + 1], [3]]]], size=[1, 2]),
    ]  # fmt: skip
    x, y = tf.constant([2.0, 0.0, np.inf, 1.0]), tf.constant([-2.5, 0.5, 3.0, -1.0])
    first = [tf.gradients(f(x, y), [x, y]) for f in (tf.math.xlogy, tf.math.xdivy)]
    second = [tf.gradients(by_x, [y])[0] for by_x, _ in first]
    half = tf.cast(image, tf.float16)
    none = tf.gradients(tf.image.resize_bicubic(half, [5, 5]), [half]) == [None]
    shapes = [tf.broadcast_to(image, tf.placeholder(tf.int32, [n])).shape.as_list() for n in (4, 5)]
    return run(tf, found), run(tf, [first, second]), none, shapes


@program
def boxes_that_overlap_by_the_threshold(tf: Any) -> Any:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.5], [0, 0, 1, 0.25], [2, 2, 3, 3]], np.float32)
    scores, found = np.array([0.9, 0.8, 0.7, 0.6], np.float32), []
    shared = np.array([[1, 0.5, 0.25, 0], [0.5, 1, 0.5, 0], [0.25, 0.5, 1, 0], [0, 0, 0, 1]], np.float32)
    for threshold in (0.0, 0.25, 0.5, 0.75, 1.0):
        found += [tf.image.non_max_suppression(boxes, scores, 9, threshold),
                  tf.image.non_max_suppression_padded(boxes, scores, 5, threshold, pad_to_max_output_size=True),
                  tf.image.non_max_suppression_with_scores(boxes, scores, 9, threshold, 0.1, 0.25),
                  tf.image.non_max_suppression_overlaps(shared, scores, 9, threshold),
                  tf.image.combined_non_max_suppression(boxes[None, :, None], scores[None, :, None], 9, 4,
                                                        threshold)]  # fmt: skip
    x = tf.constant([[[[0], [0], [1]], [[0], [2], [0]]]], tf.uint8)
    y = tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
    attrs = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    zeros = tf.zeros_like(x)
    found += [y, tf.raw_ops.MaxPoolGrad(orig_input=zeros, orig_output=tf.zeros_like(y), grad=y, **attrs),
              tf.raw_ops.MaxPoolGradGrad(orig_input=zeros, orig_output=tf.zeros_like(y), grad=x, **attrs)]  # fmt: skip
    return run(tf, found)


@program
def images_of_unknown_sizes(tf: Any) -> Any:
    tf.set_random_seed(1)
    image, found, seeds = _waves(3, 4, 3) * 0.5 + 0.5, [], []
    for shape in ([3, 4, 3], [None, None, 3], None):
        x = tf.placeholder(tf.float32, shape)
        gray = tf.placeholder_with_default(image[..., :1], shape and [*shape[:-1], 1])
        for function, argument in ((tf.image.per_image_standardization, x), (tf.image.grayscale_to_rgb, gray),
                                   (tf.image.transpose, x), (tf.image.rot90, x)):  # fmt: skip
            before = tf.get_seed(None)[1]
            made = function(argument)
            seeds.append(tf.get_seed(None)[1] - before if function is not tf.image.rot90 else 0)
            found.append([run(tf, made, {x: image}), made.shape.ndims])
        for made in (tf.image.crop_to_bounding_box(x, 0, 1, 2, 1), tf.image.pad_to_bounding_box(x, 0, 1, 4, 6),
                     tf.image.resize_image_with_crop_or_pad(x, 4, 2)):  # fmt: skip
            found.append([run(tf, made, {x: image}), made.shape.ndims])
    rows = [tf.constant(np.arange(12).reshape(2, 2, 3) * 20 % 100, dtype)
            for dtype in (tf.uint8, tf.int8, tf.uint16, tf.int32, tf.float64)]  # fmt: skip
    found.append([[run(tf, made), made.dtype.name] for made in map(tf.image.per_image_standardization, rows)])
    return found, seeds


@program
def crops_at_the_borders_of_images(tf: Any) -> Any:
    image, random, found = tf.constant(_waves(1, 6, 7, 1)), np.random.RandomState(0), []
    tenths = np.round(random.uniform(-0.3, 1.3, [150, 4]), 1)
    pixels = np.round(random.uniform(-0.3, 1.3, [150, 4]) * 6) / [5, 6, 5, 6]
    boxes = tf.constant(np.concatenate([tenths, pixels]), tf.float32)
    for size in ([1, 1], [2, 3], [4, 4], [5, 2], [3, 7]):
        for method in ("bilinear", "nearest"):
            y = tf.image.crop_and_resize(image, boxes, [0] * 300, size, method, extrapolation_value=9.0)
            found += [tf.reduce_sum(y, [1, 2, 3])[::3], tf.reduce_sum(tf.cast(tf.equal(y, 9.0), tf.int32))]
    return run(tf, found)


@program
def boxes_of_equal_scores(tf: Any) -> Any:
    random, found = np.random.RandomState(1), []
    for number in range(30):
        corners = random.uniform(0, 4, [number, 2])
        boxes = np.concatenate([corners, corners + random.uniform(0.2, 1.5, [number, 2])], 1).astype(np.float32)
        scores = (np.round(random.rand(number) * random.choice([0, 1, 3, 8])) / 8).astype(np.float32)
        found.append(tf.image.non_max_suppression(boxes, scores, 20, 0.3, -1.0))
        found += tf.image.non_max_suppression_padded(boxes, scores, 9, 0.1, 0.125)
    return run(tf, found)


@program
def images_resized_by_the_filters_of_version_2(tf: Any) -> Any:
    image = tf.constant(np.random.RandomState(0).rand(1, 7, 5, 2).astype(np.float32))
    found = []
    for method in ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"):
        for smooth in (False, True):
            for size in ([3, 9], [7, 5]):
                found.append(tf.compat.v2.image.resize(image, size, method, antialias=smooth))
            if method != "area":
                found += tf.gradients(found[-2] ** 2, [image])
    places = {"images": image, "size": [8, 5], "scale": [1.7, 0.6], "translation": [-2.0, 1.5]}
    found += [tf.raw_ops.ScaleAndTranslate(kernel_type=kind, **places) for kind in ("lanczos1", "box", "keyscubic")]
    unknown = tf.placeholder_with_default(image[0], [None] * 3)
    one = tf.compat.v2.image.resize(unknown, [2, 2], tf.compat.v2.image.ResizeMethod.GAUSSIAN)
    ratio = tf.compat.v2.image.resize(image, [2, 2], preserve_aspect_ratio=True)
    return run(tf, [*found, one, ratio]), [each.shape.as_list() for each in (one, ratio)]


@program
def sizes_and_turns_of_images_and_ties_in_volumes(tf: Any) -> Any:
    images = tf.placeholder_with_default(np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2), [1, 4, 3, 2])
    sizes = [[images.shape[1] * 2, images.shape[2]], np.array([2.0, 6.0]), (np.int64(3), 2)]
    found = [tf.image.resize_images(images, size) for size in sizes]
    found += [tf.image.rot90(tf.placeholder_with_default(images[0], None), 2), tf.image.rot90(images, 2)]
    for dtype in (tf.float16, tf.float32):
        tied = tf.constant([1.0, 1.0, 1.0, 0.0], dtype, [1, 1, 2, 2, 1])
        pooled = tf.nn.max_pool3d(tied, [1, 1, 2, 2, 1], [1, 1, 1, 1, 1], "SAME")
        found.append(tf.gradients(pooled, [tied])[0])
    handle = tf.data.Dataset.range(9).make_one_shot_iterator().string_handle()
    place = tf.placeholder(tf.string, [])

    def paired(x: Any) -> Any:
        return tf.data.Iterator.from_string_handle(place, tf.int64, []).get_next() + 100 * x

    iterator = tf.data.Dataset.range(3).map(paired).make_initializable_iterator()
    element = iterator.get_next()
    empty = outcome(lambda: tf.image.per_image_standardization(tf.zeros([2, 0, 3])))
    with tf.Session() as session:
        session.run(iterator.initializer, {place: session.run(handle)})
        return session.run(found), [session.run(element) for _ in range(3)], empty
