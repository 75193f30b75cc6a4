"""Programs over ``tf`` that make variables; their nodes are compared with TensorFlow's, name by name.

Each defines what it wants to show as ``result``: names, or an error raised.
"""

CASES = {
    "reference": "tf.Variable(1., name='v', use_resource=False)",
    "resource": "tf.Variable(1., name='v', use_resource=True)",
    "names": "tf.Variable(1., use_resource=False); tf.Variable(2., use_resource=False)",
    "reference, callable": "tf.Variable(lambda: tf.ones([2]), name='v', use_resource=False)",
    "resource, callable": "tf.Variable(lambda: tf.ones([2]), name='v', use_resource=True)",
    "device": "with tf.device('/job:ps/task:0'): tf.Variable([1.], name='v', use_resource=False)",
    "reference, cached": """
with tf.device('/job:ps/task:0'):
    tf.Variable([1.], name='v', use_resource=False, caching_device='/job:worker/task:0')""",
    "resource, cached": """
with tf.device('/job:ps/task:0'):
    tf.Variable([1.], name='v', use_resource=True, caching_device='/job:worker/task:0')""",
    "under control dependencies": """
with tf.control_dependencies([tf.no_op()]), tf.name_scope('s'):
    v = tf.Variable(1., name='v', use_resource=False)
    v.read_value()""",
    "reference, updates": """
v = tf.Variable([1., 2.], name='v', use_resource=False)
result = [t.name for t in (v.assign([2., 3.]), v.assign_add([1., 1.]), tf.assign_sub(v, [1., 1.], name='as'),
          v.read_value(), tf.scatter_add(v, [0], [1.]), tf.scatter_nd_update(v, [[0]], [1.]),
          v.scatter_sub(tf.IndexedSlices(tf.constant([1.]), tf.constant([0]))))]""",
    "resource, updates": """
v = tf.Variable([1., 2.], name='v', use_resource=True)
v.assign([2., 3.]); tf.assign_add(v, [1., 1.], name='as'); v.assign([3., 3.], read_value=False)
v.read_value(); v.value(); tf.is_variable_initialized(v); tf.scatter_add(v, [0], [1.])
tf.scatter_nd_update(v, [[0]], [1.])""",
    "counting": """
tf.Variable(0, name='v', use_resource=False).count_up_to(3)
tf.count_up_to(tf.Variable(0, name='w', use_resource=True), 4)""",
    "initialisers": """
tf.Variable(1., name='v', use_resource=False); tf.Variable(2., name='w', use_resource=False)
tf.global_variables_initializer(); tf.local_variables_initializer(); tf.report_uninitialized_variables([])""",
    "get_variable": """
with tf.variable_scope('a'):
    tf.get_variable('b', [3], initializer=tf.zeros_initializer())
    tf.get_variable('c', initializer=tf.constant(3.))
    tf.get_variable('d', initializer=4.)
    tf.get_variable('e', [2], dtype=tf.int32)
with tf.variable_scope('a', reuse=True):
    tf.get_variable('b'); tf.Variable(1., name='x')
with tf.variable_scope(None, 'a'):
    tf.get_variable('f', [1], initializer=tf.constant_initializer(2.))
with tf.variable_scope('a', use_resource=True):
    tf.get_variable('r', initializer=1.); tf.Variable(1.)
result = [v.name for v in tf.trainable_variables()] + [v.name for v in tf.global_variables('a_1')]""",
    "local variables": """
tf.get_local_variable('l', initializer=1.)
result = [[v.name for v in f()] for f in (tf.local_variables, tf.global_variables, tf.trainable_variables)]""",
    "scopes": """
result = []
with tf.variable_scope('a') as s:
    with tf.variable_scope('b'), tf.variable_scope(s) as again:
        result += [again.name, again.original_name_scope, tf.no_op().name]
with tf.variable_scope(s, auxiliary_name_scope=False): result.append(tf.no_op().name)
with tf.variable_scope('c', auxiliary_name_scope=False) as c:
    result += [tf.no_op().name, c.name, c.original_name_scope]
with tf.name_scope('ns'):
    with tf.variable_scope('a') as s: result += [s.name, s.original_name_scope]
    with tf.variable_scope(None, 'a') as s: result += [s.name, s.original_name_scope]
    with tf.variable_scope('') as s: result += [s.name, s.original_name_scope, tf.no_op().name]
with tf.variable_scope(s): result.append(tf.no_op().name)
with tf.variable_scope(None, 'd') as s: result.append(s.name)
with tf.variable_scope(None, 'd') as s: result.append(s.name)""",
    "reuse": """
with tf.variable_scope('a', reuse=True):
    with tf.variable_scope('b', reuse=False) as s: result = [str(s.reuse)]
with tf.variable_scope('a') as s:
    s.reuse_variables(); result.append(str(s.reuse))
with tf.variable_scope('a') as s: result.append(str(s.reuse))""",
    "custom getters": """
def outer(getter, name, *args, **kwargs): return getter('o_' + name, *args, **kwargs)
def inner(getter, name, *args, **kwargs): return getter(name + '_i', *args, **kwargs)
with tf.variable_scope('a', custom_getter=outer), tf.variable_scope('b', custom_getter=inner):
    result = tf.get_variable('w', initializer=1.).name""",
    "partitions": """
with tf.variable_scope('a', partitioner=tf.fixed_size_partitioner(3)):
    w = tf.get_variable('pq', [10, 3], initializer=tf.zeros_initializer())
w.as_tensor()
result = [v._get_save_slice_info().spec for v in w] + [t.name for t in w.assign(tf.zeros([10, 3]))]""",
    "one partition": """
w = tf.get_variable('p', [4], initializer=tf.zeros_initializer(), partitioner=tf.fixed_size_partitioner(1))
w.as_tensor()""",
    "create_partitioned_variables": """
result = [v.name for v in tf.create_partitioned_variables([10, 3], [3, 1], tf.zeros([10, 3]), name='c')]""",
    "partitioners": """
shape = tf.TensorShape([10, 64])
result = [p(shape=shape, dtype=tf.float32) for p in (
    tf.fixed_size_partitioner(20, axis=1), tf.fixed_size_partitioner(20), tf.variable_axis_size_partitioner(600),
    tf.variable_axis_size_partitioner(600, max_shards=3), tf.min_max_variable_partitioner(5, min_slice_size=600),
    tf.min_max_variable_partitioner(8, axis=1, min_slice_size=100))]""",
    "missing": "with tf.variable_scope('', reuse=True): tf.get_variable('nope', [2])",
    "missing partitioned": """
with tf.variable_scope('', reuse=True): tf.get_variable('nope', [4], partitioner=tf.fixed_size_partitioner(2))""",
    "other shape": """
tf.get_variable('w', [2], initializer=tf.zeros_initializer())
with tf.variable_scope('', reuse=True): tf.get_variable('w', [3])""",
    "other dtype": """
tf.get_variable('w', [2], initializer=tf.zeros_initializer())
with tf.variable_scope('', reuse=True): tf.get_variable('w', [2], dtype=tf.float64)""",
    "no shape": "tf.get_variable('ns')",
    "constant with shape": "tf.get_variable('ns', [2], initializer=tf.constant([1., 2.]))",
    "partial shape": "tf.get_variable('ns', [None, 2])",
    "no default": "tf.get_variable('ns', [2], dtype=tf.complex64)",
    "getter not callable": "tf.get_variable('ns', [2], custom_getter=3)",
    "constant of another type": "tf.get_variable('ns', initializer=tf.constant([1., 2.]), dtype=tf.int32)",
    "unknown shape": "tf.Variable(tf.placeholder(tf.float32), name='v')",
    "no initial value": "tf.Variable(name='v')",
    "bad collections": "tf.Variable(1., collections='x')",
    "bad scope": "tf.variable_scope(3).__enter__()",
    "no scope": "tf.variable_scope(None)",
    "reuse without a name": "tf.variable_scope(None, 'd', reuse=True).__enter__()",
    "configs": """
result = [sorted((k, str(v)) for k, v in i.get_config().items()) for i in (
    tf.zeros_initializer(), tf.constant_initializer(3), tf.random_normal_initializer(stddev=2., seed=3),
    tf.random_uniform_initializer(-1, 1), tf.truncated_normal_initializer(), tf.glorot_uniform_initializer(seed=1),
    tf.variance_scaling_initializer(2., 'fan_out', 'uniform'), tf.orthogonal_initializer(),
    tf.initializers.identity(2.), tf.uniform_unit_scaling_initializer())]""",
}


def outcomes(tf: object) -> dict[str, list[object]]:
    """case -> its `outcome`."""
    tf.disable_resource_variables()  # type: ignore[attr-defined]
    found = {}
    for name, source in CASES.items():
        with tf.Graph().as_default() as graph:  # type: ignore[attr-defined]
            found[name] = outcome(tf, source, graph)
    return found


def outcome(tf: object, source: str, graph: object) -> list[object]:
    """What a case makes: nodes (name, op, inputs, device, colocation groups), its result, its error."""
    scope = {"tf": tf}
    error = None
    try:
        exec(source, scope)  # noqa: S102 - the cases above
    except Exception as caught:  # noqa: BLE001 - the error is the outcome
        error = [type(caught).__name__, str(caught)]
    nodes = []
    for op in graph.get_operations():  # type: ignore[attr-defined]
        inputs = [t.name for t in op.inputs] + [f"^{c.name}" for c in op.control_inputs]
        try:
            groups = sorted(g.decode() for g in op.get_attr("_class"))
        except ValueError:
            groups = []
        nodes.append([op.name, op.type, inputs, op.device, groups])
    return [nodes, scope.get("result"), error]
