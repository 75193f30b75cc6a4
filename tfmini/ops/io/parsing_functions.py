"""``tf.parse_example`` and related functions, and the descriptions of features."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.shape import expand_dims, reshape, squeeze
from tfmini.ops.array.slicing import slice as slice_of
from tfmini.ops.composites import SparseTensor
from tfmini.ops.io import parsing_ops
from tfmini.ops.sparse.functions import sparse_merge
from tfmini.shapes import TensorShape, as_shape


@export("tf.VarLenFeature", "tf.io.VarLenFeature")
class VarLenFeature(NamedTuple):
    """A feature with any number of values of a type; its result is a sparse tensor (``tf.VarLenFeature``)."""

    dtype: Any


@export("tf.SparseFeature", "tf.io.SparseFeature")
class SparseFeature(NamedTuple):
    """A feature whose values and positions have keys of their own; its result is sparse (``tf.SparseFeature``).

    Attributes:
      index_key: one key, or one per dimension.
      value_key: of the values.
      dtype: of the values.
      size: of the dense tensor, one number or one per dimension.
      already_sorted: whether the positions are in order.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


@export("tf.FixedLenFeature", "tf.io.FixedLenFeature")
class FixedLenFeature(NamedTuple):
    """A feature with values of a known shape (``tf.FixedLenFeature``); required without ``default_value``."""

    shape: Any
    dtype: Any
    default_value: Any = None


@export("tf.FixedLenSequenceFeature", "tf.io.FixedLenSequenceFeature")
class FixedLenSequenceFeature(NamedTuple):
    """A feature with any number of rows of a known shape, padded in a batch (``tf.FixedLenSequenceFeature``)."""

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class _Request:
    """The features to parse, sorted by key, in the form of the ops' arguments."""

    def __init__(self, features: dict[str, Any] | None, supported: tuple[type, ...]) -> None:
        self.sparse: dict[str, DType] = {}
        self.dense: dict[str, tuple[Any, DType]] = {}
        self.defaults: dict[str, Any] = {}
        for key in sorted(features or ()):
            self._add(key, (features or {})[key], supported)
        both = self.sparse.keys() & self.dense.keys()
        if both:
            raise ValueError(f"Dense and sparse keys must not intersect; intersection: {both}")

    def _add(self, key: str, feature: object, supported: tuple[type, ...]) -> None:
        kinds = (VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature)
        if not isinstance(feature, kinds):
            raise ValueError(f"Invalid feature {key}:{feature}.")
        if not isinstance(feature, supported):
            raise ValueError(f"Unsupported {type(feature).__name__} {feature}.")
        if isinstance(feature, SparseFeature):
            self._add_sparse_feature(key, feature)
            return
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}.")
        dtype = dtypes.as_dtype(feature.dtype)
        if isinstance(feature, VarLenFeature):
            self._note(key, dtype, f"Conflicting type {{}} vs {dtype} for feature {key}.")
            return
        if feature.shape is None:
            raise ValueError(f"Missing shape for feature {key}.")
        if isinstance(feature, FixedLenFeature):
            _check_fixed(key, feature)
        self.dense[key] = (as_shape(feature.shape), dtype)
        if isinstance(feature, FixedLenSequenceFeature) and feature.allow_missing:
            self.defaults[key] = None
        if feature.default_value is not None:
            self.defaults[key] = feature.default_value

    def _add_sparse_feature(self, key: str, feature: SparseFeature) -> None:
        for what in ("index_key", "value_key"):
            if not getattr(feature, what):
                raise ValueError(f"Missing {what} for SparseFeature {feature}.")
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}.")
        keys = [feature.index_key] if isinstance(feature.index_key, str) else feature.index_key
        for index_key in sorted(keys):
            self._note(index_key, dtypes.int64, f"Conflicting type {{}} vs int64 for feature {index_key}.")
        dtype = dtypes.as_dtype(feature.dtype)
        self._note(feature.value_key, dtype, f"Conflicting type {{}} vs {dtype} for feature {feature.value_key}.")

    def _note(self, key: str, dtype: DType, conflict: str) -> None:
        known = self.sparse.setdefault(key, dtype)
        if known is not dtype:
            raise ValueError(conflict.format(known))

    def default_tensors(self) -> list[Tensor]:
        """The default of each dense feature: empty if it is required, one element if its rows are padded."""
        return [self._default(key, shape, dtype) for key, (shape, dtype) in self.dense.items()]

    def _default(self, key: str, shape: TensorShape, dtype: DType) -> Tensor:
        value = self.defaults.get(key)
        is_variable = bool(shape.ndims) and shape.as_list()[0] is None
        safe = re.sub("[^A-Za-z0-9_.\\-/]", "_", key)
        if is_variable:
            if value is None:
                return convert_to_tensor("" if dtype is dtypes.string else 0, dtype=dtype)
            return reshape(convert_to_tensor(value, dtype=dtype, name=f"padding_{safe}"), [])
        if value is None:
            return constant([], dtype=dtype)
        if isinstance(value, Tensor):
            return value
        return reshape(convert_to_tensor(value, dtype=dtype, name=f"key_{safe}"), shape)

    def shapes(self) -> list[TensorShape]:
        """The shapes of the dense features."""
        return [shape for shape, _ in self.dense.values()]

    def result(self, sparse: tuple[Any, ...], dense: list[Tensor]) -> dict[str, Any]:
        """The outputs by key."""
        tensors = [SparseTensor(*parts) for parts in zip(*sparse)]
        return dict(zip([*self.sparse, *self.dense], [*tensors, *dense]))


