"""Decoders of CTC: greedy and beam search, from class scores to label sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.errors import FailedPreconditionError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.shapes import RawShape, merge_raw, with_rank

Array = np.ndarray[Any, Any]
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
def ctc_greedy_decoder(inputs: Any, sequence_length: Any, merge_repeated: bool = True) -> tuple[list[Any], Tensor]:
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
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = True
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
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1
) -> tuple[list[Any], Tensor]:
    """`ctc_beam_search_decoder` without merging (``tf.nn.ctc_beam_search_decoder_v2``)."""
    return ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, merge_repeated=False)
