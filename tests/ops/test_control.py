import numpy as np
import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate
from tfmini.graph import scoping
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.graph import Graph
from tfmini.ops.array.constant import constant
from tfmini.ops.control import group, no_op, with_dependencies
from tfmini.ops.control import tuple as tf_tuple


@pytest.fixture(autouse=True)
def graph():
    with Graph().as_default() as g:
        yield g


def test_group_on_one_device_is_one_no_op(graph):
    a, b = constant(1), constant(2)
    done = group(a, [b], {"k": a}, name="g")
    assert done.name == "g"
    assert done.control_inputs == [a.op, b.op]
    evaluate(done)


def test_group_makes_one_no_op_per_device(graph):
    with scoping.device("/job:ps/task:1"):
        a = constant(1)
    with scoping.device("/job:ps/task:0"):
        b, c = constant(2), constant(3)
    done = group(a, b, c, name="gg")
    assert [(o.name, o.device) for o in done.control_inputs] == [
        ("gg/NoOp", "/job:ps/task:0"),
        ("gg/NoOp_1", "/job:ps/task:1"),
    ]
    assert done.name == "gg" and done.device == ""
    assert done.control_inputs[0].control_inputs == [b.op, c.op]


def test_group_refuses_unknown_arguments():
    assert group().name == "group_deps"
    with pytest.raises(ValueError, match="Unknown keyword arguments: names"):
        group(names="x")
    with pytest.raises(TypeError, match="Expected tf.group"):
        group(3)


def test_tuple_makes_each_tensor_wait_for_all():
    a, b = constant(1.0), constant([2.0])
    slices = IndexedSlices(b, constant([0]))
    first, nothing, second = tf_tuple([a, None, slices])
    assert nothing is None
    assert first.name == "tuple/control_dependency:0"
    assert second.values.name == "tuple/control_dependency_1:0"
    assert first.op.control_inputs[0].name == "tuple/group_deps"
    assert evaluate(first) == 1.0
    with pytest.raises(ValueError, match="Must have at least one Tensor"):
        tf_tuple([None])
    with pytest.raises(TypeError, match="Control input must be Operation or Tensor: 3"):
        tf_tuple([a], control_inputs=[3])


def test_with_dependencies_is_colocated_with_its_tensor():
    with scoping.device("/job:ps"):
        a = constant(1.0, name="a")
    out = with_dependencies([no_op()], a)
    assert out.device == "/job:ps"
    assert out.op.colocation_groups() == [b"loc:@a"]


def test_name_scope_takes_its_default_name_and_the_graph_of_its_values(graph):
    other = Graph()
    with other.as_default():
        foreign = constant(1)
    with scoping.name_scope(None, "fallback", [foreign]) as scope:
        assert scope == "fallback/"
        assert scoping.get_default_graph() is other
    assert scoping.get_default_graph() is graph
    with scoping.name_scope("s") as first, scoping.name_scope("t") as second:
        assert (first, second) == ("s/", "s/t/")
    with scoping.op_scope([constant(1)], None, "o") as scope:
        assert scope == "o/"
    with pytest.raises(ValueError, match="At least one of name"):
        scoping.name_scope(None, None, [foreign]).__enter__()
    with pytest.raises(TypeError, match="is not a string type"):
        scoping.name_scope(None, [foreign])
    with pytest.raises(ValueError, match="must be from the same graph as"):
        scoping.name_scope("x", values=[foreign, constant(1)]).__enter__()


def test_init_scope_drops_control_dependencies_but_keeps_the_name():
    gate = no_op()
    with scoping.name_scope("outer"), scoping.control_dependencies([gate]):
        with scoping.init_scope():
            free = constant(1)
        bound = constant(2)
    assert free.op.control_inputs == [] and free.name == "outer/Const:0"
    assert bound.op.control_inputs == [gate]


def test_collections_belong_to_the_default_graph():
    scoping.add_to_collections(["a", "b"], 1)
    scoping.add_to_collection("a", 2)
    assert scoping.get_collection("a") == [1, 2]
    scoping.get_collection_ref("b").append(3)
    assert scoping.get_collection("b") == [1, 3]


def test_seeds_follow_tensorflow():
    assert scoping.get_seed(None) == (None, None)
    assert scoping.get_seed(5) == (87654321, 5)
    scoping.set_random_seed(7)
    assert scoping.get_seed(5) == (7, 5)
    assert scoping.get_seed(None) == (7, 0)
    constant(np.zeros(1))
    assert scoping.get_seed(None) == (7, 1)
    scoping.set_random_seed(0)
    assert scoping.get_seed(0) == (0, 2**31 - 1)


def test_the_outermost_scope_may_be_written_with_a_slash() -> None:
    with tf.name_scope("a"), tf.name_scope("/") as scope:
        assert scope == "/"
        assert tf.constant(1, name="x").op.name == "x"
