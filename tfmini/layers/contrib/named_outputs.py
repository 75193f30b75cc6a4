"""``tf.contrib.layers.utils``: aliases of layer results in collections, and checks of layer arguments."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tfmini.export import export, export_names
from tfmini.graph.scoping import add_to_collections, get_collection, get_collection_ref
from tfmini.ops.flow.cond import smart_cond, smart_constant_value
from tfmini.shapes import TensorShape

__all__ = [
    "append_tensor_alias", "collect_named_outputs", "constant_value", "convert_collection_to_dict",
    "first_dimension", "gather_tensors_aliases", "get_tensor_aliases", "last_dimension", "n_positive_integers",
    "smart_cond", "two_element_tuple",
]  # fmt: skip

constant_value = smart_constant_value


@export("tf.contrib.layers.utils.collect_named_outputs")
def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """Adds a tensor to collections under an alias; returns it (``tf.contrib.slim.utils.collect_named_outputs``)."""
    if collections:
        append_tensor_alias(outputs, alias)
        add_to_collections(collections, outputs)
    return outputs


@export("tf.contrib.layers.utils.append_tensor_alias")
def append_tensor_alias(tensor: Any, alias: str) -> Any:
    """Adds an alias to a tensor and returns it (``tf.contrib.slim.utils.append_tensor_alias``)."""
    _aliases(tensor).append(alias[:-1] if alias.endswith("/") else alias)
    return tensor


@export("tf.contrib.layers.utils.get_tensor_aliases")
def get_tensor_aliases(tensor: Any) -> list[str]:
    """The aliases of a tensor, or its op's name (``tf.contrib.slim.utils.get_tensor_aliases``)."""
    return list(_aliases(tensor)) or [tensor.op.name]


def _aliases(tensor: Any) -> list[str]:
    by_name: dict[str, list[str]] = tensor.graph.attachments.setdefault("tfmini.layers.aliases", {})
    return by_name.setdefault(tensor.name, [])


@export("tf.contrib.layers.utils.gather_tensors_aliases")
def gather_tensors_aliases(tensors: Any) -> list[str]:
    """The aliases of several tensors (``tf.contrib.slim.utils.gather_tensors_aliases``)."""
    return [alias for tensor in tensors for alias in get_tensor_aliases(tensor)]


@export("tf.contrib.layers.utils.convert_collection_to_dict")
def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> OrderedDict[str, Any]:
    """alias -> tensor, for the tensors of a collection (``tf.contrib.slim.utils.convert_collection_to_dict``)."""
    found = OrderedDict((alias, t) for t in get_collection(collection) for alias in get_tensor_aliases(t))
    if clear_collection:
        get_collection_ref(collection).clear()
    return found


@export("tf.contrib.layers.utils.first_dimension")
def first_dimension(shape: Any, min_rank: int = 1) -> int | None:
    """The length of the first axis; raises ValueError if unknown (``tf.contrib.slim.utils.first_dimension``)."""
    return _dimension(shape, 0, min_rank)


@export("tf.contrib.layers.utils.last_dimension")
def last_dimension(shape: Any, min_rank: int = 1) -> int | None:
    """The length of the last axis; raises ValueError if unknown (``tf.contrib.slim.utils.last_dimension``)."""
    return _dimension(shape, -1, min_rank)


def _dimension(shape: Any, position: int, min_rank: int) -> int | None:
    sizes = TensorShape(shape)
    if sizes.ndims is None:
        raise ValueError("dims of shape must be known but is None")
    if sizes.ndims < min_rank:
        raise ValueError(f"rank of shape must be at least {min_rank} not: {sizes.ndims}")
    value = sizes.as_list()[position]
    if value is None:
        raise ValueError("dimension of shape must be known but is None")
    return int(value)


@export("tf.contrib.layers.utils.two_element_tuple")
def two_element_tuple(int_or_tuple: Any) -> tuple[int, int]:
    """Expands an int to a pair; raises ValueError for more than two (``tf.contrib.slim.utils.two_element_tuple``)."""
    first, second = n_positive_integers(2, int_or_tuple)
    return first, second


@export("tf.contrib.layers.utils.n_positive_integers")
def n_positive_integers(n: int, value: Any) -> tuple[int, ...]:
    """Expands an int to ``n`` ints, or checks ``n`` positive ones (``tf.contrib.slim.utils.n_positive_integers``)."""
    if isinstance(value, TensorShape):
        value = value.as_list()
    values = (value,) * n if isinstance(value, int) else tuple(int(v) for v in value)
    if len(values) != n or any(v < 1 for v in values):
        raise ValueError(f"Must provide {n} positive integers, got {value}")
    return values


export_names("tf.contrib.layers.utils", "constant_value")
