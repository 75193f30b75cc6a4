"""Names of TensorFlow's private modules of structures: functions of shallow ones (``nest``), and their coder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import SparseTensorValue

is_sequence = nest.is_nested
is_sequence_or_composite = nest.is_nested_or_composite
_sequence_like, _is_attrs, _is_namedtuple = nest._like, nest._is_attrs, nest._is_namedtuple


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


@export("tf.contrib.framework.nest.assert_shallow_structure")
def assert_shallow_structure(
    shallow_tree: Any, input_tree: Any, check_types: bool = True, expand_composites: bool = False,
    check_subtrees_length: bool = True,
) -> None:  # fmt: skip
    """Checks that ``input_tree`` has the structure of ``shallow_tree``, and perhaps more below its leaves.

    Args:
      shallow_tree, input_tree: structures, or leaves.
      check_types: refuse structures of different types.
      expand_composites: take sparse and ragged tensors for structures of their components.
      check_subtrees_length: refuse structures of ``input_tree`` that have more items; those that have fewer are refused
        in any case.

    Raises:
      TypeError: a leaf has the place of a structure, or types differ with ``check_types``.
      ValueError: the lengths or the keys of structures differ.
    """
    is_structure = is_sequence_or_composite if expand_composites else nest.is_nested
    if not is_structure(shallow_tree):
        return
    if not is_structure(input_tree):
        raise TypeError(
            f"If shallow structure is a sequence, input must also be a sequence. Input has type: {type(input_tree)}."
        )
    both_mappings = _is_mapping(shallow_tree) and _is_mapping(input_tree)
    if check_types and not both_mappings and not isinstance(input_tree, type(shallow_tree)):
        raise TypeError(
            "The two structures don't have the same sequence type. Input structure has type"
            f" {type(input_tree)}, while shallow structure has type {type(shallow_tree)}."
        )
    wanted, length = len(nest._items(shallow_tree)), len(nest._items(input_tree))
    if length < wanted or check_subtrees_length and length != wanted:
        raise ValueError(
            "The two structures don't have the same sequence length. Input structure has length"
            f" {length}, while shallow structure has length {wanted}."
        )
    if both_mappings:
        missing = [key for key in shallow_tree if key not in input_tree]
        if missing:
            raise ValueError(
                "The shallow_tree's keys are not a subset of the input_tree's keys. The shallow_tree has the following"
                f" keys that are not in the input_tree: {missing}."
            )
    for shallow, given in _counterparts(shallow_tree, input_tree):
        assert_shallow_structure(shallow, given, check_types, expand_composites, check_subtrees_length)


def _counterparts(shallow_tree: Any, input_tree: Any) -> Iterator[tuple[Any, Any]]:
    """The items of ``shallow_tree``, each with that of ``input_tree``, which may have more."""
    if _is_mapping(shallow_tree) and _is_mapping(input_tree):
        return ((shallow_tree[key], input_tree[key]) for key in sorted(shallow_tree))
    return zip(nest._items(shallow_tree), nest._items(input_tree))


@export("tf.contrib.framework.nest.flatten_up_to")
def flatten_up_to(
    shallow_tree: object, input_tree: object, check_types: bool = True, expand_composites: bool = False,
    check_subtrees_length: bool = True,
) -> list[Any]:  # fmt: skip
    """The parts of ``input_tree`` at the leaves of ``shallow_tree``, with the errors of `assert_shallow_structure`."""
    assert_shallow_structure(shallow_tree, input_tree, check_types, expand_composites, check_subtrees_length)
    return list(_up_to(shallow_tree, input_tree, expand_composites))


def _up_to(shallow_tree: Any, input_tree: Any, expand: bool) -> Iterator[Any]:
    if not (is_sequence_or_composite if expand else nest.is_nested)(shallow_tree):
        yield input_tree
        return
    for shallow, given in _counterparts(shallow_tree, input_tree):
        yield from _up_to(shallow, given, expand)


@export("tf.contrib.framework.nest.map_structure_up_to")
def map_structure_up_to(shallow_tree: object, func: Callable[..., Any], *inputs: object, **kwargs: Any) -> Any:
    """Applies ``func`` to the parts of ``inputs`` at the leaves of ``shallow_tree``, which gives the form.

    Raises:
      ValueError: without inputs.
      TypeError, ValueError: as `assert_shallow_structure` does.
    """
    if not inputs:
        raise ValueError("Cannot map over no sequences")
    expand = kwargs.pop("expand_composites", False)
    checks = kwargs.pop("check_types", True), expand, kwargs.pop("check_subtrees_length", True)
    rows = zip(*(flatten_up_to(shallow_tree, tree, *checks) for tree in inputs))
    return nest.pack_sequence_as(shallow_tree, [func(*row, **kwargs) for row in rows], expand_composites=expand)


@export("tf.contrib.framework.nest.flatten_with_tuple_paths_up_to")
def flatten_with_tuple_paths_up_to(
    shallow_tree: object, input_tree: object, check_types: bool = True, expand_composites: bool = False,
    check_subtrees_length: bool = True,
) -> list[tuple[tuple[Any, ...], Any]]:  # fmt: skip
    """(path, part of ``input_tree``) at each leaf of ``shallow_tree``; a path is a tuple.

    Raises:
      TypeError, ValueError: as `assert_shallow_structure` does.
    """
    parts = flatten_up_to(shallow_tree, input_tree, check_types, expand_composites, check_subtrees_length)
    paths = nest.yield_flattened_paths(shallow_tree, expand=expand_composites)
    return [(path, part) for (path, _), part in zip(paths, parts)]


@export("tf.contrib.framework.nest.map_structure_with_tuple_paths_up_to")
def map_structure_with_tuple_paths_up_to(
    shallow_tree: object, func: Callable[..., Any], *inputs: object, **kwargs: Any
) -> Any:
    """`map_structure_up_to` of a function whose first argument is the path of the parts, a tuple."""
    leaves = nest.yield_flattened_paths(shallow_tree, expand=kwargs.get("expand_composites", False))
    return map_structure_up_to(
        shallow_tree, lambda *row, **words: func(next(leaves)[0], *row, **words), *inputs, **kwargs
    )


@export("tf.contrib.framework.nest.get_traverse_shallow_structure")
def get_traverse_shallow_structure(
    traverse_fn: Callable[[Any], Any], structure: Any, expand_composites: bool = False
) -> Any:
    """The structure's upper part, down to where a function says that it ends.

    Args:
      traverse_fn: from a part to a bool, or to a structure of bools that says it of each item of the part.
      structure: a structure.
      expand_composites: whether composite tensors are structures, too.

    Returns:
      A structure of bools: False where the function ended it, True at the leaves that it reached.

    Raises:
      TypeError: when the function gives something else.
      ValueError: when its structure has not the part's length or keys.
    """
    is_nested = nest.is_nested_or_composite if expand_composites else nest.is_nested
    wanted = traverse_fn(structure)
    if not is_nested(structure):
        if not isinstance(wanted, bool):
            raise TypeError(f"traverse_fn returned structure: {wanted} for non-structure: {structure}")
        return wanted
    if not nest.is_nested(wanted):
        if not isinstance(wanted, bool):
            raise TypeError(f"traverse_fn returned a non-bool scalar: {wanted} for input: {structure}")
        if not wanted:
            return False
        marks = [True] * len(list(nest._items(structure)))
    else:
        assert_shallow_structure(wanted, structure)
        marks = list(nest._items(wanted))
    found = []
    for mark, part in zip(marks, nest._items(structure)):
        if not isinstance(mark, bool):
            raise TypeError(
                f"traverse_fn didn't return a depth=1 structure of bools.  saw: {wanted}  for structure: {structure}"
            )
        found.append(mark and get_traverse_shallow_structure(traverse_fn, part, expand_composites))
    return nest._like(structure, found)


@export("tf.contrib.framework.nest.flatten_dict_items")
def flatten_dict_items(dictionary: object) -> dict[Any, Any]:
    """A dictionary whose keys and values may be structures, as one of their leaves.

    Raises:
      TypeError: it is no dictionary.
      ValueError: a key and its value differ in structure, or a key comes twice.
    """
    if not isinstance(dictionary, Mapping):
        raise TypeError("input must be a dictionary")
    found: dict[Any, Any] = {}
    for key, value in dictionary.items():
        if nest.is_nested(key) != nest.is_nested(value):
            raise ValueError(f"Could not flatten dictionary. Key {key!r} and value {value!r} differ in structure.")
        keys, values = (nest.flatten(key), nest.flatten(value)) if nest.is_nested(key) else ([key], [value])
        if len(keys) != len(values):
            raise ValueError(
                f"Could not flatten dictionary. Key had {len(keys)} elements, but value had {len(values)} elements."
                f" Key: {keys}, value: {values}."
            )
        for one, other in zip(keys, values):
            if one in found:
                raise ValueError(f"Could not flatten dictionary: this key is not unique: {one}")
            found[one] = other
    return found


@export("tf.contrib.framework.nest.flatten_with_tuple_paths")
def flatten_with_tuple_paths(structure: object, expand_composites: bool = False) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of each leaf; a path is a tuple."""
    return list(nest.yield_flattened_paths(structure))


