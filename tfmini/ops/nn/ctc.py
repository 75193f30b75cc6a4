"""The CTC loss: ``tf.nn.ctc_loss``, ``tf.nn.ctc_loss_v2``, and functions that prepare labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import FailedPreconditionError
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.numerics.ctc_alignment import negative_log_likelihood, states_of
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.gather import scatter_nd
from tfmini.ops.array.identity import cast, prevent_gradient
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.partition import boolean_mask, sequence_mask, unique
from tfmini.ops.array.shape import expand_dims, shape
from tfmini.ops.composites import SparseTensor
from tfmini.ops.flow.functional import map_fn
from tfmini.ops.math.comparison import less, not_equal, where
from tfmini.ops.math.reductions import reduce_max, reduce_sum
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
def _gradient(node: Operation, grad: Tensor, _: object) -> list[Any]:
    own = prevent_gradient(
        node.outputs[1],
        message="Currently there is no way to take the second  derivative of ctc_loss due to the fused"
        " implementation's interaction  with tf.gradients()",
    )
    return [expand_dims(expand_dims(grad, 0), -1) * own, None, None, None]


@export("tf.nn.ctc_loss")
def ctc_loss(
    labels: TensorLike,
    inputs: TensorLike | None = None,
    sequence_length: TensorLike | None = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: TensorLike | None = None,
) -> Tensor:
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
    labels: TensorLike, logits: TensorLike, label_length: TensorLike, logit_length: TensorLike,
    logits_time_major: bool = True, unique: TensorLike | None = None, blank_index: int | None = None,
    name: str | None = None,
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


def _sparse_v2(labels: SparseTensor, scores: Tensor, lengths: TensorLike, blank: int, classes: int) -> Tensor:
    if blank != classes - 1:
        scores = concat([scores[:, :, :blank], scores[:, :, blank + 1 :], scores[:, :, blank : blank + 1]], axis=2)
        values = where(less(labels.values, blank), labels.values, labels.values - 1)
        labels = SparseTensor(labels.indices, values, labels.dense_shape)
    return ctc_loss(labels, scores, lengths)


@export("tf.nn.ctc_unique_labels")
def ctc_unique_labels(labels: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]:
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
def collapse_repeated(labels: TensorLike, seq_length: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]:
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


# ---- Decoders of CTC: greedy and beam search, from class scores to label sequences ---------------------------------

Prefix = tuple[int, ...]

_T = "T: {float32, float64} = DT_FLOAT"
greedy_op: OpHandle[Any] = op(
    "CTCGreedyDecoder(inputs: T, sequence_length: int32) -> decoded_indices: int64, decoded_values: int64,"
    f" decoded_shape: int64, log_probability: T; merge_repeated: bool = false; {_T}",
    differentiable=False,
)
greedy_op.shape(lambda node: [(None, 2), (None,), (2,), (_batch(node), 1)])
beam_search_op: OpHandle[Any] = op(
    "CTCBeamSearchDecoder(inputs: T, sequence_length: int32) -> decoded_indices: top_paths * int64,"
    " decoded_values: top_paths * int64, decoded_shape: top_paths * int64, log_probability: T;"
    f" beam_width: int >= 1; top_paths: int >= 1; merge_repeated: bool = true; {_T}",
    differentiable=False,
)


def _batch(node: Operation) -> int | None:
    scores, lengths = (t.raw_shape for t in node.inputs)
    return merge_raw((with_rank(scores, 3)[1],), with_rank(lengths, 1))[0]  # type: ignore[index]


@beam_search_op.shape
def _beam_shape(node: Operation) -> list[RawShape]:
    paths = node.attrs["top_paths"]
    return [(None, 2)] * paths + [(None,)] * paths + [(2,)] * paths + [(_batch(node), paths)]


def _check_lengths(scores: Array, lengths: Array) -> None:
    if lengths.shape != scores.shape[1:2]:
        raise FailedPreconditionError.of("len(sequence_length) != batch_size.")
    for item, length in enumerate(lengths.tolist()):
        if length > len(scores):
            raise FailedPreconditionError.of(f"sequence_length({item}) <= {len(scores)}")


def _sparse(rows: list[Prefix]) -> tuple[Array, Array, Array]:
    """Indices, values and shape of label sequences, one per row."""
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    values = np.array([label for row in rows for label in row], np.int64)
    size = np.array([len(rows), max(map(len, rows), default=0)], np.int64)
    return np.array(indices, np.int64).reshape(-1, 2), values, size


@greedy_op.kernel("CPU")
def _greedy_kernel(scores: Array, lengths: Array, *, merge_repeated: bool) -> tuple[Array, ...]:
    if scores.ndim != 3:
        refuse(f"inputs is not a 3-Tensor: {list(scores.shape)}")
    _check_lengths(scores, lengths)
    best, blank = scores.argmax(axis=2), scores.shape[2] - 1
    used = np.arange(len(scores))[:, None] < lengths
    probability = -np.sum(np.where(used, scores.max(axis=2), 0), axis=0, dtype=scores.dtype)
    kept = used & (best != blank)
    if merge_repeated:
        kept[1:] &= best[1:] != best[:-1]
    rows = [tuple(best[kept[:, item], item].tolist()) for item in range(scores.shape[1])]
    return (*_sparse(rows), probability[:, None])


@beam_search_op.kernel("CPU")
def _beam_kernel(
    scores: Array, lengths: Array, *, beam_width: int, top_paths: int, merge_repeated: bool
) -> tuple[Array, ...]:
    _check_lengths(scores, lengths)
    if top_paths > beam_width:
        refuse("requested more paths than the beam width.")
    paths: list[list[Prefix]] = [[] for _ in range(top_paths)]
    probabilities = np.zeros((scores.shape[1], top_paths), scores.dtype)
    for item, length in enumerate(lengths.tolist()):
        beams = _search(scores[:length, item], beam_width)
        if len(beams) < top_paths:
            refuse("Less leaves in the beam search than requested.")
        for path, (prefix, probability) in enumerate(beams[:top_paths]):
            paths[path].append(_merged(prefix) if merge_repeated else prefix)
            probabilities[item, path] = probability
    parts = [_sparse(rows) for rows in paths]
    return (*(p[0] for p in parts), *(p[1] for p in parts), *(p[2] for p in parts), probabilities)


def _merged(prefix: Prefix) -> Prefix:
    return tuple(label for i, label in enumerate(prefix) if i == 0 or label != prefix[i - 1])


def _search(scores: Array, width: int) -> list[tuple[Prefix, float]]:
    """The most probable label sequences and their log probabilities, best first.

    A beam is a label sequence with two log probabilities: of its alignments that end in a blank, and of
    those that end in its last label.

    Args:
      scores: (time, class) before the softmax; the last class is the blank.
    """
    log_y = scores - scores.max(axis=1, keepdims=True, initial=-np.inf)
    log_y = log_y - np.log(np.exp(log_y).sum(axis=1, keepdims=True))
    prefixes: list[Prefix] = [()]
    blank, label = np.zeros(1), np.full(1, -np.inf)
    for row in log_y.astype(np.float64):
        prefixes, blank, label = _step(prefixes, blank, label, row, width)
    total = np.logaddexp(blank, label)
    return [(prefixes[i], float(total[i])) for i in np.argsort(-total, kind="stable")]


def _step(
    prefixes: list[Prefix], blank: Array, label: Array, row: Array, width: int
) -> tuple[list[Prefix], Array, Array]:
    """One time step: extends each sequence by no label or one label, and keeps the best ``width`` sequences."""
    place = {prefix: i for i, prefix in enumerate(prefixes)}
    total = np.logaddexp(blank, label)
    last = np.array([prefix[-1] if prefix else -1 for prefix in prefixes])
    # (beam, class): a repeated label is a new one only after a blank.
    grown = np.where(np.arange(len(row) - 1) == last[:, None], blank[:, None], total[:, None]) + row[:-1]
    stay_blank = total + row[-1]
    stay_label = np.where(last >= 0, label + row[last], -np.inf)
    for i, prefix in enumerate(prefixes):
        parent = place.get(prefix[:-1]) if prefix else None
        if parent is not None:
            stay_label[i] = np.logaddexp(stay_label[i], grown[parent, prefix[-1]])
            grown[parent, prefix[-1]] = -np.inf
    scored = np.concatenate([np.logaddexp(stay_blank, stay_label), grown.ravel()])
    best = np.argsort(-scored, kind="stable")[:width]
    best = best[np.isfinite(scored[best])]
    stays = best < len(prefixes)
    parents, classes = np.divmod(best - len(prefixes), len(row) - 1)
    found = [prefixes[i] if stay else (*prefixes[p], int(c)) for i, stay, p, c in zip(best, stays, parents, classes)]
    kept = np.where(stays, best, 0)
    return found, np.where(stays, stay_blank[kept], -np.inf), np.where(stays, stay_label[kept], scored[best])


@export("tf.nn.ctc_greedy_decoder")
def ctc_greedy_decoder(
    inputs: TensorLike, sequence_length: TensorLike, merge_repeated: bool = True
) -> tuple[list[Any], Tensor]:
    """The best class of each time step (``tf.nn.ctc_greedy_decoder``).

    Args:
      inputs: scores (time, batch, class); the last class is the blank.
      sequence_length: int32 (batch,).
      merge_repeated: whether repetitions without a blank between them are one label.

    Returns:
      A list of one int64 `SparseTensor` (batch, position), and the negative sum of the best scores, (batch, 1).
    """
    indices, values, size, probability = greedy_op(inputs, sequence_length, merge_repeated=merge_repeated)
    return [SparseTensor(indices, values, size)], probability


@export("tf.nn.ctc_beam_search_decoder")
def ctc_beam_search_decoder(
    inputs: TensorLike,
    sequence_length: TensorLike,
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
) -> tuple[list[Any], Tensor]:
    """The most probable label sequences (``tf.nn.ctc_beam_search_decoder``).

    Args:
      inputs: scores (time, batch, class); the last class is the blank.
      sequence_length: int32 (batch,).
      beam_width: the number of sequences that the search keeps.
      top_paths: the number of sequences to return.
      merge_repeated: whether to remove repeated labels from the result, even if a blank separated them.

    Returns:
      A list of ``top_paths`` int64 `SparseTensor` (batch, position), and log probabilities (batch, top_paths).
    """
    indices, values, sizes, probability = beam_search_op(
        inputs, sequence_length, beam_width=beam_width, top_paths=top_paths, merge_repeated=merge_repeated
    )
    return [SparseTensor(i, v, s) for i, v, s in zip(indices, values, sizes)], probability


@export("tf.nn.ctc_beam_search_decoder_v2")
def ctc_beam_search_decoder_v2(
    inputs: TensorLike, sequence_length: TensorLike, beam_width: int = 100, top_paths: int = 1
) -> tuple[list[Any], Tensor]:
    """`ctc_beam_search_decoder` without merging (``tf.nn.ctc_beam_search_decoder_v2``)."""
    return ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, merge_repeated=False)