def _check_fixed(key: str, feature: FixedLenFeature) -> None:
    shape = as_shape(feature.shape)
    if shape.ndims and shape.as_list()[0] is None:
        raise ValueError(f"First dimension of shape for feature {key} unknown. Consider using FixedLenSequenceFeature.")
    if not shape.is_fully_defined():
        raise ValueError(f"All dimensions of shape for feature {key} need to be known but received {feature.shape}.")


_ALL = (VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature)


def _with_rows(features: dict[str, Any]) -> dict[str, Any]:
    """The dense features, with an unknown number of rows for those with variable rows."""
    found = dict(features)
    for key, feature in features.items():
        if isinstance(feature, FixedLenSequenceFeature):
            if not feature.allow_missing:
                raise ValueError("Unsupported: FixedLenSequenceFeature requires allow_missing to be True.")
            found[key] = feature._replace(shape=[None, *feature.shape])
    return found


def _with_sparse_features(features: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors, with those of index and value keys merged into their `SparseFeature`."""
    found = dict(tensors)
    for key in sorted(features):
        feature = features[key]
        if isinstance(feature, SparseFeature):
            keys = feature.index_key
            ids = tensors[keys] if isinstance(keys, str) else [tensors[k] for k in keys]
            found[key] = sparse_merge(
                ids, tensors[feature.value_key], vocab_size=feature.size, already_sorted=feature.already_sorted
            )
    return {key: value for key, value in found.items() if key in features}


@export("tf.parse_example", "tf.io.parse_example")
def parse_example(
    serialized: TensorLike, features: Any, name: str | None = None, example_names: TensorLike | None = None
) -> Any:
    """Parses a batch of Example messages (``tf.parse_example``).

    Args:
      serialized: string [batch].
      features: key -> `FixedLenFeature`, `VarLenFeature`, `SparseFeature` or `FixedLenSequenceFeature`.
      name: of the name scope.
      example_names: string [batch], for error messages.

    Returns:
      key -> tensor or sparse tensor, with the batch as first dimension.

    Raises:
      ValueError: for unsupported features. In the step, messages that do not fit raise
        `InvalidArgumentError`.
    """
    if not features:
        raise ValueError(f"Missing: features was {features}.")
    features = _with_rows(features)
    request = _Request(features, _ALL)
    return _with_sparse_features(features, _parse_batch(serialized, example_names, request, name))


def _parse_batch(serialized: TensorLike, names: object, request: _Request, name: str | None) -> dict[str, Any]:
    with name_scope(name, "ParseExample", [serialized, names]):
        outputs = parsing_ops.parse_example_op(
            serialized,
            convert_to_tensor([] if names is None else names, dtypes.string, name="ParseExample/names"),
            list(request.sparse),
            list(request.dense),
            request.default_tensors(),
            sparse_types=list(request.sparse.values()),
            dense_shapes=request.shapes(),
            name=name,
        )
        return request.result(outputs[:3], outputs[3])


@export("tf.parse_single_example", "tf.io.parse_single_example")
def parse_single_example(
    serialized: TensorLike, features: Any, name: str | None = None, example_names: TensorLike | None = None
) -> Any:
    """Parses one Example message, a string scalar (``tf.parse_single_example``); see `parse_example`."""
    if not features:
        raise ValueError("Missing features.")
    features = _with_rows(features)
    request = _Request(features, _ALL)
    if example_names is not None:
        return _with_sparse_features(features, _parse_named(serialized, example_names, request, name))
    with name_scope(name, "ParseSingleExample", [serialized]):
        outputs = parsing_ops.parse_single_example_op(
            convert_to_tensor(serialized, name="serialized"),
            request.default_tensors(),
            num_sparse=len(request.sparse),
            sparse_keys=list(request.sparse),
            sparse_types=list(request.sparse.values()),
            dense_keys=list(request.dense),
            dense_shapes=request.shapes(),
            name=name,
        )
        found = request.result(outputs[:3], outputs[3])
    return _with_sparse_features(features, found)


def _parse_named(
    serialized: TensorLike, example_name: TensorLike, request: _Request, name: str | None
) -> dict[str, Any]:
    """Parses one message as a batch of one, because only the batch op takes names."""
    with name_scope(name, "ParseSingleExample", [serialized, example_name]):
        parts = []
        for what, value in (("serialized", serialized), ("names", example_name)):
            tensor = convert_to_tensor(value, dtypes.string)
            if tensor.shape.ndims not in (None, 0):
                raise ValueError(f"Input {what} must be a scalar")
            parts.append(expand_dims(reshape(tensor, []), 0))
        outputs = _parse_batch(parts[0], parts[1], request, None)
        for key in request.dense:
            outputs[key] = squeeze(outputs[key], [0])
        for key in request.sparse:
            found = outputs[key]
            indices = slice_of(found.indices, [0, 1], [-1, -1])
            outputs[key] = SparseTensor(indices, found.values, slice_of(found.dense_shape, [1], [-1]))
        return outputs


def _sequence_requests(context: Any, sequence: Any) -> tuple[_Request, _Request, list[str]]:
    if not (context or sequence):
        raise ValueError("Missing features.")
    first = _Request(context, (VarLenFeature, FixedLenFeature))
    second = _Request(sequence, (VarLenFeature, FixedLenSequenceFeature))
    for key, value in second.defaults.items():
        if value is not None:
            raise ValueError(f"Value feature_list_dense_defaults[{key}] must be None")
    return first, second, list(second.defaults)


def _sequence_attrs(context: _Request, sequence: _Request) -> dict[str, Any]:
    return {
        "Ncontext_dense": len(context.dense),
        "Ncontext_sparse": len(context.sparse),
        "Nfeature_list_sparse": len(sequence.sparse),
        "Nfeature_list_dense": len(sequence.dense),
        "context_sparse_types": list(context.sparse.values()),
        "context_dense_shapes": context.shapes(),
        "feature_list_sparse_types": list(sequence.sparse.values()),
        "feature_list_dense_types": [dtype for _, dtype in sequence.dense.values()],
        "feature_list_dense_shapes": sequence.shapes(),
    }


@export("tf.parse_single_sequence_example", "tf.io.parse_single_sequence_example")
def parse_single_sequence_example(
    serialized: TensorLike, context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None, example_name: TensorLike | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Parses one SequenceExample message, a string scalar (``tf.parse_single_sequence_example``).

    Args:
      context_features: key -> `FixedLenFeature` or `VarLenFeature`.
      sequence_features: key -> `FixedLenSequenceFeature` or `VarLenFeature`.
      example_name: for error messages.
      name: of the name scope.

    Returns:
      Two dictionaries: the context's tensors, and the feature lists', with the steps as first dimension.
    """
    context, sequence, assumed_empty = _sequence_requests(context_features, sequence_features)
    attrs = _sequence_attrs(context, sequence)
    for inferred in ("Ncontext_dense", "Ncontext_sparse", "Nfeature_list_sparse", "Nfeature_list_dense"):
        del attrs[inferred]
    with name_scope(name, "ParseSingleSequenceExample", [serialized]):
        outputs = parsing_ops.parse_single_sequence_op(
            serialized,
            convert_to_tensor(assumed_empty, dtypes.string),
            list(context.sparse),
            list(context.dense),
            list(sequence.sparse),
            list(sequence.dense),
            context.default_tensors(),
            "" if example_name is None else example_name,
            name=name,
            **attrs,
        )
        return context.result(outputs[:3], outputs[3]), sequence.result(outputs[4:7], outputs[7])


@export("tf.io.parse_sequence_example")
def parse_sequence_example(
    serialized: TensorLike, context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None, example_names: TensorLike | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Parses a batch of SequenceExample messages (``tf.io.parse_sequence_example``).

    The arguments are those of `parse_single_sequence_example`, with string vectors in place of scalars.

    Returns:
      Three dictionaries: the context's tensors, the feature lists', padded, and the number of
      steps of each dense feature list per example.
    """
    context, sequence, assumed_empty = _sequence_requests(context_features, sequence_features)
    with name_scope(name, "ParseSequenceExample", [serialized]):
        outputs = parsing_ops.parse_sequence_op(
            serialized,
            convert_to_tensor([] if example_names is None else example_names, dtypes.string),
            context.default_tensors(),
            feature_list_dense_missing_assumed_empty=assumed_empty,
            context_sparse_keys=list(context.sparse),
            context_dense_keys=list(context.dense),
            feature_list_sparse_keys=list(sequence.sparse),
            feature_list_dense_keys=list(sequence.dense),
            name=name,
            **_sequence_attrs(context, sequence),
        )
        lengths = dict(zip(sequence.dense, outputs[8]))
        return context.result(outputs[:3], outputs[3]), sequence.result(outputs[4:7], outputs[7]), lengths


@export("tf.parse_tensor", "tf.io.parse_tensor")
def parse_tensor(serialized: TensorLike, out_type: DTypeLike, name: str | None = None) -> Tensor:
    """The tensor in a serialised TensorProto (``tf.parse_tensor``)."""
    return parsing_ops.parse_tensor_op(serialized, out_type=out_type, name=name)


@export("tf.serialize_tensor", "tf.io.serialize_tensor")
def serialize_tensor(tensor: TensorLike, name: str | None = None) -> Tensor:
    """A tensor as a serialised TensorProto (``tf.serialize_tensor``)."""
    return parsing_ops.serialize_tensor_op(tensor, name=name)


@export("tf.decode_json_example", "tf.io.decode_json_example")
def decode_json_example(json_examples: TensorLike, name: str | None = None) -> Tensor:
    """Example messages from their JSON form (``tf.decode_json_example``)."""
    return parsing_ops.decode_json_op(json_examples, name=name)
