"""Regularizers, initializers, embeddings and summaries of ``tf.contrib.layers``; the summaries and sizes of slim."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, GraphTensor, ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, get_collection, name_scope
from tfmini.layers.contrib.model_variables import add_arg_scope, collect_named_outputs, model_variable
from tfmini.ops import random_functions as random_values
from tfmini.ops.array.constant import constant
from tfmini.ops.array.gather import gather, gather_nd
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import unique as unique_of
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.composites import SparseTensor
from tfmini.ops.custom_gradient import custom_gradient
from tfmini.ops.debugging import Print
from tfmini.ops.math.comparison import greater, less, not_equal
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.math.reductions import reduce_max, reduce_mean, reduce_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.nn.batch_norm import l2_loss
from tfmini.ops.nn.embedding import embedding_lookup, safe_embedding_lookup_sparse
from tfmini.ops.nn.normalization import zero_fraction
from tfmini.ops.summary import histogram, image, scalar
from tfmini.ops.variables.scope import VariableScope, variable_scope
from tfmini.ops.variables.store import ReuseLike
from tfmini.shapes import TensorShape

Regularizer = Callable[[Any], Any]


def _nothing(_: object) -> None:
    return None


def _checked(scale: float) -> float:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"scale cannot be an integer: {scale}")  # noqa: TRY004 - TensorFlow's class
    if scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale}")
    return float(scale)


@export(
    "tf.contrib.layers.l1_regularizer", "tf.contrib.slim.l1_regularizer", "tf.contrib.slim.regularizers.l1_regularizer"
)
def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """``scale`` times the sum of absolute values (``tf.contrib.layers.l1_regularizer``)."""
    if _checked(scale) == 0.0:
        return _nothing

    def l1(weights: GraphTensor, name: str | None = None) -> Tensor:
        with name_scope(scope, "l1_regularizer", [weights]) as opened:
            factor = constant(scale, dtype=weights.dtype.base_dtype, name="scale")
            return multiply(factor, reduce_sum(absolute(weights)), name=name or opened)

    return l1


@export(
    "tf.contrib.layers.l2_regularizer", "tf.contrib.slim.l2_regularizer", "tf.contrib.slim.regularizers.l2_regularizer"
)
def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """``scale`` times half the sum of squares (``tf.contrib.layers.l2_regularizer``).

    Args:
      scale: a number, at least 0.
      scope: the name scope of the ops.

    Returns:
      A function from a variable to a scalar loss, for ``regularizer=``.
    """
    if _checked(scale) == 0.0:
        return _nothing

    def l2(weights: GraphTensor) -> Tensor:
        with name_scope(scope, "l2_regularizer", [weights]) as opened:
            factor = constant(scale, dtype=weights.dtype.base_dtype, name="scale")
            return multiply(factor, l2_loss(convert_to_tensor(weights)), name=opened)

    return l2


@export(
    "tf.contrib.layers.l1_l2_regularizer",
    "tf.contrib.slim.l1_l2_regularizer",
    "tf.contrib.slim.regularizers.l1_l2_regularizer",
)
def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Any:
    """The sum of an L1 and an L2 regularizer (``tf.contrib.layers.l1_l2_regularizer``)."""
    if _checked(scale_l1) == 0.0:
        return l2_regularizer(scale_l2, scope)
    if _checked(scale_l2) == 0.0:
        return l1_regularizer(scale_l1, scope)
    name = scope or "l1_l2_regularizer"
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=name)


@export("tf.contrib.layers.sum_regularizer", "tf.contrib.slim.regularizers.sum_regularizer")
def sum_regularizer(regularizer_list: Iterable[Regularizer | None], scope: str | None = None) -> Any:
    """The sum of several regularizers, or None if there are none (``tf.contrib.layers.sum_regularizer``)."""
    regularizers = [r for r in regularizer_list if r is not None]
    if not regularizers:
        return None

    def total(weights: TensorLike) -> Any:
        with name_scope(scope, "sum_regularizer", [weights]) as opened:
            losses = [loss for loss in (r(weights) for r in regularizers) if loss is not None]
            return add_n(losses, name=opened) if losses else None

    return total


@export(
    "tf.contrib.layers.apply_regularization",
    "tf.contrib.slim.apply_regularization",
    "tf.contrib.slim.regularizers.apply_regularization",
)
def apply_regularization(regularizer: Regularizer, weights_list: Sequence[TensorLike] | None = None) -> Tensor:
    """Sums a regularizer over weights (default: WEIGHTS) and adds the sum to REGULARIZATION_LOSSES.

    ``tf.contrib.layers.apply_regularization``; raises ValueError if there are no weights.
    """
    weights = weights_list or get_collection(GraphKeys.WEIGHTS)
    if not weights:
        raise ValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty", values=weights) as opened:
        losses = [loss for loss in (regularizer(w) for w in weights) if loss is not None]
        penalty = add_n(losses, name=opened) if losses else constant(0.0)
    add_to_collection(GraphKeys.REGULARIZATION_LOSSES, penalty)
    return penalty


@export(
    "tf.contrib.layers.xavier_initializer",
    "tf.contrib.slim.xavier_initializer",
    "tf.contrib.slim.initializers.xavier_initializer",
)
def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: DTypeLike = dtypes.float32) -> Any:
    """The Glorot (Xavier) initializer (``tf.contrib.layers.xavier_initializer``)."""
    return variance_scaling_initializer(factor=1.0, mode="FAN_AVG", uniform=uniform, seed=seed, dtype=dtype)


xavier_initializer_conv2d = xavier_initializer


@export(
    "tf.contrib.layers.variance_scaling_initializer",
    "tf.contrib.slim.variance_scaling_initializer",
    "tf.contrib.slim.initializers.variance_scaling_initializer",
)
def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: DTypeLike = dtypes.float32,
) -> Any:
    """Random values of variance ``factor / n`` (``tf.contrib.layers.variance_scaling_initializer``).

    Args:
      mode: the meaning of n: "FAN_IN", "FAN_OUT" or "FAN_AVG".
      uniform: draw from a uniform rather than a truncated normal distribution.

    Raises:
      TypeError: when the mode is unknown or the dtype is not floating point.
    """
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    def initializer(shape: Any, dtype: DTypeLike = kind, partition_info: Any = None) -> Tensor:
        count = _fan(shape if partition_info is None else partition_info.full_shape, mode)
        if uniform:
            limit = math.sqrt(3.0 * factor / count)
            return random_values.random_uniform(shape, -limit, limit, dtype or kind, seed=seed)
        # A normal distribution truncated at two standard deviations has about 1 / 1.3 of the variance.
        deviation = math.sqrt(1.3 * factor / count)
        return random_values.truncated_normal(shape, 0.0, deviation, dtype or kind, seed=seed)

    return initializer


def _fan(shape: Sequence[int], mode: str) -> float:
    sizes = [float(size) for size in shape]
    if not sizes:
        return 1.0
    field = math.prod(sizes[:-2])
    fan_in, fan_out = sizes[-2 if len(sizes) > 1 else -1] * field, sizes[-1] * field
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]


export_names("tf.contrib.layers tf.contrib.slim tf.contrib.slim.initializers", "xavier_initializer_conv2d")


# ---- Embeddings of sequences, maxout and gradient scaling (``tf.contrib.layers``) ----------------------------------


def _embeddings(
    shape: ShapeLike, initializer: Callable[..., Any] | None, regularizer: Callable[..., Any] | None, trainable: bool
) -> Any:
    return model_variable(
        "embeddings", shape=shape, initializer=initializer, regularizer=regularizer, trainable=trainable
    )


@export("tf.contrib.layers.embedding_lookup_unique", "tf.contrib.slim.layers.embedding_lookup_unique")
def embedding_lookup_unique(
    params: TensorLike, ids: TensorLike, partition_strategy: str = "mod", name: str | None = None
) -> Tensor:
    """`tf.nn.embedding_lookup` that looks each id up once (``tf.contrib.layers.embedding_lookup_unique``)."""
    with variable_scope(name, "EmbeddingLookupUnique", [params, ids]):
        ids = convert_to_tensor(ids)
        different, places = unique_of(reshape(ids, [-1]))
        rows = gather(embedding_lookup(params, different, partition_strategy), places)
        found = reshape(rows, concat([shape_of(ids), shape_of(rows)[1:]], 0))
        found.set_shape(TensorShape(ids.shape).concatenate(rows.shape[1:]))
        return found


@export("tf.contrib.layers.embed_sequence", "tf.contrib.slim.layers.embed_sequence")
def embed_sequence(
    ids: TensorLike,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Callable[..., Any] | None = None,
    regularizer: Callable[..., Any] | None = None,
    trainable: bool = True,
    scope: str | VariableScope | None = None,
    reuse: ReuseLike = None,
) -> Tensor:
    """The embeddings of each id: ``[batch, length, embed_dim]`` (``tf.contrib.layers.embed_sequence``).

    Args:
      ids: ``[batch, length]``.
      unique: whether each distinct id is looked up only once.
      initializer, regularizer, trainable: arguments of the variable ``embeddings``.

    Raises:
      ValueError: when a size is missing, unless the variable is reused.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            "Must specify vocab size and embedding dimension when not reusing."
            f" Got vocab_size={vocab_size} and embed_dim={embed_dim}"
        )
    with variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = None if vocab_size is None or embed_dim is None else [vocab_size, embed_dim]
        table = _embeddings(shape, initializer, regularizer, trainable)
        return (embedding_lookup_unique if unique else embedding_lookup)(table, ids)


