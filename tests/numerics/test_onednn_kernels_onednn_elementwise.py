"""Chains of element-wise operations by oneDNN equal numpy's bit by bit, on one thread and on several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.numerics import onednn
from tfmini.numerics.onednn_kernels import accepts, run

pytestmark = pytest.mark.skipif(
    onednn.library() is None, reason="oneDNN is missing (pip install onednn-cpu-gomp)"
)  # fmt: skip
OPERATIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-45, 3e38, -3e38, 1.0], np.float32)


@pytest.fixture(params=[1, 2], autouse=True)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = onednn._threads
    onednn.limit_threads(request.param)
    yield
    onednn._threads = before


def by_numpy(a: Any, steps: Any) -> Any:
    """The chain in numpy."""
    result = a
    rest = list(steps)
    with np.errstate(all="ignore"):
        while rest:
            step = rest.pop(0)
            result = np.sqrt(result) if step == "sqrt" else OPERATIONS[step](result, rest.pop(0))
    return result


def chains(size: int, seed: int, names: Any) -> Any:
    """The operations with operands behind those that take one: arrays and numbers, special values included."""
    random = np.random.default_rng(seed)
    steps: list[Any] = []
    for name in names:
        steps.append(name)
        if name != "sqrt":
            number = np.float32(random.normal())
            steps.append(number if random.random() < 0.4 else values(random, size))
    return steps


def values(random: Any, size: int) -> Any:
    """Random numbers with a few special values between them."""
    array = random.normal(size=size).astype(np.float32)
    array[random.random(size) < 0.1] = random.choice(EDGES)
    return array


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 7, 8, 31, 64, 1000, 70_001]),
    st.integers(0, 1000),
    st.sampled_from(sorted(OPERATIONS)),
    st.lists(st.sampled_from([*OPERATIONS, "sqrt"]), max_size=5),
)
def test_a_chain_equals_numpys(size: int, seed: int, first: str, others: list[str]) -> None:
    a = values(np.random.default_rng(seed), size)
    steps = chains(size, seed + 1, [first, *others])
    target = np.empty_like(a)
    run(target, a, *steps)
    np.testing.assert_array_equal(target, by_numpy(a, steps))


@pytest.mark.parametrize("size", [5, 300_000])
def test_the_target_may_be_an_operand(size: int) -> None:
    random = np.random.default_rng(0)
    a, b = values(random, size), values(random, size)
    wanted = by_numpy(a, ["subtract", b, "multiply", np.float32(0.1), "add", b])
    run(b, a, "subtract", b, "multiply", np.float32(0.1), "add", b)
    np.testing.assert_array_equal(b, wanted)


def test_other_arrays_are_left_to_numpy() -> None:
    good = np.ones((4, 6), np.float32)
    assert accepts(good, good)
    assert not accepts(good, good.astype(np.float64))
    assert not accepts(good.T)
    assert not accepts(good[:, :0])
