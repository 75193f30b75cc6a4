"""Nested structures of tensors: lists, tuples, namedtuples, dicts and attrs classes (``tf.nest``).

Every other object is a leaf. Dicts are traversed by sorted key. A *composite* (`IndexedSlices`, a sparse tensor) is a
leaf, too, unless ``expand_composites`` asks for its tensors.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, MappingView, Sequence
from typing import Any, NamedTuple

from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices

_VIEWS = (collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView)


class _Composite(NamedTuple):
    parts: Callable[[Any], list[Any]]
    build: Callable[[Any, list[Any]], Any]
    fits: Callable[[Any, Any], bool] | None


_composites: dict[type, _Composite] = {}


def register_composite(
    kind: type, parts: Callable[[Any], list[Any]], build: Callable[[Any, list[Any]], Any],
    fits: Callable[[Any, Any], bool] | None = None,
) -> None:  # fmt: skip
    """Registers a class of composites: how to take its instances apart and put them together.

    Args:
      parts: instance -> its tensors.
      build: (instance, tensors of the same number) -> a new instance like it.
      fits: of a class of specs: (spec, composite or spec) -> whether it describes that; then they have one structure.
    """
    _composites[kind] = _Composite(parts, build, fits)


def _slices_parts(value: IndexedSlices) -> list[Any]:
    return [part for part in (value.values, value.indices, value.dense_shape) if part is not None]


register_composite(IndexedSlices, _slices_parts, lambda like, parts: IndexedSlices(*parts))


def is_composite(value: Any) -> bool:
    """Whether ``value`` is a leaf that consists of several tensors."""
    return type(value) in _composites


@export("tf.nest.is_nested", "tf.contrib.framework.nest.is_sequence")
def is_nested(seq: Any) -> bool:
    """Whether ``seq`` is a structure rather than a leaf (``tf.nest.is_nested``); strings are leaves."""
    if isinstance(seq, (list, tuple, dict)):
        return True
    if isinstance(seq, (str, bytes, bytearray)) or is_composite(seq):
        return False
    return isinstance(seq, (Sequence, Mapping, MappingView)) or _is_attrs(seq)


def is_nested_or_composite(seq: Any) -> bool:
    """Does the same as `is_nested`, but also accepts composites."""
    return is_composite(seq) or is_nested(seq)


@export("tf.nest.flatten", "tf.contrib.framework.nest.flatten")
def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Lists the leaves in order. A leaf gives a list of one (``tf.nest.flatten``)."""
    found: list[Any] = []
    _flatten_into(structure, expand_composites, found)
    return found


def _flatten_into(structure: Any, expand: bool, found: list[Any]) -> None:
    if is_nested(structure) or expand and is_composite(structure):
        for item in _items(structure):
            _flatten_into(item, expand, found)
    else:
        found.append(structure)


@export("tf.nest.pack_sequence_as", "tf.contrib.framework.nest.pack_sequence_as")
def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """Puts ``flat_sequence`` into the form of ``structure`` (``tf.nest.pack_sequence_as``).

    Raises:
      TypeError: ``flat_sequence`` is no sequence.
      ValueError: the numbers of leaves differ.
    """
    if not is_nested(flat_sequence):
        raise TypeError("flat_sequence must be a sequence")
    flat = list(flat_sequence)
    if not (is_nested(structure) or expand_composites and is_composite(structure)):
        if len(flat) != 1:
            raise ValueError(f"Structure is a scalar but len(flat_sequence) == {len(flat)} > 1")
        return flat[0]
    count = len(flatten(structure, expand_composites))
    if count != len(flat):
        raise ValueError(
            f"Could not pack sequence. Structure had {count} elements, but flat_sequence had {len(flat)} elements."
            f"  Structure: {structure}, flat_sequence: {flat}."
        )
    return _pack(structure, iter(flat), expand_composites)


def _pack(structure: Any, leaves: Iterator[Any], expand: bool) -> Any:
    if is_nested(structure) or expand and is_composite(structure):
        return _like(structure, [_pack(item, leaves, expand) for item in _items(structure)])
    return next(leaves)


@export("tf.nest.map_structure", "tf.contrib.framework.nest.map_structure")
def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Applies ``func`` to corresponding leaves of structures (``tf.nest.map_structure``); the first gives the form.

    Args:
      check_types: whether the types of sequences must be equal; default True.
      expand_composites: whether to take composites apart; default False.

    Raises:
      TypeError, ValueError: the structures differ, or ``func`` is not callable.
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    check_types, expand = kwargs.pop("check_types", True), kwargs.pop("expand_composites", False)
    if kwargs:
        raise ValueError(
            f"Only valid keyword arguments are `check_types` and `expand_composites`, not: `{'`, `'.join(kwargs)}`"
        )
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types, expand)
    rows = zip(*(flatten(s, expand) for s in structure))
    return pack_sequence_as(structure[0], [func(*row) for row in rows], expand)


