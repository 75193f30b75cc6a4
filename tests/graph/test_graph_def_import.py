"""tf.import_graph_def: names, mapping, devices, loops and refusals."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import tfmini as tf
from tfmini import protos
from tfmini.errors import NotFoundError
from tfmini.graph.graph import Graph
from tfmini.graph.importing import import_graph_def
from tfmini.graph.op_types import OPS
from tfmini.graph.registry import op
from tfmini.ops.array.constant import constant
from tfmini.ops.control import no_op

PLACEHOLDER = (
    'node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }'
    ' attr { key: "shape" value { shape { unknown_rank: true } } } } '
)


def identity(name="b", inputs=("a",), more="", op="Identity", dtype="DT_FLOAT"):
    texts = " ".join(f'input: "{i}"' for i in inputs)
    return f'node {{ name: "{name}" op: "{op}" {texts} {more} attr {{ key: "T" value {{ type: {dtype} }} }} }} '


def parse(text):
    return text_format.Parse(text, protos.GraphDef())


@pytest.fixture
def graph():
    graph = Graph()
    with graph.as_default():
        yield graph


def seen(graph):
    return [(o.name, [t.name for t in o.inputs], [c.name for c in o.control_inputs]) for o in graph.get_operations()]


def test_imported_nodes_are_named_below_a_prefix(graph):
    assert import_graph_def(parse(identity() + PLACEHOLDER)) is None
    assert seen(graph) == [("import/a", [], []), ("import/b", ["import/a:0"], [])]


def test_prefixes_are_made_unique(graph):
    with graph.name_scope("s"):
        for name in ("imp", "imp", "imp/"):
            import_graph_def(parse(PLACEHOLDER), name=name)
    assert [n for n, _, _ in seen(graph)] == ["s/imp/a", "s/imp_1/a", "imp/a"]


def test_without_a_prefix_names_are_made_unique_one_by_one(graph):
    text = PLACEHOLDER + identity() + PLACEHOLDER.replace('"a"', '"a_1"') + PLACEHOLDER.replace('"a"', '"A"')
    import_graph_def(parse(text), name="")
    import_graph_def(parse(text), name="")
    names = [n for n, _, _ in seen(graph)]
    assert names[:4] == ["a", "b", "a_1", "A"]
    assert len(set(names)) == 8
    assert graph.get_operation_by_name("b_1").inputs[0].name == "a_2:0"


def test_inputs_and_controls_are_mapped(graph):
    x, gate = constant(1.0, name="x"), no_op(name="gate")
    text = PLACEHOLDER + identity() + identity("c", ["b", "^a", "^b"])
    import_graph_def(parse(text), input_map={"a": x, "^a": gate})
    assert seen(graph)[3:] == [("import/b", ["x:0"], []), ("import/c", ["import/b:0"], ["gate", "import/b"])]


def test_an_input_may_be_absent_from_the_graph_def(graph):
    x = constant(1.0, name="x")
    found = import_graph_def(parse(identity()), input_map={"a:0": x}, return_elements=["a:0", "b"])
    assert found == [x, graph.get_operation_by_name("import/b")]


def test_python_values_are_mapped_as_constants(graph):
    import_graph_def(parse(PLACEHOLDER + identity()), input_map={"a:0": 1.5}, name="q")
    assert [n for n, _, _ in seen(graph)] == ["q/_inputs/Const", "q/a", "q/b"]
    with pytest.raises(ValueError, match="requires a non-empty `name`"):
        import_graph_def(parse(PLACEHOLDER), input_map={"a:0": 1.5}, name="")


def test_the_stored_device_is_the_inner_one(graph):
    text = PLACEHOLDER + identity(more='device: "/gpu:0"') + identity("c", more='device: "/job:y"')
    with graph.device("/job:x/task:1"), graph.control_dependencies([no_op(name="n")]):
        import_graph_def(parse(text))
    placed = {o.name: o.device for o in graph.get_operations()}
    assert placed["import/a"] == "/job:x/task:1"
    assert placed["import/b"] == "/job:x/task:1/device:GPU:0"
    assert placed["import/c"] == "/job:y/task:1"
    assert graph.get_operation_by_name("import/a").control_inputs[0].name == "n"


def test_a_device_function_overrides_the_stored_device(graph):
    asked = []
    with graph.device(lambda op: asked.append((op.name, op.device)) or "/job:w"):
        import_graph_def(parse(PLACEHOLDER + identity(more='device: "/gpu:0"')))
    assert asked == [("import/a", ""), ("import/b", "/device:GPU:0")]
    assert {o.device for o in graph.get_operations()} == {"/job:w"}


def test_colocation_is_renamed_and_followed(graph):
    more = 'device: "/gpu:3" attr { key: "_class" value { list { s: "loc:@c" s: "other" } } }'
    text = PLACEHOLDER + identity(more=more) + identity("c", more='device: "/job:ps"')
    with graph.device("/task:7"):
        import_graph_def(parse(text))
    b = graph.get_operation_by_name("import/b")
    assert b.attrs["_class"] == [b"loc:@import/c", b"other"]
    assert b.device == "/job:ps/task:7"


def test_surrounding_attr_scopes_do_not_reach_imported_ops(graph):
    with graph._attr_scope({"_x": b"1"}), graph.gradient_override_map({"Identity": "Foo"}):
        import_graph_def(parse(PLACEHOLDER + identity(more='attr { key: "_y" value { i: 1 } }')))
    b = graph.get_operation_by_name("import/b")
    assert b.attrs["_y"] == 1
    assert not {"_x", "_gradient_op_type"} & set(b.attrs)


def test_defaults_are_filled_and_shapes_inferred(graph):
    text = PLACEHOLDER.replace("unknown_rank: true", "dim { size: 2 } dim { size: 3 }")
    text += identity("m", ["a", "a"], 'attr { key: "transpose_b" value { b: true } }', "MatMul")
    import_graph_def(parse(text), name="")
    m = graph.get_operation_by_name("m")
    assert m.attrs["transpose_a"] is False
    assert m.outputs[0].shape.as_list() == [2, 2]


def test_stored_output_shapes_are_used_and_dropped(graph):
    shapes = 'attr { key: "_output_shapes" value { list { shape { dim { size: 4 } } } } }'
    import_graph_def(parse(PLACEHOLDER + identity(more=shapes)), name="")
    b = graph.get_operation_by_name("b")
    assert b.outputs[0].shape.as_list() == [4]
    assert "_output_shapes" not in b.attrs


def test_attrs_of_a_newer_producer_may_have_its_default(graph):
    grad = 'attr { key: "grad_a" value { b: false } }'
    ops = text_format.Parse(
        'op { name: "Identity" attr { name: "grad_a" type: "bool" default_value { b: false } } }', protos.OpList()
    )
    import_graph_def(parse(PLACEHOLDER + identity(more=grad)), producer_op_list=ops)
    with pytest.raises(ValueError, match="NodeDef mentions attr 'grad_a' not in Op<name=Identity"):
        import_graph_def(parse(PLACEHOLDER + identity(more=grad.replace("false", "true"))), producer_op_list=ops)


def test_hints_of_later_versions_are_dropped(graph):
    text = (
        PLACEHOLDER
        + """
      node { name: "y" op: "MatMul" input: "a" input: "a" attr { key: "T" value { type: DT_FLOAT } }
             attr { key: "grad_a" value { b: true } } }"""
    )
    import_graph_def(parse(text), name="")
    assert "grad_a" not in graph.get_operation_by_name("y").attrs


@pytest.fixture
def loop_ops():
    made = []
    for text in ("Merge(inputs: N * T) -> output: T, value_index: int32; T: type; N: int >= 1",
                 "NextIteration(data: T) -> output: T; T: type"):  # fmt: skip
        if text[: text.index("(")] not in OPS:
            made.append(op(text).name)
    yield
    for name in made:
        del OPS[name]


def test_loops_are_imported(graph, loop_ops):
    count = 'attr { key: "N" value { i: 2 } }'
    text = PLACEHOLDER + identity("m", ["a", "next"], count, "Merge") + identity("next", ["m"], "", "NextIteration")
    import_graph_def(parse(text), name="")
    m, following = graph.get_operation_by_name("m"), graph.get_operation_by_name("next")
    assert m.inputs == (graph.get_tensor_by_name("a:0"), following.outputs[0])
    assert following.outputs[0].consumers() == [m]
    assert graph.get_tensor_by_name("a:0").consumers() == [m]


REFUSALS = [
    (PLACEHOLDER + PLACEHOLDER, "Node 'a' is not unique"),
    ('node { name: "_a" op: "NoOp" }', "Node '_a': Node name contains invalid characters"),
    ('node { name: "a" }', "Node 'a' does not specify an operation"),
    (identity(), "Node 'b': Unknown input node 'a'"),
    (PLACEHOLDER + identity(inputs=["a::0"]), "Node 'b': Unknown input node 'a::0'"),
    (PLACEHOLDER + identity(inputs=["a", "^n"]), "Node 'b': Unknown input node '^n'"),
    (PLACEHOLDER + identity(inputs=["a:1"]), "Node 'b': Connecting to invalid output 1 of source node a which has 1 o"),
    (PLACEHOLDER + identity(inputs=["^a", "a"]), "Node 'b': Control dependencies must come after regular dependencies"),
    (identity("p", ["q"]) + identity("q", ["p"]), "2 nodes in a cycle"),
    (PLACEHOLDER + identity(inputs=["a", "a"]), "NodeDef expected inputs 'float' do not match 2 inputs specified; Op<"),
    (PLACEHOLDER + identity(dtype="DT_INT32"), "was passed float from import/a:0 incompatible with expected int32."),
    (PLACEHOLDER + identity(op="Exp", dtype="DT_INT32"), "Value for attr 'T' of int32 is not in the list of allowed v"),
    ('node { name: "b" op: "Placeholder" }', "NodeDef missing attr 'dtype' from Op<name=Placeholder; signature= -> "),
    (PLACEHOLDER.replace("type: DT_FLOAT", "i: 3"), "AttrValue had value with type 'int' when 'type' expected"),
    (PLACEHOLDER + identity(more='attr { key: "zz" value { i: 1 } }'), "NodeDef mentions attr 'zz' not in Op<name=Id"),
    (PLACEHOLDER + identity(more='attr { key: "_class" value { list { s: "loc:@zz" } } }'),
     "Node 'b' expects to be colocated with unknown node 'zz'"),
    (PLACEHOLDER + identity(more='device: "/bogus:3"'), "bogus"),
    (PLACEHOLDER + "versions { min_consumer: 99999 }", "GraphDef min consumer version 99999 above current version 134"),
    (PLACEHOLDER + "versions { producer: -1 }", "GraphDef producer version -1 below min producer 0"),
    (PLACEHOLDER + "versions { bad_consumers: 134 }", "GraphDef disallows consumer version 134"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSALS)
def test_a_bad_graph_def_is_refused_and_changes_nothing(graph, text, message):
    with pytest.raises(ValueError) as caught:
        import_graph_def(parse(text))
    assert message in str(caught.value)
    assert graph.get_operations() == []
    constant(1.0, name="import_1/a")
    assert graph.get_operations()[0].name == "import_1/a"


def test_an_unknown_op_type_is_named_with_its_node(graph):
    with pytest.raises(NotFoundError, match=r"Op type not registered 'Foo' in binary running on .*node 'x'"):
        import_graph_def(parse('node { name: "x" op: "Foo" }'))


def test_a_failed_import_leaves_no_ops(graph):
    x, gate = constant(1.0, name="x"), no_op(name="gate")
    with pytest.raises(NotFoundError), graph.control_dependencies([gate]):
        import_graph_def(parse(identity() + 'node { name: "z" op: "Foo" }'), input_map={"a": x})
    assert [n for n, _, _ in seen(graph)] == ["x", "gate"]
    assert x.consumers() == []
    assert gate._control_outputs == []


@pytest.mark.parametrize(("key", "shown"), [("a:3", "a:3"), ("zz", "zz:0"), ("^zz", "^zz")])
def test_map_keys_that_name_nothing_are_refused(graph, key, shown):
    with pytest.raises(ValueError) as caught:
        import_graph_def(parse(PLACEHOLDER + identity()), input_map={key: constant(1.0)})
    assert str(caught.value) == f"Attempted to map inputs that were not found in graph_def: [{shown}]"


def test_a_mapped_tensor_must_fit(graph):
    with pytest.raises(ValueError, match=r"Input 0 of node import/b was passed int32 from X:0 incompatible"):
        import_graph_def(parse(PLACEHOLDER + identity()), input_map={"a:0": constant(1, name="X")})
    with Graph().as_default():
        stranger = constant(1.0)
    with pytest.raises(ValueError, match=r"node 'Const' in input_map does not exist in graph"):
        import_graph_def(parse(PLACEHOLDER + identity()), input_map={"a:0": stranger})


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("zz", "Requested return node 'zz' not found in graph def"),
        ("zz:0", "Requested return tensor 'zz:0' not found in graph def"),
        ("a:4", "Invalid return output 4 of node 'a', which has 1 output(s)"),
        ("a:b", "Cannot convert 'a:b' to a tensor name."),
    ],
)
def test_missing_return_elements_are_refused(graph, element, message):
    with pytest.raises(ValueError) as caught:
        import_graph_def(parse(PLACEHOLDER), return_elements=[element])
    assert str(caught.value) == message


def test_arguments_of_the_wrong_type_are_refused(graph):
    with pytest.raises(TypeError, match="graph_def must be a GraphDef proto"):
        import_graph_def(3)
    for wrong in ([3], {3: constant(1.0)}):
        with pytest.raises(TypeError, match="input_map must be a dictionary mapping strings to Tensor objects"):
            import_graph_def(parse(PLACEHOLDER), input_map=wrong)
    with pytest.raises(TypeError, match="return_elements must be a list of strings"):
        import_graph_def(parse(PLACEHOLDER), return_elements=[3])
    import_graph_def(parse(PLACEHOLDER), return_elements=[b"a"])


@pytest.mark.parametrize(("producer", "rank"), [(21, None), (22, 0)])
def test_old_placeholders_without_dimensions_have_any_shape(producer: int, rank: int | None) -> None:
    graph_def = text_format.Parse(
        'node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }'
        f' attr {{ key: "shape" value {{ shape {{ }} }} }} }} versions {{ producer: {producer} }}',
        tf.GraphDef(),
    )
    (placeholder,) = tf.import_graph_def(graph_def, return_elements=["p:0"])
    assert placeholder.shape.ndims == rank


def test_a_graph_is_as_old_as_its_oldest_part() -> None:
    with tf.Graph().as_default() as graph:
        assert str(graph.graph_def_versions) == "producer: 134\n"
        for producer, least, bad in ((200, 0, 3), (67, 5, 2), (134, 7, 3)):
            text = f"versions {{ producer: {producer} min_consumer: {least} bad_consumers: {bad} }}"
            tf.import_graph_def(text_format.Parse(text, tf.GraphDef()))
        found = graph.as_graph_def().versions
        assert (found.producer, found.min_consumer, found.bad_consumers) == (67, 7, [2, 3])


def test_an_imported_op_is_not_named_like_a_scope_of_older_ops(graph):
    with tf.name_scope("outer"):
        tf.constant(1)
    for name in ("outer", "z/y", "z", "Outer"):
        tf.import_graph_def(text_format.Parse(f'node {{ name: "{name}" op: "NoOp" }}', tf.GraphDef()), name="")
    assert [op.name for op in tf.get_default_graph().get_operations()][1:] == ["outer_1", "z/y", "z_1", "Outer"]


def test_the_stored_shape_of_an_old_handle_may_differ(graph):
    text = 'node {{ name: "a" op: "{}" attr {{ key: "_output_shapes" value {{ list {{ shape {{ }} }} }} }} {} }}'
    types = 'attr { key: "component_types" value { list { type: DT_FLOAT } } }'
    versions = "versions { producer: 100 }"
    (made,) = import_graph_def(parse(text.format("Barrier", types) + versions), return_elements=["a:0"])
    assert made.shape == [2]


def test_the_types_that_an_op_reads_and_the_op_that_it_stands_for(graph):
    variable = tf.Variable(1.0, use_resource=False)
    update, total = tf.assign(variable, 2.0).op, tf.add(variable, 1.0).op
    reads, stands_for = "_input_types", "_original_op"
    types = [getattr(op, reads) for op in (update, total)]
    assert types == [[variable.dtype, tf.float32], [tf.float32, tf.float32]]
    with getattr(tf.get_default_graph(), stands_for)(update):
        made = tf.constant(1).op
    assert [getattr(op, stands_for) for op in (made, tf.constant(1).op)] == [update, None]