@export("tf.contrib.layers.bow_encoder", "tf.contrib.slim.layers.bow_encoder")
def bow_encoder(
    ids: TensorLike,
    vocab_size: int,
    embed_dim: int,
    sparse_lookup: bool = True,
    initializer: Callable[..., Any] | None = None,
    regularizer: Callable[..., Any] | None = None,
    trainable: bool = True,
    scope: str | VariableScope | None = None,
    reuse: ReuseLike = None,
) -> Tensor:
    """The mean of the embeddings of a document: ``[batch, embed_dim]`` (``tf.contrib.layers.bow_encoder``).

    Args:
      ids: ``[batch, length]``, dense or sparse.
      sparse_lookup: treat the id 0 as padding, which is left out of the mean.
      The others are those of `embed_sequence`.
    """
    if not vocab_size or not embed_dim:
        raise ValueError("Must specify vocab size and embedding dimension")
    with variable_scope(scope, "bow_encoder", [ids], reuse=reuse):
        table = _embeddings([vocab_size, embed_dim], initializer, regularizer, trainable)
        if sparse_lookup:
            given = ids if isinstance(ids, SparseTensor) else dense_to_sparse(ids)
            return safe_embedding_lookup_sparse([table], given, combiner="mean", default_id=0)
        if isinstance(ids, SparseTensor):
            raise TypeError(f"ids are expected to be dense Tensor, got: {ids}")
        return reduce_mean(embedding_lookup(table, ids), axis=1)


