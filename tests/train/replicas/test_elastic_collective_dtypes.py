"""Collectives of every dtype: the right values, or a refusal that names a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.train.replicas.elastic import Ranks

MOVED = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bfloat16", "float16",
    "float32", "float64", "complex64", "complex128",
]  # fmt: skip
SUMMED = [name for name in MOVED if name != "bool"]


@pytest.fixture(autouse=True)
def _same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ranks build in one graph here; in graphs of their own their keys would be counted alike."""
    monkeypatch.setattr(Ranks, "_identity", lambda ranks, name: (name, (ranks.size, ranks.group_key, 1)))


def run_both(make: Callable[[Ranks], Any]) -> list[Any]:
    with tf.Graph().as_default():
        outs = []
        for rank in range(2):
            with tf.device(f"/cpu:{rank}"):
                outs.append(make(Ranks(2, rank, device=f"/cpu:{rank}")))
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            return session.run(outs)


def extremes(name: str) -> np.ndarray:
    """Values whose every byte counts."""
    dtype = tf.as_dtype(name).as_numpy_dtype
    if name == "bool":
        return np.array([True, False, True])
    if tf.as_dtype(name).is_integer:
        return np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 3], dtype)
    values = np.array([1 / 3, -7e4 / 3, 0], np.float64)
    return (values + 1j * values[::-1] if tf.as_dtype(name).is_complex else values).astype(dtype)


@pytest.mark.parametrize("name", MOVED)
def test_broadcast_and_gather_keep_every_bit(name: str) -> None:
    values = extremes(name)
    sent = run_both(lambda ranks: ranks.broadcast(tf.constant(values) if ranks.rank else tf.zeros([3], name), 1))
    for value in sent:
        assert value.dtype == values.dtype and value.tobytes() == values.tobytes()
    for value in run_both(lambda ranks: ranks.all_gather(tf.constant(values[ranks.rank :]))):
        assert value.tobytes() == np.concatenate([values, values[1:]]).tobytes()


@pytest.mark.parametrize("name", SUMMED)
def test_sums_are_those_of_the_dtype(name: str) -> None:
    values = extremes(name)
    with np.errstate(over="ignore"):
        expected = values + values[::-1]
    for value in run_both(lambda ranks: ranks.all_reduce(tf.constant(values[:: 1 - 2 * ranks.rank].copy()))):
        assert value.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", [n for n in SUMMED if n != "uint64"])
def test_means_are_exact_or_refused(name: str) -> None:
    values = np.array([1, 7, 10]).astype(tf.as_dtype(name).as_numpy_dtype)
    expected = values if tf.as_dtype(name).is_integer else values + values.dtype.type(0.5)

    def make(ranks: Ranks) -> Any:
        return ranks.all_reduce(tf.constant(values + values.dtype.type(ranks.rank)), mean=True)

    for value in run_both(make):
        assert value.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("merge", "expected"), [("Add", [1, 1, 0]), ("Max", [1, 1, 0]), ("Mul", [1, 0, 0]), ("Min", [1, 0, 0])]
)
def test_booleans_are_any_or_all(merge: str, expected: list[int]) -> None:
    flags = [[True, True, False], [True, False, False]]
    for value in run_both(lambda ranks: ranks.all_reduce(tf.constant(flags[ranks.rank]), merge=merge)):
        assert value.dtype == bool and value.tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("uint64", {"mean": True}, "no mean of uint64.*cast it to int64 or float64"),
        ("uint64", {"merge": "Max"}, "no reduction by Max of uint64.*cast it"),
        ("complex64", {"merge": "Mul"}, "no reduction by Mul of complex64.*gather"),
        ("bool", {"mean": True}, "no mean of bool.*cast it to float32"),
        ("string", {}, "of type string: encode it"),
        ("qint8", {}, "of type qint8: tf.cast or tf.bitcast"),
    ],
)
def test_reductions_that_would_be_wrong_are_refused(name: str, options: dict[str, Any], text: str) -> None:
    with tf.Graph().as_default(), pytest.raises(TypeError, match=text):
        Ranks(2, 0).all_reduce(tf.placeholder(name, [2], "x"), **options)
    if name in ("string", "qint8"):
        with tf.Graph().as_default(), pytest.raises(TypeError, match=text):
            Ranks(2, 0).broadcast(tf.placeholder(name, [2], "x"))


def test_dtypes_of_equal_wire_format_are_distinguished() -> None:
    def make(ranks: Ranks) -> Any:
        return ranks.all_reduce(tf.zeros([2], tf.bfloat16 if ranks.rank else tf.float32), "x")

    with pytest.raises(tf.errors.FailedPreconditionError, match=r"Dtype mismatch.*(float32|bfloat16)\[2\]"):
        run_both(make)