@export("tf.contrib.framework.nest.flatten_with_joined_string_paths")
def flatten_with_joined_string_paths(
    structure: object, separator: str = "/", expand_composites: bool = False
) -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf; a path is text."""
    return [(separator.join(map(str, path)), leaf) for path, leaf in nest.yield_flattened_paths(structure)]


@export("tf.contrib.framework.nest.map_structure_with_tuple_paths")
def map_structure_with_tuple_paths(func: Callable[..., Any], *structure: object, **kwargs: object) -> Any:
    """Applies ``func(path, leaf, …)`` to corresponding leaves; a path is a tuple."""
    return _with_paths(lambda path: path, func, structure, kwargs)


@export("tf.contrib.framework.nest.map_structure_with_paths")
def map_structure_with_paths(func: Callable[..., Any], *structure: object, **kwargs: object) -> Any:
    """Applies ``func(path, leaf, …)`` to corresponding leaves; a path is text, with ``/`` between its steps."""
    return _with_paths(lambda path: "/".join(map(str, path)), func, structure, kwargs)


def _with_paths(form: Callable[[Any], Any], func: Callable[..., Any], structure: Any, kwargs: dict[str, Any]) -> Any:
    check_types = kwargs.pop("check_types", True)
    kwargs.pop("expand_composites", None)
    for other in structure[1:]:
        nest.assert_same_structure(structure[0], other, check_types)
    paths = [form(path) for path, _ in nest.yield_flattened_paths(structure[0])]
    rows = zip(paths, *map(nest.flatten, structure))
    return nest.pack_sequence_as(structure[0], [func(*row, **kwargs) for row in rows])


# ---- ``data.util.nest``: the structures of ``tf.data``, in which a list is a leaf ----------------------------------


class _Leaf:
    """Hides what only ``tf.nest`` takes for a structure."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


