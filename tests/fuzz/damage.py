"""Damage to inputs of readers: flipped bytes, and changes that keep the structure and its checksums valid."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

from tfmini import protos
from tfmini.checkpoint import files as checksums
from tfmini.checkpoint import reader
from tfmini.ops.io.record_files import frame

Files = dict[str, bytes]
_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    1000,
    65535,
    1 << 20,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 31,
    1 << 32,
    700_000_000,
    1 << 40,
    (1 << 62) - 1,
    (1 << 63) - 1,
    -(1 << 63),
    (1 << 64) - 1,
)
_TEXTS = (
    "",
    "x",
    "x:0",
    "x:1",
    "x:300000000",
    "^x",
    "w",
    "a/b",
    "/job:ps/task:0",
    "/job:ps/task:300000000",
    "\0",
    "é" * 9,
    "../../etc/passwd",
    "%s{0}",
    "nan",
    "-1",
    "Const",
    "Add",
    "loc:@x",
    "T",
    "dtype",
    "[/x]",
    "x" * 3000,
)
# What the bytes in a field of a message may be: bodies of functions, collections of graphs, assets.
_PACKED = (protos.GraphDef, protos.VariableDef, protos.WhileContextDef, protos.SaverDef, protos.AssetFileDef)


def flipped(pick: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut, repeated or added anywhere."""
    found = bytearray(data)
    for _ in range(pick.choice((1, 1, 1, 2, 5))):
        at = pick.randrange(len(found) + 1)
        action = pick.randrange(7)
        if action == 0 and at < len(found):
            found[at] ^= 1 << pick.randrange(8)
        elif action == 1 and at < len(found):
            found[at] = pick.choice((0, 1, 127, 128, 255, pick.randrange(256)))
        elif action == 2:
            del found[at : at + pick.choice((1, 2, 8, 100))]
        elif action == 3:
            found[at:at] = pick.randbytes(pick.choice((1, 4, 30)))
        elif action == 4:
            found[at:at] = found[at : at + pick.choice((4, 50, 400))]
        elif action == 5:
            form = pick.choice(("<H", ">H", "<I", ">I", "<Q"))
            packed = struct.pack(form, pick.choice(_NUMBERS) % (1 << 8 * struct.calcsize(form)))
            found[at : at + len(packed)] = packed
        else:
            del found[at:]
    return bytes(found)


# ---- protobuf messages --------------------------------------------------------------------------


def message(pick: random.Random, found: Any) -> None:
    """Changes a message in place: a field at any depth gets an odd value, comes twice, or goes."""
    for _ in range(pick.choice((1, 1, 2, 4))):
        place = found
        while True:
            inner = [value for _, value in _messages_in(place)]
            if not inner or pick.random() < 0.15:
                break
            place = pick.choice(inner)
        _change(pick, place)


def _messages_in(found: Any) -> list[tuple[Any, Any]]:
    inner = []
    for field, value in found.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if _is_map(field):
            if field.message_type.fields_by_name["value"].type == field.TYPE_MESSAGE:
                inner += [(field, value[key]) for key in value]
        elif field.is_repeated:
            inner += [(field, item) for item in value]
        else:
            inner.append((field, value))
    return inner


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _change(pick: random.Random, found: Any) -> None:
    fields = found.DESCRIPTOR.fields
    if not fields:
        return
    present = [field for field, _ in found.ListFields()]
    field = pick.choice(present if present and pick.random() < 0.8 else list(fields))
    if _is_map(field):
        _change_map(pick, getattr(found, field.name))
    elif field.is_repeated:
        _change_list(pick, found, field)
    elif field.type == field.TYPE_MESSAGE:
        found.ClearField(field.name) if pick.random() < 0.5 else getattr(found, field.name).SetInParent()
    else:
        _try(lambda: setattr(found, field.name, _odd(pick, field, getattr(found, field.name))))


