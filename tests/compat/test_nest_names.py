"""The functions of shallow structures that libraries import from TensorFlow's private ``nest``."""

from __future__ import annotations

import collections
from typing import Any

import pytest

import tfmini as tf
from tfmini.compat import nest_names

Pair = collections.namedtuple("Pair", ("a", "b"))


def test_kinds_of_structures_are_told() -> None:
    is_namedtuple, is_attrs = (getattr(nest_names, name) for name in ("_is_namedtuple", "_is_attrs"))
    assert is_namedtuple(Pair(1, 2)) and not is_namedtuple((1, 2)) and not is_attrs(Pair(1, 2))


def test_flatten_up_to_stops_at_the_leaves_of_the_shallow_structure() -> None:
    tree = {"a": [1, [2, 3]], "b": Pair(4, (5, 6))}
    assert nest_names.flatten_up_to({"a": 0, "b": 0}, tree) == [[1, [2, 3]], Pair(4, (5, 6))]
    assert nest_names.flatten_up_to({"a": [0, 0], "b": Pair(0, 0)}, tree) == [1, [2, 3], 4, (5, 6)]
    assert nest_names.flatten_up_to(0, tree) == [tree]


@pytest.mark.parametrize(
    ("shallow", "tree", "error", "text"),
    [
        ([0, [0]], [1, 2], TypeError, "must also be a sequence"),
        ([0, 0], (1, 2), TypeError, "same sequence type"),
        ([0, 0], [1], ValueError, "same sequence length"),
        ({"a": 0}, {"b": 1}, ValueError, "not a subset"),
    ],
)
def test_structures_that_differ_are_refused(shallow: Any, tree: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        nest_names.assert_shallow_structure(shallow, tree)


def test_longer_structures_pass_without_the_check_of_lengths() -> None:
    assert nest_names.flatten_up_to([0], [1, 2], check_subtrees_length=False) == [1]
    assert nest_names.map_structure_up_to([0], str, [1, 2], check_subtrees_length=False) == ["1"]
    with pytest.raises(ValueError, match="same sequence length"):
        nest_names.flatten_up_to([0, 0], [1], check_subtrees_length=False)


def test_paths_lead_into_composites_on_request() -> None:
    sparse = tf.SparseTensor([[0]], [1.0], [2])
    names = ["SparseTensor", 0], ["SparseTensor", 1], ["SparseTensor", 2]
    found = nest_names.flatten_with_tuple_paths_up_to([sparse], [sparse], expand_composites=True)
    assert [path for path, _ in found] == [(0, *name) for name in names]
    assert nest_names.flatten_with_tuple_paths_up_to([0], [1, 2], check_subtrees_length=False) == [((0,), 1)]
    assert nest_names.map_structure_with_tuple_paths_up_to([0], lambda path, _: path, [sparse]) == [(0,)]


def test_a_function_is_mapped_up_to_a_structure() -> None:
    names = Pair("x", ["y"])
    assert nest_names.map_structure_up_to(names, lambda n, v: (n, v), names, Pair(1, [[2, 3]])) == Pair(
        ("x", 1), [("y", [2, 3])]
    )
    with pytest.raises(ValueError, match="no sequences"):
        nest_names.map_structure_up_to(names, str)


def test_dictionaries_with_structures_as_keys_are_flattened() -> None:
    assert nest_names.flatten_dict_items({("a", ("b",)): (1, (2,)), "c": 3}) == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(ValueError, match="not unique"):
        nest_names.flatten_dict_items({("a", "b"): (1, 2), "a": 3})
    with pytest.raises(TypeError):
        nest_names.flatten_dict_items([1])  # type: ignore[arg-type]


def test_leaves_come_with_their_paths() -> None:
    tree = {"a": Pair(1, [2]), "b": 3}
    assert nest_names.flatten_with_joined_string_paths(tree) == [("a/a", 1), ("a/b/0", 2), ("b", 3)]
    assert nest_names.map_structure_with_paths(lambda path, v: f"{path}={v}", tree) == {
        "a": Pair("a/a=1", ["a/b/0=2"]), "b": "b=3",
    }  # fmt: skip


def test_lists_are_leaves_of_structures_of_datasets() -> None:
    element = ([1, 2], {"b": (3,), "a": [4]})
    sparse = tf.SparseTensorValue([[0]], [1.0], [2])
    assert nest_names.flatten_data(element) == [[1, 2], [4], 3] and nest_names.flatten_data([1]) == [[1]]
    assert nest_names.is_data_sequence({}) and not nest_names.is_data_sequence(sparse)
    assert nest_names.map_data_structure(str, element) == ("[1, 2]", {"b": ("3",), "a": "[4]"})
    assert nest_names.map_data_structure(lambda a, b: (a, b), (sparse,), (2,)) == ((sparse, 2),)
    assert nest_names.pack_data_sequence_as(([1, 2], Pair(3, 4)), [5, [6], 7]) == (5, Pair([6], 7))
    nest_names.assert_same_data_structure(([1], sparse), ([1, 2], 3))
    assert nest_names.flatten_data_up_to((1, [2]), ((1, 2), [3])) == [(1, 2), [3]]
    assert nest_names.map_data_structure_up_to((1, 2), lambda a, b: (a, b), ((1, 2), [3]), (5, 6)) == (
        ((1, 2), 5), ([3], 6),
    )  # fmt: skip


def test_structures_of_datasets_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="don't have the same nested structure"):
        nest_names.assert_same_data_structure(([1], 2), (1, (2,)))
    with pytest.raises(TypeError, match="input must also be a sequence. Input has type: <class 'list'>"):
        nest_names.assert_shallow_data_structure((1, 2), [1, 2])
    nest_names.assert_shallow_data_structure([1, 2], (1, 2))
    with pytest.raises(ValueError, match="Only valid keyword argument is check_types"):
        nest_names.map_data_structure(str, (1,), expand=True)
    with pytest.raises(TypeError, match="func must be callable"):
        nest_names.map_data_structure(3, (1,))  # type: ignore[arg-type]