@export("tf.contrib.layers.dense_to_sparse", "tf.contrib.slim.layers.dense_to_sparse")
@add_arg_scope
def dense_to_sparse(
    tensor: GraphTensor,
    eos_token: TensorLike = 0,
    outputs_collections: str | Sequence[str] | None = None,
    scope: str | VariableScope | None = None,
) -> Any:
    """The elements that are not ``eos_token``, as a `SparseTensor` (``tf.contrib.layers.dense_to_sparse``)."""
    with variable_scope(scope, "dense_to_sparse", [tensor]) as opened:
        tensor = convert_to_tensor(tensor)
        places = where(not_equal(tensor, convert_to_tensor(eos_token, dtype=tensor.dtype)))
        sparse = SparseTensor(places, gather_nd(tensor, places), shape_of(tensor, out_type=dtypes.int64))
        return collect_named_outputs(outputs_collections, opened.name, sparse)


@export("tf.contrib.layers.maxout", "tf.contrib.slim.maxout", "tf.contrib.slim.layers.maxout")
@add_arg_scope
def maxout(inputs: TensorLike, num_units: int, axis: int = -1, scope: str | VariableScope | None = None) -> Tensor:
    """The maximum of groups of features (``tf.contrib.layers.maxout``).

    Args:
      num_units: number of features of the result; it must divide the number of features of the inputs.
    """
    with variable_scope(scope, "MaxOut", [inputs]):
        inputs = convert_to_tensor(inputs)
        known = inputs.shape.as_list()
        axis %= len(known)
        features = known[axis]
        if features is None or features % num_units:
            raise ValueError(f"number of features({features}) is not a multiple of num_units({num_units})")
        sizes = shape_of(inputs)
        lengths = [sizes[i] if size is None else size for i, size in enumerate(known)]
        split = [*lengths[:axis], num_units, features // num_units, *lengths[axis + 1 :]]
        outputs = reduce_max(reshape(inputs, split), axis=axis + 1)
        outputs.set_shape([*known[:axis], num_units, *known[axis + 1 :]])
        return outputs


@export("tf.contrib.layers.scale_gradient", "tf.contrib.slim.scale_gradient", "tf.contrib.slim.layers.scale_gradient")
def scale_gradient(inputs: TensorLike, gradient_multiplier: TensorLike) -> Tensor:
    """The identity, with its gradient multiplied by a factor (``tf.contrib.layers.scale_gradient``)."""

    @custom_gradient
    def scaled(value: TensorLike) -> Any:
        return value, lambda grad: grad * gradient_multiplier

    return scaled(inputs)  # type: ignore[no-any-return]


# ---- Summaries of tensors and collections (``tf.contrib.layers.summarize_…``, ``tf.contrib.slim.summaries``) -------


def _share(condition: Tensor) -> Tensor:
    return reduce_mean(cast(condition, dtypes.float32))


@export("tf.contrib.layers.summarize_activation", "tf.contrib.layers.summaries.summarize_activation")
def summarize_activation(op: Tensor) -> Tensor:
    """A histogram summary; for a relu also the fraction of zeros, for a relu6 also that of values clipped at 6."""
    source, name = op.op, op.op.name
    if source.type in ("Relu", "Softplus", "Relu6"):
        before = source.inputs[0]
        scalar(f"{name}/zeros", _share(less(before, convert_to_tensor(0, dtype=before.dtype))))
    if source.type == "Relu6":
        scalar(f"{name}/sixes", _share(greater(source.inputs[0], convert_to_tensor(6, dtype=source.inputs[0].dtype))))
    return histogram(f"{name}/activation", op)


@export("tf.contrib.layers.summarize_tensor", "tf.contrib.layers.summaries.summarize_tensor")
def summarize_tensor(tensor: GraphTensor, tag: str | None = None) -> Tensor | None:
    """A summary of a scalar or a histogram of another tensor; None for strings and booleans."""
    if tensor.dtype.base_dtype in (dtypes.string, dtypes.bool):
        return None
    tag = tag or f"{tensor.op.name}_summary"
    return scalar(tag, tensor) if tensor.shape.ndims == 0 else histogram(tag, tensor)


@export("tf.contrib.layers.summarize_tensors", "tf.contrib.layers.summaries.summarize_tensors")
def summarize_tensors(tensors: Iterable[Any], summarizer: Callable[[Any], Any] = summarize_tensor) -> list[Any]:
    """The summaries of several tensors."""
    return [summarizer(tensor) for tensor in tensors]


@export("tf.contrib.layers.summarize_collection", "tf.contrib.layers.summaries.summarize_collection")
def summarize_collection(
    collection: str, name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_tensor
) -> list[Any]:
    """The summaries of a collection's tensors whose op names match the regular expression at their start."""
    wanted = [t for t in get_collection(collection) if name_filter is None or re.match(name_filter, t.op.name)]
    return summarize_tensors(wanted, summarizer)


@export("tf.contrib.layers.summarize_activations", "tf.contrib.layers.summaries.summarize_activations")
def summarize_activations(
    name_filter: str | None = None, summarizer: Callable[[Any], Any] = summarize_activation
) -> list[Any]:
    """`summarize_collection` of ACTIVATIONS."""
    return summarize_collection(GraphKeys.ACTIVATIONS, name_filter, summarizer)


summarize_variables = partial(summarize_collection, GraphKeys.GLOBAL_VARIABLES)
summarize_weights = partial(summarize_collection, GraphKeys.WEIGHTS)
summarize_biases = partial(summarize_collection, GraphKeys.BIASES)


# ---- tf.contrib.slim.summaries ------------------------------------------------------------------


def _name(tensor: GraphTensor, name: str | None, prefix: str | None, ending: str = "") -> str:
    """``prefix/name/ending``; by default the name is the op's."""
    whole = name or tensor.op.name
    return (f"{prefix}/{whole}" if prefix else whole) + (f"/{ending}" if ending else "")


def _printed(summary: Tensor, tensor: GraphTensor, name: str, print_summary: bool) -> Tensor:
    if print_summary:
        add_to_collection(GraphKeys.SUMMARIES, Print(summary, [tensor], name))
    return summary


@export("tf.contrib.slim.summaries.add_histogram_summary")
def add_histogram_summary(tensor: GraphTensor, name: str | None = None, prefix: str | None = None) -> Tensor:
    """A histogram summary named ``prefix/name``."""
    return histogram(_name(tensor, name, prefix), tensor)


@export("tf.contrib.slim.summaries.add_image_summary")
def add_image_summary(
    tensor: GraphTensor, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Tensor:
    """An image summary named ``prefix/name``; ``print_summary`` also prints the tensor."""
    name = _name(tensor, name, prefix)
    return _printed(image(name, tensor), tensor, name, print_summary)


@export("tf.contrib.slim.summaries.add_scalar_summary")
def add_scalar_summary(
    tensor: GraphTensor, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Tensor:
    """A scalar summary named ``prefix/name``; ``print_summary`` also prints the tensor."""
    name = _name(tensor, name, prefix)
    return _printed(scalar(name, tensor), tensor, name, print_summary)


@export("tf.contrib.slim.summaries.add_zero_fraction_summary")
def add_zero_fraction_summary(
    tensor: GraphTensor, name: str | None = None, prefix: str | None = None, print_summary: bool = False
) -> Tensor:
    """A summary of the fraction of zeros, named ``prefix/name/Fraction of Zero Values``."""
    name = _name(tensor, name, prefix, "Fraction of Zero Values")
    return add_scalar_summary(zero_fraction(tensor), name, print_summary=print_summary)


@export("tf.contrib.slim.summaries.add_histogram_summaries")
def add_histogram_summaries(tensors: Iterable[Any], prefix: str | None = None) -> list[Tensor]:
    """`add_histogram_summary` for each tensor."""
    return [add_histogram_summary(tensor, prefix=prefix) for tensor in tensors]


@export("tf.contrib.slim.summaries.add_image_summaries")
def add_image_summaries(tensors: Iterable[Any], prefix: str | None = None) -> list[Tensor]:
    """`add_image_summary` for each tensor."""
    return [add_image_summary(tensor, prefix=prefix) for tensor in tensors]


@export("tf.contrib.slim.summaries.add_scalar_summaries")
def add_scalar_summaries(
    tensors: Iterable[Any], prefix: str | None = None, print_summary: bool = False
) -> list[Tensor]:
    """`add_scalar_summary` for each tensor."""
    return [add_scalar_summary(tensor, prefix=prefix, print_summary=print_summary) for tensor in tensors]


@export("tf.contrib.slim.summaries.add_zero_fraction_summaries")
def add_zero_fraction_summaries(tensors: Iterable[Any], prefix: str | None = None) -> list[Tensor]:
    """`add_zero_fraction_summary` for each tensor."""
    return [add_zero_fraction_summary(tensor, prefix=prefix) for tensor in tensors]


export_names("tf.contrib.layers tf.contrib.layers.summaries", "summarize_biases summarize_variables summarize_weights")


# ---- ``tf.contrib.slim.model_analyzer``: the sizes of a graph's tensors and of variables ---------------------------

_RULE = "---------"


@export("tf.contrib.slim.model_analyzer.tensor_description")
def tensor_description(var: GraphTensor) -> str:
    """The type and shape of a variable or tensor, as in ``(float32 1x8x8x1024)``."""
    return f"({var.dtype.name} {'x'.join(map(str, var.shape))})"


def _heading(text: str) -> None:
    print(_RULE, text, _RULE, sep="\n")


@export("tf.contrib.slim.model_analyzer.analyze_ops")
def analyze_ops(graph: Graph, print_info: bool = False) -> int:
    """The total number of elements of all ops' outputs; outputs of unknown shape count 0.

    Args:
      print_info: whether to print a line per op.
    """
    if print_info:
        _heading("Operations: name -> (type shapes) [size]")
    total = 0
    for op in graph.get_operations():
        size = sum(output.shape.num_elements() or 0 for output in op.outputs)
        if print_info:
            shapes = ", ".join(tensor_description(output) for output in op.outputs if output.shape)
            print(op.name, "\t->", shapes, f"[{size}]")
        total += size
    return total


@export("tf.contrib.slim.model_analyzer.analyze_vars")
def analyze_vars(variables: Iterable[Any], print_info: bool = False) -> tuple[int, int]:
    """The total (number of elements, bytes) of variables.

    Args:
      print_info: whether to print a line per variable and the totals.
    """
    if print_info:
        _heading("Variables: name (type shape) [size]")
    elements = octets = 0
    for variable in variables:
        size = variable.shape.num_elements() or 0
        if print_info:
            print(variable.name, tensor_description(variable), f"[{size}, bytes: {size * variable.dtype.size}]")
        elements, octets = elements + size, octets + size * variable.dtype.size
    if print_info:
        print(f"Total size of variables: {elements}")
        print(f"Total bytes of variables: {octets}")
    return elements, octets
