"""Embeddings of sequences, maxout and gradient scaling (``tf.contrib.layers``)."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.layers.contrib.model_variables import model_variable
from tfmini.layers.contrib.named_outputs import collect_named_outputs
from tfmini.ops.array.gather import gather, gather_nd
from tfmini.ops.array.index_sets import unique as unique_of
from tfmini.ops.array.joining import concat
from tfmini.ops.array.masking import where
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.gradients.custom_gradient import custom_gradient
from tfmini.ops.math.comparison import not_equal
from tfmini.ops.math.reduce_functions import reduce_max, reduce_mean
from tfmini.ops.nn.embedding import embedding_lookup, safe_embedding_lookup_sparse
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.ops.variables.scope import variable_scope
from tfmini.shapes import TensorShape


def _embeddings(shape: Any, initializer: Any, regularizer: Any, trainable: bool) -> Any:
    return model_variable(
        "embeddings", shape=shape, initializer=initializer, regularizer=regularizer, trainable=trainable
    )


@export("tf.contrib.layers.embedding_lookup_unique", "tf.contrib.slim.layers.embedding_lookup_unique")
def embedding_lookup_unique(params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None) -> Tensor:
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
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
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
    ids: Any,
    vocab_size: int,
    embed_dim: int,
    sparse_lookup: bool = True,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
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
def dense_to_sparse(tensor: Any, eos_token: Any = 0, outputs_collections: Any = None, scope: Any = None) -> Any:
    """The elements that are not ``eos_token``, as a `SparseTensor` (``tf.contrib.layers.dense_to_sparse``)."""
    with variable_scope(scope, "dense_to_sparse", [tensor]) as opened:
        tensor = convert_to_tensor(tensor)
        places = where(not_equal(tensor, convert_to_tensor(eos_token, dtype=tensor.dtype)))
        sparse = SparseTensor(places, gather_nd(tensor, places), shape_of(tensor, out_type=dtypes.int64))
        return collect_named_outputs(outputs_collections, opened.name, sparse)


@export("tf.contrib.layers.maxout", "tf.contrib.slim.maxout", "tf.contrib.slim.layers.maxout")
@add_arg_scope
def maxout(inputs: Any, num_units: int, axis: int = -1, scope: Any = None) -> Tensor:
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
def scale_gradient(inputs: Any, gradient_multiplier: Any) -> Tensor:
    """The identity, with its gradient multiplied by a factor (``tf.contrib.layers.scale_gradient``)."""

    @custom_gradient
    def scaled(value: Any) -> Any:
        return value, lambda grad: grad * gradient_multiplier

    return scaled(inputs)  # type: ignore[no-any-return]
