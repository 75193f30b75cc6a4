"""The CTC loss: ``tf.nn.ctc_loss``, ``tf.nn.ctc_loss_v2``, and functions that prepare labels."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.deprecated_arguments import either
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.numerics.ctc_alignment import Array, negative_log_likelihood, states_of
from tfmini.ops.array.casting import cast
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.identity import prevent_gradient
from tfmini.ops.array.index_sets import unique
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.masking import boolean_mask, sequence_mask
from tfmini.ops.array.scatter import scatter_nd
from tfmini.ops.array.shape import expand_dims, shape
from tfmini.ops.array.transpose import transpose
from tfmini.ops.flow.functional import map_fn
from tfmini.ops.math.comparison import less, not_equal, where
from tfmini.ops.math.reduce_functions import reduce_max, reduce_sum
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.shapes import RawShape, merge_raw, with_rank

_ATTRS = (
    "; preprocess_collapse_repeated: bool = false; ctc_merge_repeated: bool = true"
    "; ignore_longer_outputs_than_inputs: bool = false"
)
_INPUTS = (
    "(inputs: {0}, labels_indices: int64, labels_values: int32, sequence_length: int32) -> loss: {0}, gradient: {0}"
)
ctc_loss_op = op("CTCLoss" + _INPUTS.format("T") + _ATTRS + "; T: {float32, float64} = DT_FLOAT")
# TensorFlow has this op only on GPUs. Its blank is class 0, and an item may have no labels.
ctc_loss_v2_op = op("CTCLossV2" + _INPUTS.format("float32") + _ATTRS)


@all_of(ctc_loss_op, ctc_loss_v2_op).shape
def _shape(node: Operation) -> list[RawShape]:
    scores, indices, values, lengths = (t.raw_shape for t in node.inputs)
    time, batch, classes = with_rank(scores, 3)
    merge_raw(with_rank(values, 1), with_rank(indices, 2)[:1])
    batch = merge_raw((batch,), with_rank(lengths, 1))[0]  # type: ignore[index]
    return [(batch,), (time, batch, classes)]


@ctc_loss_op.kernel("CPU")
def _kernel(
    scores: Array, indices: Array, values: Array, lengths: Array, *, preprocess_collapse_repeated: bool,
    ctc_merge_repeated: bool, ignore_longer_outputs_than_inputs: bool,
) -> tuple[Array, Array]:  # fmt: skip
    labels = _label_lists(scores, indices, values, lengths)
    empty = next((i for i, sequence in enumerate(labels) if not sequence), None)
    if empty is not None:
        refuse(f"Labels length is zero in batch {empty}")
    blank = scores.shape[2] - 1
    for item, sequence in enumerate(labels):
        labels[item] = _checked(sequence, item, blank, preprocess_collapse_repeated)
    return _losses(scores, labels, blank, lengths, ctc_merge_repeated, ignore_longer_outputs_than_inputs)


@ctc_loss_v2_op.kernel("CPU")
def _v2_kernel(
    scores: Array, indices: Array, values: Array, lengths: Array, *, preprocess_collapse_repeated: bool,
    ctc_merge_repeated: bool, ignore_longer_outputs_than_inputs: bool,
) -> tuple[Array, Array]:  # fmt: skip
    labels = _label_lists(scores, indices, values, lengths)
    for item, sequence in enumerate(labels):
        if any(not 0 <= label < scores.shape[2] for label in sequence):
            refuse(f"A label of batch {item} is no class in [0, {scores.shape[2]})")
    return _losses(scores, labels, 0, lengths, ctc_merge_repeated, True)


def _label_lists(scores: Array, indices: Array, values: Array, lengths: Array) -> list[list[int]]:
    time, batch, _ = scores.shape
    if not batch:
        refuse("batch_size must not be 0")
    long = next((i for i, length in enumerate(lengths.tolist()) if length > time), None)
    if long is not None:
        refuse(f"sequence_length({long}) <= {time}")
    labels: list[list[int]] = [[] for _ in range(batch)]
    for (item, _), value in zip(indices.tolist(), values.tolist()):
        if not 0 <= item < batch:
            refuse(f"label batch index {item} is not in [0, {batch})")
        labels[item].append(value)
    return labels


def _checked(sequence: list[int], item: int, blank: int, collapse: bool) -> list[int]:
    """The labels of an item up to the first null label."""
    found: list[int] = []
    ended = False
    for i, label in enumerate(sequence):
        if collapse and i and label == sequence[i - 1]:
            continue
        if label < 0:
            refuse(f"All labels must be nonnegative integers, batch: {item} labels: {','.join(map(str, sequence))}")
        if label >= blank:
            ended = True
        elif ended:
            refuse(
                "Saw a non-null label (index >= num_classes - 1) following a null label, batch:"
                f" {item} num_classes: {blank + 1} labels: {','.join(map(str, sequence))}"
            )
        else:
            found.append(label)
    return found


def _losses(
    scores: Array, labels: list[list[int]], blank: int, lengths: Array, merge_repeated: bool, ignore_longer: bool
) -> tuple[Array, Array]:
    longer = [len(sequence) > length for sequence, length in zip(labels, lengths.tolist())]
    if any(longer) and not ignore_longer:
        item = longer.index(True)
        refuse(
            f"Not enough time for target transition sequence (required: {len(labels[item])}, available:"
            f" {lengths[item]})You can turn this error into a warning by using the flag"
            " ignore_longer_outputs_than_inputs"
        )
    loss, grad = negative_log_likelihood(scores, states_of(labels, blank, merge_repeated), lengths)
    if any(longer) and blank != 0:
        loss[longer] = 0
        grad[:, longer] = 0
    return loss, grad


@all_of(ctc_loss_op, ctc_loss_v2_op).gradient
def _gradient(node: Operation, grad: Tensor, _: Any) -> list[Any]:
    own = prevent_gradient(
        node.outputs[1],
        message="Currently there is no way to take the second  derivative of ctc_loss due to the fused"
        " implementation's interaction  with tf.gradients()",
    )
    return [expand_dims(expand_dims(grad, 0), -1) * own, None, None, None]


@export("tf.nn.ctc_loss")
def ctc_loss(
    labels: Any, inputs: Any = None, sequence_length: Any = None, preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True, ignore_longer_outputs_than_inputs: bool = False, time_major: bool = True,
    logits: Any = None,
) -> Tensor:  # fmt: skip
    """The connectionist temporal classification loss (``tf.nn.ctc_loss``), float32 or float64 of shape (batch,).

    Args:
      labels: int32 `SparseTensor` (batch, position); the last class is the blank.
      inputs: scores before the softmax, (time, batch, class).
      sequence_length: int32 (batch,), the number of valid time steps of each item.
      preprocess_collapse_repeated: drop repeated labels first.
      ctc_merge_repeated: whether repeated classes of an alignment without a blank between them are one label.
      ignore_longer_outputs_than_inputs: items with more labels than time steps have loss 0 instead of an error.
      time_major: False: the inputs are (batch, time, class).
      logits: another name of ``inputs``.

    Raises:
      TypeError: when the labels are not a `SparseTensor`.
      InvalidArgumentError: in the step, for labels that do not fit.
    """
    if not isinstance(labels, SparseTensor):
        raise TypeError("Expected labels (first argument) to be a SparseTensor")
    scores = convert_to_tensor(either("logits", logits, "inputs", inputs))
    loss, _ = ctc_loss_op(
        scores if time_major else transpose(scores, [1, 0, 2]), labels.indices, labels.values, sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated, ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
    )  # fmt: skip
    return loss  # type: ignore[no-any-return]


@export("tf.nn.ctc_loss_v2")
def ctc_loss_v2(
    labels: Any, logits: Any, label_length: Any, logit_length: Any, logits_time_major: bool = True, unique: Any = None,
    blank_index: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The CTC loss of dense or sparse labels (``tf.nn.ctc_loss_v2``).

    Args:
      labels: int32 (batch, position) with ``label_length``, or a `SparseTensor`.
      logits: float32 (time, batch, class) before the softmax.
      label_length: (batch,), None for sparse labels.
      logit_length: (batch,), the number of valid time steps of each item.
      logits_time_major: False: the logits are (batch, time, class).
      unique: the result of `ctc_unique_labels`; it saves no work in tfmini.
      blank_index: the blank class; a negative number counts from the end. Default for dense labels: 0.

    Raises:
      ValueError: for sparse labels without ``blank_index``.
    """
    del unique
    with name_scope(name, "ctc_loss_dense", [logits, labels]):
        scores = convert_to_tensor(logits, name="logits")
        if not logits_time_major:
            scores = transpose(scores, [1, 0, 2])
        classes = scores.shape[2].value
        if isinstance(labels, SparseTensor) and blank_index is None:
            raise ValueError("blank_index must be given when using SparseTensor labels.")
        blank = (blank_index or 0) % classes
        if isinstance(labels, SparseTensor):
            return _sparse_v2(labels, scores, logit_length, blank, classes)
        labels = convert_to_tensor(labels, dtype=dtypes.int32, name="labels")
        if blank:
            scores = concat([scores[:, :, blank : blank + 1], scores[:, :, :blank], scores[:, :, blank + 1 :]], axis=2)
            labels = where(less(labels, blank), labels + 1, labels)
        used = sequence_mask(label_length, shape(labels)[1])
        lengths = convert_to_tensor(logit_length, dtype=dtypes.int32)
        loss, _ = ctc_loss_v2_op(scores, where(used), boolean_mask(labels, used), lengths)
        return loss  # type: ignore[no-any-return]