def _change_map(pick: random.Random, values: Any) -> None:
    keys = sorted(values)
    if not keys:
        return
    key = pick.choice(keys)
    if pick.random() < 0.4:
        del values[key]
    elif hasattr(values[key], "CopyFrom"):
        _try(lambda: values[pick.choice((*keys, *_TEXTS))].CopyFrom(values[key]))


def _change_list(pick: random.Random, found: Any, field: Any) -> None:
    values = getattr(found, field.name)
    action = pick.randrange(4)
    if values and action == 0:
        del values[pick.randrange(len(values))]
    elif field.type == field.TYPE_MESSAGE:
        values.add().CopyFrom(pick.choice(values)) if values and action < 3 else values.add()
    elif values and action < 3:
        at = pick.randrange(len(values))
        _try(lambda: values.__setitem__(at, _odd(pick, field, values[at])))
    else:
        _try(lambda: values.extend([_odd(pick, field, None)] * pick.choice((1, 1, 3, 70))))


def _odd(pick: random.Random, field: Any, before: Any) -> Any:
    if field.type == field.TYPE_STRING:
        return pick.choice((*_TEXTS, f"{before or ''}x", (before or "")[:-1]))
    if field.type == field.TYPE_BYTES:
        if before and pick.random() < 0.6:
            try:
                return changed(pick, pick.choice(_PACKED), before)
            except Exception:  # noqa: BLE001 - another message, or none
                return flipped(pick, before)
        return pick.choice((b"", b"\xff\xfe", flipped(pick, before or b"x"), pick.randbytes(40)))
    if field.type == field.TYPE_BOOL:
        return not before
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return pick.choice((0.0, -1.0, float("nan"), float("inf"), 1e300))
    if field.type == field.TYPE_ENUM:
        return pick.choice((0, 1, 3, 7, 9, 10, 14, 19, 20, 21, 22, 101, 103, 107, 77, -1))
    return pick.choice((*_NUMBERS, (before or 0) + 1, (before or 0) - 1))


def _try(change: Callable[[], Any]) -> None:
    try:
        change()
    except (ValueError, TypeError):  # the field's type cannot hold the value
        return


def changed(pick: random.Random, kind: Any, data: bytes) -> bytes:
    """The bytes of a message with changes."""
    found = kind.FromString(data)
    message(pick, found)
    return bytes(found.SerializeToString())


# ---- containers ---------------------------------------------------------------------------------


def table(pick: random.Random, data: bytes, kind_of: Callable[[bytes], Any]) -> bytes:
    """A sorted string table whose keys or values change, with valid checksums."""
    items = dict(reader.read(data))
    for _ in range(pick.choice((1, 1, 2))):
        key = pick.choice(sorted(items))
        action = pick.randrange(8)
        if action == 0:
            del items[key]
        elif action == 1:
            items[flipped(pick, key)] = items[key]
        elif action == 2:
            items[key] = flipped(pick, items[key])
        elif action == 3:
            items[key] = items[pick.choice(sorted(items))]
        else:
            try:
                items[key] = changed(pick, kind_of(key), items[key])
            except ValueError:
                items[key] = b""
            except Exception:  # noqa: BLE001 - the value is no message any more
                items[key] = flipped(pick, items[key])
        if not items:
            break
    return reader.build(sorted(items.items()))


def with_checksums(files: Files, index: str, data: str) -> Files:
    """The files of a checkpoint with the checksums of the data in its index."""
    items = dict(reader.read(files[index]))
    for key in items:
        if key:
            entry = protos.BundleEntryProto.FromString(items[key])
            piece = files[data][entry.offset : entry.offset + entry.size]
            entry.crc32c = checksums.masked(checksums.extend(0, piece))
            items[key] = entry.SerializeToString()
    return {**files, index: reader.build(sorted(items.items()))}


def records(pick: random.Random, found: list[bytes], kind: Any) -> bytes:
    """A record file with a changed record and valid checksums."""
    found = list(found)
    at = pick.randrange(len(found))
    found[at] = changed(pick, kind, found[at]) if pick.random() < 0.7 else flipped(pick, found[at])
    return b"".join(map(frame, found))