@export("tensorflow.python.data.util.nest.is_sequence")
def is_data_sequence(structure: object) -> bool:
    """Whether ``structure`` is a structure of ``tf.data``: a tuple, a mapping or an attrs object."""
    if isinstance(structure, SparseTensorValue):
        return False
    return isinstance(structure, (tuple, Mapping)) or nest._is_attrs(structure)


def _closed(structure: Any) -> Any:
    if is_data_sequence(structure):
        return nest._like(structure, [_closed(item) for item in nest._items(structure)])
    return _Leaf(structure)


def _open(value: Any) -> Any:
    if isinstance(value, _Leaf):
        return value.value
    return nest._like(value, [_open(item) for item in nest._items(value)])


@export("tensorflow.python.data.util.nest.flatten")
def flatten_data(nest_: object) -> list[Any]:
    """The leaves of a structure of ``tf.data``."""
    return [leaf.value for leaf in nest.flatten(_closed(nest_))]


@export("tensorflow.python.data.util.nest.assert_same_structure")
def assert_same_data_structure(nest1: object, nest2: object, check_types: bool = True) -> None:
    """Refuses structures of ``tf.data`` that differ, with the errors of ``tf.nest.assert_same_structure``."""
    nest.assert_same_structure(_closed(nest1), _closed(nest2), check_types)


@export("tensorflow.python.data.util.nest.pack_sequence_as")
def pack_data_sequence_as(structure: object, flat_sequence: Any) -> Any:
    """Puts leaves into the form of a structure of ``tf.data``, with the errors of ``tf.nest.pack_sequence_as``."""
    return nest.pack_sequence_as(_closed(structure), flat_sequence)


@export("tensorflow.python.data.util.nest.map_structure")
def map_data_structure(func: Callable[..., Any], *structure: object, **check_types: bool) -> Any:
    """Applies ``func`` to corresponding leaves of structures of ``tf.data``.

    Raises:
      TypeError: ``func`` is not callable, or types of structures differ.
      ValueError: without structures, for structures that differ, and for another keyword than ``check_types``.
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if set(check_types) - {"check_types"}:
        raise ValueError("Only valid keyword argument is check_types")
    return nest.map_structure(
        lambda *leaves: func(*(leaf.value for leaf in leaves)), *map(_closed, structure), **check_types
    )


@export("tensorflow.python.data.util.nest.assert_shallow_structure")
def assert_shallow_data_structure(shallow_tree: object, input_tree: object, check_types: bool = True) -> None:
    """Refuses a structure of ``tf.data`` that has not the form of ``shallow_tree``; see `assert_shallow_structure`."""
    if is_data_sequence(shallow_tree) and not is_data_sequence(input_tree):
        raise TypeError(
            f"If shallow structure is a sequence, input must also be a sequence. Input has type: {type(input_tree)}."
        )
    assert_shallow_structure(_closed(shallow_tree), _closed(input_tree), check_types)


@export("tensorflow.python.data.util.nest.flatten_up_to")
def flatten_data_up_to(shallow_tree: object, input_tree: object) -> list[Any]:
    """The parts of a structure of ``tf.data`` at the leaves of ``shallow_tree``."""
    return [_open(part) for part in flatten_up_to(_closed(shallow_tree), _closed(input_tree))]


@export("tensorflow.python.data.util.nest.map_structure_up_to")
def map_data_structure_up_to(shallow_tree: object, func: Callable[..., Any], *inputs: object) -> Any:
    """Applies ``func`` to the parts of structures of ``tf.data`` at the leaves of ``shallow_tree``.

    Raises:
      ValueError: without inputs.
      TypeError, ValueError: as `assert_shallow_structure` does.
    """
    return map_structure_up_to(_closed(shallow_tree), lambda *parts: func(*map(_open, parts)), *map(_closed, inputs))
