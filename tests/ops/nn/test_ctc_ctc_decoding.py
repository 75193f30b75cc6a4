"""Connectionist temporal classification: decoders."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_a_beam_wide_enough_finds_the_best_labelling() -> None:
    scores = np.log(np.random.RandomState(3).dirichlet(np.ones(3), (4, 1)))  # two labels and the blank
    totals: dict[tuple[int, ...], float] = {}
    for path in np.ndindex(*[3] * 4):
        merged = tuple(c for i, c in enumerate(path) if c != 2 and (i == 0 or path[i - 1] != c))
        totals[merged] = totals.get(merged, 0.0) + float(np.exp(sum(scores[t, 0, c] for t, c in enumerate(path))))
    best = max(totals, key=lambda labels: totals[labels])
    (decoded,), probability = tf.nn.ctc_beam_search_decoder(
        scores.astype(np.float32), [4], beam_width=100, merge_repeated=False
    )
    labels, value = run([decoded.values, probability])
    assert tuple(labels.tolist()) == best and value.item() == pytest.approx(np.log(totals[best]), rel=1e-4)