def png(pick: random.Random, data: bytes) -> bytes:
    """A PNG file with changed chunks and valid checksums."""
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    for _ in range(pick.choice((1, 1, 2))):
        at = pick.randrange(len(chunks))
        name, content = chunks[at]
        action = pick.randrange(6)
        if action == 0:
            chunks.insert(pick.randrange(len(chunks) + 1), chunks[at])
        elif action == 1:
            del chunks[at]
            chunks = chunks or [(b"IEND", b"")]
        elif action == 2:
            chunks[at] = pick.choice((b"IDAT", b"tRNS", b"PLTE", b"IHDR", b"tEXt", b"ABCD")), content
        elif name == b"IDAT":
            chunks[at] = (
                name,
                zlib.compress(
                    flipped(pick, zlib.decompress(content)) if action < 5 else bytes(pick.choice((0, 1, 1 << 20)))
                ),
            )
        else:
            chunks[at] = name, flipped(pick, content)
    return data[:8] + b"".join(_png_chunk(*chunk) for chunk in chunks)


def _png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


# ---- texts --------------------------------------------------------------------------------------


def value(pick: random.Random, found: Any) -> Any:
    """A JSON-like value with one place changed."""
    if isinstance(found, (dict, list)) and found and pick.random() < 0.75:
        key = pick.choice(sorted(found)) if isinstance(found, dict) else pick.randrange(len(found))
        copy = dict(found) if isinstance(found, dict) else list(found)
        if pick.random() < 0.15:
            del copy[key]
        elif isinstance(found, dict) and pick.random() < 0.15:
            copy[pick.choice(_TEXTS)] = copy.pop(key)
        else:
            copy[key] = value(pick, copy[key])
        return copy
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    odd = (
        None,
        True,
        -1,
        0,
        3,
        10**9,
        1 << 64,
        10**400,
        0.5,
        float("inf"),
        float("nan"),
        "",
        "x",
        "9" * 30,
        "9" * 5000,
        "a:1",
        [],
        {},
        [[]],
        {"0": "a:1"},
        {"1000000000": "a:1"},
        {"x": 1},
        [1],
        ["a:1", "a:1"],
        deep,
    )
    return pick.choice(odd)


_TOKENS = (
    "[",
    "]",
    "{",
    "}",
    "=",
    ",",
    ":",
    '"',
    "'",
    "\n",
    "\t",
    "#",
    "\\",
    "-1",
    "1e999",
    "nan",
    "inf",
    "9" * 30,
    "[" * 3000,
    '{"a":' * 3000,
    "\x00",
    "\ud7ff",
    "\U0001f600",
    "true",
    "null",
    "[1-999999999]",
    "(x999999999)",
    "x.y",
    "&a [*a]",
)


def text(pick: random.Random, data: bytes) -> bytes:
    """A text with tokens added, repeated or taken away; sometimes bytes that are no text."""
    if pick.random() < 0.2:
        return flipped(pick, data)
    found = data.decode(errors="replace")
    for _ in range(pick.choice((1, 1, 2, 4))):
        at, to = sorted((pick.randrange(len(found) + 1), pick.randrange(len(found) + 1)))
        action = pick.randrange(4)
        if action == 0:
            found = found[:at] + pick.choice(_TOKENS) + found[at:]
        elif action == 1:
            found = found[:at] + found[min(to, at + 30) :]
        elif action == 2:
            found = found[:to] + found[at : at + 60] + found[to:]
        else:
            found = found[:at] + pick.choice(_TOKENS) + found[min(at + 5, to) :]
    return found.encode(errors="replace")


def json_text(pick: random.Random, data: bytes) -> bytes:
    """The text of a JSON value with a place changed, or with changed tokens."""
    if pick.random() < 0.4:
        return text(pick, data)
    found = json.loads(data)
    for _ in range(pick.choice((1, 1, 2))):
        found = value(pick, found)
    return json.dumps(found).encode()
