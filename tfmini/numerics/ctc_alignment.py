"""The sum over all alignments of labels with class scores (Graves et al., 2006).

In the sum all values are logarithms, and all arrays hold a whole batch, with the axes (time, batch, state),
where the states of an item are its labels with a blank before, between and after them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfmini.core_types import Array


class States(NamedTuple):
    """The states of each item and the moves between them.

    Attributes:
      classes: (batch, state) the class that a state emits.
      counts: (batch,) the number of states; the remaining entries are padding.
      stays: whether a state may follow itself.
      skips: whether a state may follow the state two places before it.
    """

    classes: Array
    counts: Array
    stays: Array
    skips: Array


def states_of(labels: list[list[int]], blank: int, merge_repeated: bool) -> States:
    """The states of a batch of label sequences."""
    counts = np.array([2 * len(sequence) + 1 for sequence in labels])
    classes = np.full((len(labels), counts.max(initial=1)), blank)
    for row, sequence in zip(classes, labels):
        row[1 : 2 * len(sequence) : 2] = sequence
    is_blank = classes == blank
    skips = ~is_blank
    skips[:, :2] = False
    if merge_repeated:
        skips[:, 2:] &= classes[:, 2:] != classes[:, :-2]
    return States(classes, counts, is_blank | merge_repeated, skips)


def negative_log_likelihood(scores: Array, states: States, lengths: Array) -> tuple[Array, Array]:
    """The loss of each item and its gradient for the scores before the softmax.

    Args:
      scores: (time, batch, class), any real numbers.
      states: of the labels.
      lengths: (batch,) the number of valid time steps.

    Returns:
      (batch,) losses, infinite where no alignment exists, and the gradient shaped like ``scores``.
    """
    log_y = scores - np.max(scores, axis=2, keepdims=True, initial=-np.inf)
    log_y = log_y - np.log(np.sum(np.exp(log_y), axis=2, keepdims=True))
    emit = np.take_along_axis(log_y, states.classes[None], axis=2)
    alpha = _forward(emit, states)
    beta = _backward(emit, states, lengths)
    last = alpha[np.maximum(lengths - 1, 0), np.arange(len(lengths))]
    ends = np.take_along_axis(last, np.stack([states.counts - 1, np.maximum(states.counts - 2, 0)], 1), axis=1)
    total = np.where(states.counts > 1, np.logaddexp(ends[:, 0], ends[:, 1]), ends[:, 0])
    shares = np.exp(alpha + beta - np.where(np.isneginf(total), 0, total)[None, :, None])
    grad = np.exp(log_y)
    for item, classes in enumerate(states.classes):
        count = states.counts[item]
        chosen = np.zeros((count, scores.shape[2]), scores.dtype)
        chosen[np.arange(count), classes[:count]] = 1
        grad[:, item] -= shares[:, item, :count] @ chosen
    unused = np.arange(len(scores))[:, None] >= lengths
    grad[unused] = 0
    return np.where(lengths > 0, -total, 0).astype(scores.dtype), grad


def _forward(emit: Array, states: States) -> Array:
    """log P(labels emitted up to t, and the state at t)."""
    alpha = np.full(emit.shape, -np.inf, emit.dtype)
    if len(emit):
        alpha[0, :, :2] = emit[0, :, :2]
        alpha[0, states.counts < 2, 1:] = -np.inf
    stay, skip = _weights(states.stays, emit), _weights(states.skips, emit)
    for t in range(1, len(emit)):
        before = alpha[t - 1]
        step = before + stay
        np.logaddexp(step[:, 1:], before[:, :-1], out=step[:, 1:])
        np.logaddexp(step[:, 2:], before[:, :-2] + skip[:, 2:], out=step[:, 2:])
        np.add(step, emit[t], out=alpha[t])
    return alpha


def _backward(emit: Array, states: States, lengths: Array) -> Array:
    """log P(labels emitted after t, given the state at t)."""
    beta = np.full(emit.shape, -np.inf, emit.dtype)
    position = np.arange(emit.shape[2])
    ends = (position == states.counts[:, None] - 1) | (position == states.counts[:, None] - 2)
    final = np.where(ends, 0, -np.inf).astype(emit.dtype)
    stay, skip = _weights(states.stays, emit), _weights(states.skips, emit)
    step = np.full(emit.shape[1:], -np.inf, emit.dtype)
    for t in reversed(range(len(emit))):
        if t + 1 < len(emit):
            after = step + emit[t + 1]
            step = after + stay
            np.logaddexp(step[:, :-1], after[:, 1:], out=step[:, :-1])
            np.logaddexp(step[:, :-2], after[:, 2:] + skip[:, 2:], out=step[:, :-2])
        step = np.where((lengths == t + 1)[:, None], final, step)
        beta[t] = step
    return beta


def _weights(allowed: Array, like: Array) -> Array:
    return np.where(allowed, 0, -np.inf).astype(like.dtype)
