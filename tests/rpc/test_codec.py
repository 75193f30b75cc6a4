"""Every message survives the wire; no bytes, however wrong, get past the decoder."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfmini import dtypes
from tfmini.launch import agent_messages  # noqa: F401 - it registers its kinds
from tfmini.rpc import messages as connection
from tfmini.rpc import messages as m
from tfmini.rpc.codec import HANDSHAKE_LIMIT, decode, encode
from tfmini.rpc.records import (
    PROTOCOL_VERSION,
    REGISTRY,
    FieldKind,
    LocalProtocolError,
    RemoteProtocolError,
    Structure,
    VersionMismatchError,
    message,
)
from tfmini.rpc.tensor_wire import INLINE_LIMIT
from tfmini.shapes import TensorShape

NUMERIC = [
    np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64, np.complex128, np.bool_,
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
]  # fmt: skip
SHAPES = [(), (0,), (1,), (3, 0, 2), (7,), (5, 3), (40, 50), (3, 1000)]


def through(sent: Any, request_id: int = 5) -> Any:
    """Encodes a message and decodes it from read-only parts, as transports deliver them."""
    parts = [bytes(part) for part in encode(sent, request_id)]
    received, received_id = decode(parts)
    assert received_id == request_id
    return received


def tensors(*values: Any) -> m.SendTensors:
    return m.SendTensors(1, "2.0", 3, b"", tuple(values))


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_round_trip(dtype: Any, shape: tuple[int, ...]) -> None:
    value = (np.arange(int(np.prod(shape))) % 2).reshape(shape).astype(dtype)
    (received,) = through(tensors(value)).values
    assert received.dtype == value.dtype
    assert received.shape == shape
    assert not received.flags.writeable
    np.testing.assert_array_equal(received, value)


@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint16", "quint16", "qint32"])
def test_quantized_types_round_trip(dtype: str) -> None:
    value = np.zeros((3,), dtypes.as_dtype(dtype).numpy)
    (received,) = through(tensors(value)).values
    assert received.dtype == value.dtype


@given(st.lists(st.binary(max_size=20), max_size=12), st.booleans())
def test_strings_round_trip(items: list[bytes], as_matrix: bool) -> None:
    value = np.empty(len(items), object)
    value[:] = items
    if as_matrix:
        value = value.reshape(1, len(items))
    (received,) = through(tensors(value)).values
    assert received.shape == value.shape
    assert received.reshape(-1).tolist() == items
    assert not received.flags.writeable


@given(st.binary(max_size=20))
def test_scalar_strings_round_trip(item: bytes) -> None:
    (received,) = through(tensors(item)).values
    assert received.shape == ()
    assert received[()] == item


@given(hnp.arrays(st.sampled_from([np.float32, np.int64, np.uint8]), hnp.array_shapes(min_dims=0, min_side=0)))
def test_arrays_round_trip(value: Any) -> None:
    (received,) = through(tensors(value)).values
    np.testing.assert_array_equal(received, value)


def test_a_string_of_rank_0_travels_as_bytes() -> None:
    (found,) = through(tensors(b"a\0")).values
    assert found.shape == () and found[()] == b"a\0"


def test_layouts_and_byte_orders_are_normalised() -> None:
    base = np.arange(60_000, dtype=np.float32).reshape(200, 300)
    values = (
        base.T,
        base[::2],
        np.asfortranarray(base),
        base.astype(">f4"),
        np.float32(3),
        np.array(["é", "b"]),
    )
    received = through(tensors(*values)).values
    for sent, got in zip(values[:4], received):
        np.testing.assert_array_equal(sent, got)
        assert got.dtype == np.float32
    assert received[4].shape == ()
    assert received[5].tolist() == ["é".encode(), b"b"]


def test_large_contiguous_arrays_are_not_copied() -> None:
    value = np.zeros(100_000, ml_dtypes.bfloat16)
    parts = encode(tensors(value))
    assert np.shares_memory(np.frombuffer(parts[1], np.uint8), value)
    received = decode(parts)[0].values[0]
    assert np.shares_memory(received, value)


def test_small_arrays_travel_inside_the_header() -> None:
    assert len(encode(tensors(np.zeros(INLINE_LIMIT, np.uint8)))) == 1
    assert len(encode(tensors(np.zeros(INLINE_LIMIT + 1, np.uint8)))) == 2


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from([dtypes.float32, dtypes.string, dtypes.as_dtype("float32_ref"), dtypes.resource]),
    st.just(TensorShape(None)),
    st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=4).map(TensorShape),
)
nests = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return type(b) is list and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, TensorShape):
        return type(b) is TensorShape and a.raw == b.raw
    return type(a) is type(b) and a == b


@given(nests)
def test_structures_round_trip(nest: Any) -> None:
    assert same(nest, through(m.ListDevicesReply(nest)).devices)


def test_arrays_in_structures_round_trip() -> None:
    large = np.arange(10_000).reshape(100, 100)
    graph = {"c": [large, np.float32(2), np.array([b"s"], object)], "t": (1, 2), "empty": np.zeros((0, 3))}
    got = through(m.CreateSession(graph, b"", "")).graph
    np.testing.assert_array_equal(got["c"][0], large)
    assert got["c"][1].shape == ()
    assert got["c"][2].tolist() == [b"s"]
    assert got["t"] == [1, 2]
    assert got["empty"].shape == (0, 3)


@pytest.mark.parametrize("one", [np.float32(0.5), np.array(b"text\0", object)], ids=["number", "string"])
def test_one_value_that_fills_a_shape_travels_once(one: Any) -> None:
    parts = encode(m.CreateSession({"value": np.broadcast_to(one, (1000, 1000))}, b"", ""))
    assert sum(map(len, parts)) < 200
    got = decode([bytes(part) for part in parts])[0].graph["value"]  # type: ignore[attr-defined]
    assert got.shape == (1000, 1000) and got.strides == (0, 0) and got[999, 999] == one[()]


@pytest.mark.parametrize("cls", list(REGISTRY.values()), ids=lambda cls: cls.__name__)
def test_every_kind_round_trips(cls: Any) -> None:
    samples = {int: 2**55, str: "text", bytes: b"\0bytes", bool: True, float: 0.5}
    kinds = {FieldKind.STRINGS: ("a", "b"), FieldKind.TENSORS: (), FieldKind.STRUCTURE: {"k": [1, None]}}
    sent = cls(*[samples[f.scalar] if f.scalar else kinds[f.kind] for f in cls.row.fields])
    assert through(sent) == sent


# ---------------------------------------------------------------------------------------------
# Blame
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: m.DescribeStep("1"), "DescribeStep.step_id must be int, got str"),
        (lambda: m.DescribeStep(True), "must be int, got bool"),
        (lambda: m.DescribeStep(np.int64(1)), "must be int, got int64"),
        (lambda: m.CleanupAll(["a"]), "CleanupAll.containers must be tuple, got list"),
        (lambda: m.CleanupAll((b"a",)), "CleanupAll.containers must hold str elements, got bytes"),
        (lambda: tensors([1.0]), "SendTensors.values must hold ndarray elements, got list"),
    ],
)
def test_wrong_messages_cannot_be_built(build: Any, text: str) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        build()


@pytest.mark.parametrize(
    "bad",
    [
        m.DescribeStep(2**65),
        m.ListDevicesReply({1, 2}),
        m.ListDevicesReply(object()),
        m.ListDevicesReply("\ud800"),
        tensors(np.array([object()])),
        tensors(np.array(["2020-01-01"], "datetime64[D]")),
        tensors(np.zeros(2, [("a", "i4"), ("b", "i4")])),
    ],
    ids=lambda bad: repr(bad)[:40],
)
def test_values_that_cannot_be_sent_are_refused(bad: Any) -> None:
    with pytest.raises(LocalProtocolError):
        encode(bad)
    assert through(m.DescribeStep(1)) == m.DescribeStep(1)


def test_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        m.DescribeStep(1).step_id = 2  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        m.DescribeStep(1).other = 2  # type: ignore[attr-defined]


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match="kind 68 is DescribeStep already"):

        @message(kind=68, direction="any")
        class Again(m.Message):
            field: Structure


def header(*entries: Any) -> list[bytes]:
    return [msgpack.packb(list(entries))]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "bad message"),
        ([b""], "bad message"),
        (header(PROTOCOL_VERSION, 68), "at least three"),
        (header(PROTOCOL_VERSION, 250, 7), "unknown message kind 250"),
        (header(PROTOCOL_VERSION, [], 7), "unknown message kind"),
        (header(PROTOCOL_VERSION, 68, -7, 1), "request id"),
        (header(PROTOCOL_VERSION, 68, 7), "DescribeStep has 1 fields, got 0"),
        (header(PROTOCOL_VERSION, 68, 7, 1, 2), "DescribeStep has 1 fields, got 2"),
        (header(PROTOCOL_VERSION, 68, 7, "x"), "step_id must be int"),
        (header(PROTOCOL_VERSION, 62, 7, [b"x"]), "expected a list of strings"),
        (header(PROTOCOL_VERSION, 62, 7, "xy"), "expected a list of strings"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, 1, 2]]), "frame 1 of 1"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, 0, 2]]), "frame 0 of 1"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, b"1234567", 2]]), "too small"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, b"123456789", 2]]), "cannot be a float32 tensor"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, b"", -1, -1]]), "bad message"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, b"", 2**62, 2**62]]), "bad message"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[7, b"12345678", 1]]), "no raw bytes"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[20, b"12345678", 1]]), "no raw bytes"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[101, b"1234", 1]]), "no raw bytes"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[99, b"1234", 1]]), "bad message"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[1, ["x"], 1]]), "string tensor"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[7, ["x"], 1]]), "string tensor"),
        (header(PROTOCOL_VERSION, 96, 0, 1, 2, 3, 0, [[7, [b"x"], 2]]), "string tensor"),
        (header(PROTOCOL_VERSION, 96, 0, 1, "", 3, 0, 5), "bad message"),
        *(
            (header(PROTOCOL_VERSION, 96, 0, 1, "", 3, 0, [entry]), text)
            for entry, text in [
                ({}, "a tensor is described by"),
                ({0: 1, 1: b"aaaa"}, "a tensor is described by"),
                ("ab", "a tensor is described by"),
                ([1], "a tensor is described by"),
                (["x", b"a"], "a tensor is described by"),
                ([[1], b"a"], "a tensor is described by"),
                ([True, b"abcd"], "a tensor is described by"),
                ([1, b"abcd", True], "shape is"),
                ([1, b"abcd", 1.0], "shape is"),
                ([1, b"abcd", [1]], "shape is"),
                ([7, [b"a"] * 4, -2, -2], "shape is"),
                ([1, b"abcd", *[1] * 70], "bad message"),
                ([300, b"a"], "bad message"),
                ([1, {}], "payload is dict"),
            ]
        ),
        ([*header(PROTOCOL_VERSION, 68, 7, 1), b"spare"], "uses 0 of 1 frames"),
        (header(PROTOCOL_VERSION, 33, 7, msgpack.ExtType(77, b"x")), "unknown extension"),
    ],
)
def test_malformed_messages_are_remote_errors(parts: list[bytes], text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text) as caught:
        decode(parts)
    assert caught.value.blame == "remote"
    assert not isinstance(caught.value, VersionMismatchError)


def string_message(frame: bytes, *shape: int) -> list[bytes]:
    return [*header(PROTOCOL_VERSION, 96, 0, 1, "", 3, 0, [[7, 1, *shape]]), frame]


def lengths(*numbers: int) -> bytes:
    return np.array(numbers, np.uint64).tobytes()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (string_message(lengths(1), 2), "cannot hold 2 strings"),
        (string_message(lengths(1, 2) + b"ab", 2), "reaches beyond"),
        (string_message(lengths(1, 1) + b"abc", 2), "1 bytes too many"),
        (string_message(lengths(2**64 - 1, 3) + b"ab", 2), "reaches beyond"),
        (string_message(lengths(2, 2**64 - 1, 1) + b"ab", 3), "reaches beyond"),
        (string_message(lengths(), 2**62, 4), "cannot hold"),
    ],
)
def test_wrong_frames_of_strings_are_refused(parts: list[bytes], text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        decode(parts)


def test_large_strings_travel_in_a_frame() -> None:
    items = [b"x" * 5000, b"", b"y" * 3, bytes(1000)]
    value = np.array(items, object).reshape(2, 2)
    head, frame = encode(tensors(value))
    assert len(head) < 100 and len(frame) == 8 * 4 + 6003
    (received,) = through(tensors(value)).values
    assert received.tolist() == [items[:2], items[2:]]
    assert through(tensors(items[0])).values[0][()] == items[0]


# ---------------------------------------------------------------------------------------------
# The cost of a message
# ---------------------------------------------------------------------------------------------


def filled(kind: int, *entries: Any, last: bytes) -> bytes:
    """Frame 0 whose last entry is given packed."""
    return bytes([0x94 + len(entries), PROTOCOL_VERSION, kind, 0]) + b"".join(map(msgpack.packb, entries)) + last


def array_of(item: bytes, count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


HELLO = encode(connection.Hello(PROTOCOL_VERSION, "t", 1, "", b"", False, "", 2, 3), 1)


def test_an_unauthenticated_peer_may_send_handshakes_only() -> None:
    assert decode(HELLO, handshake=True)[0] == connection.Hello(PROTOCOL_VERSION, "t", 1, "", b"", False, "", 2, 3)
    assert decode(encode(connection.Goodbye("no")), handshake=True)[0] == connection.Goodbye("no")
    for parts, text in [
        (encode(m.Reset((), ()), 1), "expected a Hello, got Reset"),
        (encode(connection.Goodbye("x" * HANDSHAKE_LIMIT)), "expected a Hello, got 1 parts of"),
        ([*HELLO, b""], "expected a Hello, got 2 parts"),
        ([*HELLO, bytes(HANDSHAKE_LIMIT)], "expected a Hello, got 2 parts"),
        ([filled(1, last=array_of(b"\x80", 1000))], "max_array_len"),
        ([filled(1, last=b"\x81\x01\x01")], "max_map_len"),
        ([filled(1, last=b"\xc7\x01\x01a")], "max_ext_len"),
    ]:
        with pytest.raises(RemoteProtocolError, match=text):
            decode(parts, handshake=True)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (filled(96, 1, "", 3, 0, last=array_of(b"\x80", 1_200_000)), "array"),
        (filled(32, "h", last=array_of(b"\x90", 1_200_000)), "too long for ListDevices"),
        (filled(3, 1, "x" * 1_200_000, "", "", "", last=b"\xc2"), "too long for Status"),
        (filled(13, last=array_of(b"\x80", 1_200_000)), "too long for an unknown kind"),
        (array_of(b"\x80", 1_200_000), "too long for an unknown kind"),
        (filled(33, last=array_of(array_of(b"\x80", 1000), 1200)), "too many lists and maps"),
        (filled(33, last=array_of(array_of(b"\x90", 1000), 1200)), "too many lists and maps"),
    ],
)
def test_a_small_message_cannot_become_a_large_one(head: bytes, text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=text):
            decode([head])
        assert tracemalloc.get_traced_memory()[1] < 32 << 20  # not 72 bytes for each of a million
    finally:
        tracemalloc.stop()


def test_a_large_graph_passes() -> None:
    node = ["n" * 20, "Const", ["a", "b:1"], "/device:CPU:0", {"T": dtypes.float32, "s": TensorShape([1, 2])}]
    sent = m.CreateSession([node] * 20_000, b"", "t")
    assert len(encode(sent)[0]) > 1 << 20
    assert len(through(sent).graph) == 20_000


def test_a_message_beyond_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LocalProtocolError, match="Goodbye is too large: .* bytes without its tensors"):
        encode(connection.Goodbye("x" * (2 << 20)))
    monkeypatch.setattr("tfmini.rpc.codec.MESSAGE_LIMIT", 1 << 20)
    with pytest.raises(LocalProtocolError, match="SendTensors is too large: .* the limit is 1048576"):
        encode(tensors(np.zeros(1 << 18)))


def test_request_id_of_a_bad_message_is_known() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(header(PROTOCOL_VERSION, 68, 77, "x"))
    assert caught.value.request_id == 77


@pytest.mark.parametrize("version", [0, 1, PROTOCOL_VERSION + 1, "1", None, [1]])
def test_other_versions_are_detected(version: Any) -> None:
    with pytest.raises(VersionMismatchError, match=f"this process version {PROTOCOL_VERSION};"):
        decode(header(version, 6, 0, "bye", "and more"))


GENUINE = [
    encode(m.CreateSession({"nodes": [["a", dtypes.float32, TensorShape([1, None]), np.ones(3)]]}, b"c", "t"), 3),
    encode(tensors(np.array([b"x" * 3000, b"y"], object))),
    encode(tensors(np.zeros(5000), np.array([b"x"], object), np.float32(1)), 0),
    encode(m.RunStep("h", ("a",), (np.ones(2),), ("b",), ("c",), b""), 9),
]


@given(st.binary(max_size=300), st.lists(st.binary(max_size=40), max_size=3))
def test_random_bytes_raise_remote_errors_only(noise: bytes, frames: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode([noise, *frames])


@settings(max_examples=400)
@given(st.sampled_from(GENUINE), st.data())
def test_corrupt_messages_raise_remote_errors_only(genuine: list[Any], data: Any) -> None:
    parts = [bytearray(part) for part in genuine]
    for _ in range(data.draw(st.integers(1, 4))):
        head = parts[0]
        position = data.draw(st.integers(0, len(head) - 1))
        head[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del parts[0][data.draw(st.integers(0, len(parts[0]) - 1)) :]
    if data.draw(st.booleans()):
        parts[-1] = parts[-1][: data.draw(st.integers(0, len(parts[-1])))]
    with contextlib.suppress(RemoteProtocolError):
        decode([bytes(part) for part in parts])