def _sparse_v2(labels: SparseTensor, scores: Tensor, lengths: Any, blank: int, classes: int) -> Tensor:
    if blank != classes - 1:
        scores = concat([scores[:, :, :blank], scores[:, :, blank + 1 :], scores[:, :, blank : blank + 1]], axis=2)
        values = where(less(labels.values, blank), labels.values, labels.values - 1)
        labels = SparseTensor(labels.indices, values, labels.dense_shape)
    return ctc_loss(labels, scores, lengths)


@export("tf.nn.ctc_unique_labels")
def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The distinct labels of each row, and each label's position among them (``tf.nn.ctc_unique_labels``).

    Args:
      labels: (batch, position).

    Returns:
      The distinct labels as int64, padded with zeros, and the position of each label; both shaped like ``labels``.
    """
    with name_scope(name, "ctc_unique_labels", [labels]):
        labels = convert_to_tensor(labels, name="labels")

        def of_row(row: Tensor) -> list[Any]:
            found = unique(row)
            size = shape(row, out_type=dtypes.int64)
            places = expand_dims(where(sequence_mask(shape(found.y)))[:, 1], 1)
            return [scatter_nd(places, cast(found.y, dtypes.int64), size), found.idx]

        found = map_fn(of_row, labels, dtype=[dtypes.int64, dtypes.int32])
        return found[0], found[1]


@export("tf.nn.collapse_repeated")
def collapse_repeated(labels: Any, seq_length: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Labels without repetitions of neighbours (``tf.nn.collapse_repeated``).

    Args:
      labels: (batch, position).
      seq_length: (batch,), the number of valid labels of each row.

    Returns:
      The collapsed labels, padded with zeros, and their number in each row.
    """
    with name_scope(name, "collapse_repeated_labels", [labels, seq_length]):
        labels = convert_to_tensor(labels, name="labels")
        seq_length = convert_to_tensor(seq_length, name="seq_length")
        differs = not_equal(labels[:, 1:], labels[:, :-1])
        used = sequence_mask(seq_length, shape(labels)[1])
        kept = concat([ones_like(labels[:, :1], dtype=dtypes.bool), differs], axis=1) & used
        lengths = reduce_sum(cast(kept, dtypes.int32), axis=1)
        places = where(sequence_mask(lengths, reduce_max(lengths)))
        size = concat([shape(labels)[:1], expand_dims(reduce_max(lengths), 0)], axis=0)
        values = boolean_mask(labels, kept)
        collapsed = scatter_nd(places, values, cast(size, dtypes.int64))
        collapsed.set_shape([labels.shape[0], None])
        return collapsed, cast(lengths, seq_length.dtype)
