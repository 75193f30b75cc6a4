"""Small tensors of one type and shape are described together; what arrives does not depend on that."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini import dtypes
from tfmini.rpc import messages as m
from tfmini.rpc.codec import decode, encode
from tfmini.rpc.records import PROTOCOL_VERSION, RemoteProtocolError
from tfmini.rpc.tensor_wire import (
    INLINE_LIMIT,
    STACK_FROM,
    STACK_LIMIT,
    STACKED_LEAST,
    STACKED_MOST,
    restore_tensors,
)


def described(values: list[Any]) -> list[Any]:
    """The descriptions of the values in frame 0."""
    return list(msgpack.unpackb(encode(m.RunGraphReply(tuple(values)))[0])[3])


def through(values: list[Any]) -> tuple[Any, ...]:
    """The values after a journey."""
    received, _ = decode([bytes(part) for part in encode(m.RunGraphReply(tuple(values)))])
    assert isinstance(received, m.RunGraphReply)
    return received.values


def assert_same(received: tuple[Any, ...], sent: list[Any]) -> None:
    assert len(received) == len(sent)
    for one, other in zip(received, sent):
        assert type(one) is np.ndarray and not one.flags.writeable
        assert (one.dtype, one.shape) == (np.asarray(other).dtype, np.shape(other))
        np.testing.assert_array_equal(one, other)


def test_neighbours_of_one_type_and_shape_share_a_description() -> None:
    sent = [np.full(10, i, np.float32) for i in range(100)]
    entries = described(sent)
    assert [entry[0] for entry in entries] == [-1] and entries[0][2:] == [100, 10]
    assert_same(through(sent), sent)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, ml_dtypes.bfloat16, np.complex128, np.float16, np.bool_])
@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (0,), (2, 0, 3), (INLINE_LIMIT,)])
def test_runs_of_all_sizes_arrive(dtype: Any, shape: tuple[int, ...]) -> None:
    sent = [np.full(shape, i % 2, dtype) for i in range(3 * STACK_FROM)]
    assert_same(through(sent), sent)
    is_stacked = STACKED_LEAST <= sent[0].nbytes <= INLINE_LIMIT
    assert (len(described(sent)) < len(sent)) == is_stacked


def test_a_stack_is_limited() -> None:
    """A tensor that is kept keeps its stack."""
    sent = [np.full(100, i, np.float32) for i in range(200)]
    entries = described(sent)
    assert max(len(entry[1]) for entry in entries) <= STACK_LIMIT < sum(len(entry[1]) for entry in entries)
    assert_same(through(sent), sent)


def test_few_neighbours_are_described_one_by_one() -> None:
    sent = [np.zeros(4, np.float32)] * (STACK_FROM - 1) + [np.zeros(5, np.float32)]
    assert [entry[0] for entry in described(sent)] == [1] * STACK_FROM
    assert_same(through(sent), sent)


def test_views_are_sent_row_by_row() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    sent = [base.T[:, i % 4] for i in range(9)] + [np.broadcast_to(np.float32(i), (6,)) for i in range(9)]
    assert_same(through(sent), sent)
    sent = [base.T] * 9
    assert_same(through(sent), sent)


def test_other_byte_orders_and_quantized_types_arrive() -> None:
    sent = [np.full(3, i, ">i4") for i in range(9)]
    received = through(sent)
    assert {value.dtype for value in received} == {np.dtype(np.int32)}
    assert [value.tolist() for value in received] == [value.tolist() for value in sent]
    quantized = [np.zeros(4, dtypes.qint32.numpy)] * 9
    assert {value.dtype for value in through(quantized)} == {dtypes.qint32.numpy}


VALUES = st.sampled_from(
    [np.zeros(9, np.float32), np.ones((2,) * 6, np.int32), np.ones((), np.int32), np.float64(3), b"text",
     np.array([b"a", b""], object),
     np.zeros(700, np.float32), np.zeros((0, 4), np.int8), np.ones(2, np.int8)]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, st.integers(1, 12)), max_size=8))
def test_mixtures_arrive_in_order(runs: list[tuple[Any, int]]) -> None:
    sent = [value for value, count in runs for _ in range(count)]
    received = through(sent)
    assert len(received) == len(sent)
    for one, other in zip(received, sent):
        assert one.shape == np.shape(other)
        assert one.tolist() == np.asarray(other, object if isinstance(other, bytes) else None).tolist()


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ([-1], "bad message"),
        ([-1, b""], "a stack of tensors is described by"),
        ([-1, b"abcd"], "a stack of tensors is described by"),
        ([-1, 1, 1], "a stack of tensors is described by"),
        ([-7, [b"a"], 1], "a stack of tensors is described by"),
        ([-7, b"12345678", 1], "no raw bytes"),
        ([-300, b"abcd", 1], "bad message"),
        ([-1, b"abcd", -1], "shape is"),
        ([-1, b"abcd", True], "shape is"),
        ([-1, b"abcd", 2], "too small"),
        ([-1, b"abcdefgh", 1], "cannot be"),
        ([-1, b"", 2**40, 0], "a stack of 1099511627776 tensors has 0 bytes"),
        ([-6, b"abcd", 4], "a stack of 4 tensors has 4 bytes"),
        ([-1, bytes(124), 31], "a stack of 31 tensors has 124 bytes"),
        ([-1, bytes(64), 16, *[1] * 60], "has 64 bytes and 61 sizes"),
        ([-1, bytes(STACK_LIMIT + 32), STACK_LIMIT // 32 + 1, 8], "has 16416 bytes and 2 sizes"),
    ],
)
def test_malformed_stacks_are_refused(entry: list[Any], text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        decode([msgpack.packb([PROTOCOL_VERSION, 59, 7, [entry]])])


def test_the_tensors_of_stacks_are_counted() -> None:
    """Else 64 MB could become millions of arrays."""
    rows = STACK_LIMIT // STACKED_LEAST
    entry = [-6, bytes(STACK_LIMIT), rows, STACKED_LEAST]
    with pytest.raises(ValueError, match="more than 1048576 tensors"):
        restore_tensors([entry] * (STACKED_MOST // rows + 1), [], [])
