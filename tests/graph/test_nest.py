"""Nested structures: walking, packing, and what is refused."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfmini as tf

PAIR = collections.namedtuple("PAIR", "a b")
OTHER = collections.namedtuple("OTHER", "a b")
nest = tf.nest

structures = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.tuples(inner, inner).map(lambda pair: PAIR(*pair))
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(structures)
def test_packing_undoes_flattening(structure: Any) -> None:
    flat = nest.flatten(structure)
    assert nest.pack_sequence_as(structure, flat) == structure
    nest.assert_same_structure(structure, nest.map_structure(str, structure))
    assert nest.flatten(nest.map_structure(str, structure)) == [str(leaf) for leaf in flat]


def test_leaves_are_in_the_order_of_sorted_keys() -> None:
    assert nest.flatten({"b": 1, "a": PAIR(2, [3])}) == [2, 3, 1]
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    assert list(nest.pack_sequence_as(ordered, [10, 20]).items()) == [("b", 20), ("a", 10)]
    assert nest.flatten("text") == ["text"] and nest.flatten({"a": 1}.values()) == [1]
    assert nest.is_nested([]) and nest.is_nested({}.keys()) and not nest.is_nested({1, 2}) and not nest.is_nested("ab")
    assert nest.map_structure(lambda a, b: a + b, PAIR(1, 2), PAIR(3, 4)) == PAIR(4, 6)


def test_composites_are_leaves_unless_expanded() -> None:
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]))
    sparse = tf.SparseTensor([[0]], [1], [1])
    assert nest.flatten([slices, sparse]) == [slices, sparse]
    assert len(nest.flatten([slices, sparse], expand_composites=True)) == 5
    again = nest.map_structure(lambda t: t, [slices], expand_composites=True)[0]
    assert again.values is slices.values and again.dense_shape is None


@pytest.mark.parametrize(
    "a, b, kind, text",
    [
        ([1, 2], [1], ValueError, "don't have the same number of elements. First structure: type=list str=[1, 2]."),
        ([1, [2]], [1, 2], ValueError, 'Substructure "type=list str=[2]" is a sequence, while substructure "type=int'),
        ([1, 2], (1, 2), TypeError, "has type list, while second structure type=tuple str=(1, 2) has type tuple"),
        (PAIR(1, 2), OTHER(1, 2), TypeError, "has type PAIR, while second structure"),
        ({"a": 1}, {"b": 1}, ValueError, "First structure has keys type=list str=['a'], while second"),
        ([1, {"z": 2}], [1, 2], ValueError, "Entire first structure:\n[., {'z': .}]\nEntire second structure:\n[., .]"),
    ],
)
def test_a_difference_of_structures_is_described(a: Any, b: Any, kind: type, text: str) -> None:
    with pytest.raises(kind) as caught:
        nest.assert_same_structure(a, b)
    assert str(caught.value).startswith("The two structures don't have the same nested structure.\n\nFirst structure: ")
    assert text in str(caught.value)


def test_types_need_not_agree_on_request() -> None:
    nest.assert_same_structure([1, (2,)], (1, [2]), check_types=False)
    nest.assert_same_structure(PAIR(1, 2), collections.namedtuple("PAIR", "a b")(1, 2))
    nest.assert_same_structure({"a": 1}, collections.OrderedDict(a=1))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="Structure had 2 elements, but flat_sequence had 3 elements"):
        nest.pack_sequence_as([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="Structure is a scalar"):
        nest.pack_sequence_as(1, [1, 2])
    with pytest.raises(TypeError, match="flat_sequence must be a sequence"):
        nest.pack_sequence_as([1], 4)
    with pytest.raises(TypeError, match="func must be callable, got: 3"):
        nest.map_structure(3, [1])
    with pytest.raises(ValueError, match="Must provide at least one structure"):
        nest.map_structure(lambda x: x)
    with pytest.raises(ValueError, match="not: `foo`"):
        nest.map_structure(lambda x: x, [1], foo=2)


def test_a_spec_has_the_structure_of_the_values_that_it_describes() -> None:
    spec, sparse = tf.SparseTensorSpec([None, 3], tf.float32), tf.SparseTensor([[0, 0]], [1.0], [2, 3])
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0], tf.int64))
    assert [part.dtype for part in tf.nest.flatten(spec, expand_composites=True)] == [tf.int64, tf.float32, tf.int64]
    packed = tf.nest.pack_sequence_as(spec, tf.nest.flatten(sparse, expand_composites=True), expand_composites=True)
    assert packed.indices is sparse.indices and isinstance(packed, tf.SparseTensor)
    for one, other in (([sparse], [spec]), (spec, sparse), (slices, tf.IndexedSlicesSpec([None]))):
        tf.nest.assert_same_structure(one, other, expand_composites=True)
    for one, other in ((slices, spec), (spec, 1.0), (tf.SparseTensor([[0, 0]], [1], [2, 3]), spec)):
        with pytest.raises(ValueError, match="don't have the same nested structure"):
            tf.nest.assert_same_structure(one, other, expand_composites=True)


def test_the_first_difference_is_told() -> None:
    with pytest.raises(ValueError, match="is a sequence, while substructure .* is not"):
        tf.nest.assert_same_structure((((1, 2), 3), 4, (5, 6)), ("spam", "eggs"))
    for structure in ([0, 1], 1):
        with pytest.raises(TypeError, match="^flat_sequence must be a sequence$"):
            tf.nest.pack_sequence_as(structure, "ab")