@export("tf.contrib.framework.nest.yield_flattened_paths")
def yield_flattened_paths(
    structure: Any, path: tuple[Any, ...] = (), expand: bool = False
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of each leaf: the keys, field names and positions that lead to it, and the class of a composite."""
    if expand and is_composite(structure):
        for i, part in enumerate(_items(structure)):
            yield (*path, type(structure).__name__, i), part
        return
    if not is_nested(structure):
        yield path, structure
        return
    steps: Any = range(len(structure))
    if isinstance(structure, Mapping):
        steps = sorted(structure)
    elif hasattr(structure, "_fields"):
        steps = structure._fields
    for step, item in zip(steps, _items(structure)):
        yield from yield_flattened_paths(item, (*path, step), expand)


# ---- comparing --------------------------------------------------------------------------------


@export("tf.nest.assert_same_structure", "tf.contrib.framework.nest.assert_same_structure")
def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Refuses structures that differ (``tf.nest.assert_same_structure``).

    Args:
      check_types: whether a list and a tuple count as different.
      expand_composites: whether composites are compared part by part.

    Raises:
      ValueError: the nesting, a length or the keys differ.
      TypeError: with ``check_types``, two types differ.
    """
    try:
        _compare(nest1, nest2, check_types, expand_composites)
    except (ValueError, TypeError) as error:
        raise type(error)(
            "The two structures don't have the same nested structure.\n\n"
            f"First structure: {_described(nest1)}\n\nSecond structure: {_described(nest2)}\n\n"
            f"More specifically: {error}\nEntire first structure:\n{_skeleton(nest1)}\n"
            f"Entire second structure:\n{_skeleton(nest2)}"
        ) from None


def _compare(a: Any, b: Any, check_types: bool, expand: bool) -> None:
    nested_a, nested_b = (is_nested(s) or expand and is_composite(s) for s in (a, b))
    if nested_a != nested_b:
        whole, leaf = (a, b) if nested_a else (b, a)
        raise ValueError(
            f'Substructure "{_described(whole)}" is a sequence, while substructure "{_described(leaf)}" is not'
        )
    if not nested_a:
        return
    if expand and (_is_spec(a) or _is_spec(b)):
        return _compare_specs(a, b)
    if check_types:
        _compare_types(a, b)
    items_a, items_b = list(_items(a)), list(_items(b))
    for x, y in zip(items_a, items_b):
        _compare(x, y, check_types, expand)
    if len(items_a) != len(items_b):
        raise ValueError(
            "The two structures don't have the same number of elements."
            f" First structure: {_described(a)}. Second structure: {_described(b)}"
        )


def _is_spec(value: object) -> bool:
    return is_composite(value) and _composites[type(value)].fits is not None


def _compare_specs(a: Any, b: Any) -> None:
    spec, other = (a, b) if _is_spec(a) else (b, a)
    fits = _composites[type(spec)].fits
    if not is_composite(other) or fits is None or not fits(spec, other):
        raise ValueError(f"Incompatible CompositeTensor TypeSpecs: {_described(a)} vs. {_described(b)}")


def _compare_types(a: Any, b: Any) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if set(a) != set(b):
            keys_a, keys_b = _described(list(a)), _described(list(b))
            raise ValueError(
                "The two dictionaries don't have the same set of keys."
                f" First structure has keys {keys_a}, while second structure has keys {keys_b}"
            )
    elif type(a) is not type(b) and not _same_namedtuple(a, b):
        raise TypeError(
            f"The two namedtuples don't have the same sequence type. First structure {_described(a)} has type"
            f" {type(a).__name__}, while second structure {_described(b)} has type {type(b).__name__}"
        )


def _same_namedtuple(a: Any, b: Any) -> bool:
    """Whether two namedtuple classes have the same name and fields. Such classes count as one."""
    return _is_namedtuple(a) and _is_namedtuple(b) and type(a).__name__ == type(b).__name__ and a._fields == b._fields


def _described(value: Any) -> str:
    return f"type={type(value).__name__} str={value}"


class _Dot:
    def __repr__(self) -> str:
        return "."


def _skeleton(structure: Any) -> str:
    dot = _Dot()
    return str(map_structure(lambda _: dot, structure))


# ---- one level --------------------------------------------------------------------------------


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)


def _is_attrs(value: Any) -> bool:
    return hasattr(type(value), "__attrs_attrs__")


def _items(structure: Any) -> Any:
    if isinstance(structure, Mapping):
        return [structure[key] for key in sorted(structure)]
    if is_composite(structure):
        return _composites[type(structure)].parts(structure)
    if _is_attrs(structure):
        return [getattr(structure, field.name) for field in type(structure).__attrs_attrs__]
    return structure


def _like(structure: Any, items: list[Any]) -> Any:
    """Puts ``items``, which are in the order of `_items`, into a structure of the same type."""
    if isinstance(structure, Mapping):
        by_key = dict(zip(sorted(structure), items))
        ordered = [(key, by_key[key]) for key in structure]
        if isinstance(structure, collections.defaultdict):
            return type(structure)(structure.default_factory, ordered)
        return type(structure)(ordered)  # type: ignore[call-arg]
    if is_composite(structure):
        return _composites[type(structure)].build(structure, items)
    if _is_namedtuple(structure) or _is_attrs(structure):
        return type(structure)(*items)
    if isinstance(structure, (*_VIEWS, range)):
        return items
    return type(structure)(items)
