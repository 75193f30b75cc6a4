"""The rules that oneDNN computes equal those of numpy bit by bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tfmini.numerics import onednn, onednn_kernels, update_rules

SIZE = update_rules.ONEDNN_ELEMENTS + 3
CASES: list[tuple[Any, int, list[float], dict[str, bool]]] = [
    (update_rules.gradient_descent, 0, [0.1], {}),
    *((update_rules.momentum, 1, [0.1, 0.9], {"use_nesterov": nesterov}) for nesterov in (False, True)),
    *((update_rules.adagrad, 1, [0.1], {"update_slots": slots}) for slots in (False, True)),
    *((update_rules.adagrad_v2, 1, [0.1, 1e-7], {"update_slots": slots}) for slots in (False, True)),
    *((update_rules.adam, 2, [0.9, 0.999, 1e-3, 0.9, 0.999, 1e-8], {"use_nesterov": n}) for n in (False, True)),
    (update_rules.rms_prop, 2, [0.1, 0.9, 0.5, 1e-10], {}),
]


def initial(slots: int) -> list[Any]:
    """The variable and its slots, positive, and a gradient with special values."""
    random = np.random.default_rng(0)
    arrays = [random.random(SIZE, np.float32) for _ in range(1 + slots)]
    grad = random.normal(size=SIZE).astype(np.float32)
    grad[:7] = [np.nan, np.inf, -np.inf, 0, -0.0, 1e-42, 3e38]
    arrays[-1][3:5] = 0
    return [*arrays, grad]


@pytest.mark.skipif(onednn.library() is None, reason="oneDNN is missing (pip install onednn-cpu-gomp)")
@pytest.mark.parametrize("block", [1 << 20, 200_000])
@pytest.mark.parametrize("rule,slots,hyper,attrs", CASES)
def test_a_rule_equals_numpys(
    rule: Any, slots: int, hyper: list[float], attrs: dict[str, bool], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_rules, "ONEDNN_BLOCK", block)
    onednn.limit_threads(2)
    bound = functools.partial(rule, **attrs) if attrs else rule
    numbers = [np.float32(value) for value in hyper]
    *ours, grad = initial(slots)
    calls: list[int] = []
    original = onednn_kernels.OperationChain.__call__

    def counted(chain: Any, *arguments: Any) -> None:
        calls.append(1)
        original(chain, *arguments)

    monkeypatch.setattr(onednn_kernels.OperationChain, "__call__", counted)
    with np.errstate(all="ignore"):
        for _ in range(3):
            update_rules.run_blockwise(bound, ours, grad, numbers)
        assert calls
        monkeypatch.setattr(update_rules, "ONEDNN_ELEMENTS", 1 << 40)
        *wanted, _ = initial(slots)
        for _ in range(3):
            update_rules.run_blockwise(bound, wanted, grad, numbers)
    for a, b in zip(ours, wanted):
        np.testing.assert_array_equal(a, b)
