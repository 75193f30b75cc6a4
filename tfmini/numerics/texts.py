"""Text of values as TensorFlow prints them, regular expressions of string ops (RE2's), and hashes of strings."""

from __future__ import annotations

import functools
import math
import re
import struct
from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.memory import check_room

_ESCAPES = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}


def element_text(value: Any) -> str:
    """One element's text: floats with the fewest digits that read back equal, bools as 0 and 1, strings escaped."""
    if isinstance(value, bytes):
        return "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in value)
    dtype = np.asarray(value).dtype
    if dtype.kind == "b":
        return "1" if value else "0"
    if dtype.kind in "iu":
        return str(int(value))
    if dtype == np.float64:
        return _float_text(float(value), np.float64, 15, 17)
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return _float_text(float(value), np.float32, 6, 9)
    return "?"


def _float_text(value: float, kind: type, few: int, many: int) -> str:
    text = f"{value:.{few}g}"
    return text if kind(text) == value or math.isnan(value) else f"{value:.{many}g}"


def summary(value: TensorLike, limit: int) -> str:
    """The first ``limit`` elements (negative: all) with their dimensions in brackets, then ``...``."""
    array = np.asarray(value)
    limit = array.size if limit < 0 else limit
    flat = array.ravel()
    parts: list[str] = []
    if array.size:
        if array.ndim == 0:
            parts.append(element_text(flat[0]) if limit else "")
        else:
            _summarize(flat, array.shape, 0, 0, limit, parts)
    return "".join(parts) + ("..." if array.size > limit else "")


def _summarize(flat: Array, shape: tuple[int, ...], dim: int, done: int, limit: int, parts: list[str]) -> int:
    """Adds the text of one dimension; returns how many elements have been printed."""
    for i in range(shape[dim]):
        if done >= limit:
            if dim == len(shape) - 1 and dim:
                parts.append("...")
            break
        if dim == len(shape) - 1:
            parts.append((" " if i else "") + element_text(flat[done]))
            done += 1
        else:
            parts.append("[")
            done = _summarize(flat, shape, dim + 1, done, limit, parts)
            parts.append("]")
    return done


def edges_text(value: TensorLike, edge: int) -> str:
    """All dimensions in brackets, one row per line; a long dimension shows its first and last ``edge`` elements."""
    array = np.asarray(value)
    return _edges(array, 0, array.shape[0] if edge < 0 and array.ndim else edge, edge < 0)


def _edges(array: TensorLike, depth: int, edge: int, everything: bool) -> str:
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        item = array[()] if isinstance(array, np.ndarray) else array
        return f'"{element_text(item)}"' if isinstance(item, bytes) else element_text(item)
    count = len(array)
    shown = range(count)
    if everything or count <= 2 * edge:
        items = [_edges(array[i], depth + 1, edge, everything) for i in shown]
    else:
        items = [_edges(array[i], depth + 1, edge, everything) for i in shown[:edge]]
        items.append("...")
        items += [_edges(array[i], depth + 1, edge, everything) for i in shown[count - edge :]]
    separator = " " if array.ndim == 1 else "\n" * (array.ndim - 1) + " " * (depth + 1)
    return "[" + separator.join(items) + "]"


# ---- Regular expressions of TensorFlow's string ops: RE2's syntax and its rules for replacing ----------------------
# RE2 takes time that is linear in the text, whatever the pattern: Python's ``re`` can take for ever, with the
# interpreter held, so it never sees a pattern of a graph. RE2 is imported by the first pattern.

_LOOK_FROM = 64 << 20  # bytes of a result after which, and after each doubling, it is asked whether there is room


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


@functools.lru_cache(maxsize=256)
def compiled(pattern: bytes) -> Any:
    """The pattern as an object with `search`, `fullmatch` and ``groups``.

    Raises:
      PatternError: it is wrong.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def replaced(pattern: re.Pattern[bytes], text: bytes, rewrite: bytes, everywhere: bool) -> bytes:
    r"""``text`` with matches of a compiled pattern replaced.

    Args:
      rewrite: the new text; ``\0`` to ``\9`` stand for the match and its groups, ``\\`` for a backslash. It ends at
        another escape. A group that the pattern does not have is empty.
      everywhere: whether to replace all matches or the first. An empty match directly after a match does not count.
        With another escape, the first is not replaced.

    Raises:
      MemoryError: there is no room for the result.
    """
    pieces = re.split(rb"\\(.|$)", rewrite, flags=re.DOTALL)
    if not everywhere and not all(code.isdigit() or code == b"\\" for code in pieces[1::2]):
        return text
    out, at, last, total, room = [], 0, -1, 0, _LOOK_FROM
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        start, end = match.span()
        if start == end == last:  # go on behind the next character
            step = _width(text, at)
            out.append(text[at : at + step])
            at, last = at + step, -1
            continue
        out += [text[at:start], _expanded(pieces, match)]
        at = last = end
        total += len(out[-1])
        if total > room:
            check_room((total,), 1)
            room = 2 * total
        if not everywhere:
            break
    out.append(text[at:])
    check_room((total,), 1)
    return b"".join(out)


def _expanded(pieces: list[bytes], match: re.Match[bytes]) -> bytes:
    out = [pieces[0]]
    for code, rest in zip(pieces[1::2], pieces[2::2]):
        if code == b"\\":
            out.append(code)
        elif code.isdigit():
            out.append((match.group(int(code)) or b"") if int(code) <= match.re.groups else b"")
        else:
            break
        out.append(rest)
    return b"".join(out)


def _width(text: bytes, at: int) -> int:
    """The bytes of the UTF-8 character at a place; 1 where none stands."""
    if at >= len(text) or text[at] < 0xC0:
        return 1
    width = 2 if text[at] < 0xE0 else 3 if text[at] < 0xF0 else 4
    try:
        text[at : at + width].decode()
    except UnicodeDecodeError:
        return 1
    return width


# ---- string hashes ----------------------------------------
# The hashes of byte strings that TensorFlow's string ops use: FarmHash's Fingerprint64, SipHash-2-4, Hash64.

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MURMUR = 0xC6A4A7935BD1E995


def _rotate(value: int, count: int) -> int:
    """Rotates 64 bits to the right."""
    return ((value >> count) | (value << (64 - count))) & _MASK


def _mix(value: int) -> int:
    return value ^ (value >> 47)


def _fetch(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _pair(u: int, v: int, factor: int) -> int:
    a = _mix(((u ^ v) * factor) & _MASK)
    b = _mix(((v ^ a) * factor) & _MASK)
    return (b * factor) & _MASK


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = struct.unpack_from("<4Q", data, at)
    a = (a + w) & _MASK
    b = _rotate((b + a + z) & _MASK, 21)
    c = a
    a = (a + x + y) & _MASK
    return (a + z) & _MASK, (b + _rotate(a, 44) + c) & _MASK


def _short(data: bytes) -> int:
    """The fingerprint of up to 16 bytes."""
    size = len(data)
    factor = (_K2 + size * 2) & _MASK
    if size >= 8:
        a, b = (_fetch(data, 0) + _K2) & _MASK, _fetch(data, size - 8)
        c = (_rotate(b, 37) * factor + a) & _MASK
        return _pair(c, ((_rotate(a, 25) + b) * factor) & _MASK, factor)
    if size >= 4:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
        return _pair((size + (first << 3)) & _MASK, last, factor)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return (_mix(((y * _K2) ^ (z * _K0)) & _MASK) * _K2) & _MASK
    return _K2


def _medium(data: bytes) -> int:
    """The fingerprint of 17 to 64 bytes."""
    size = len(data)
    factor = (_K2 + size * 2) & _MASK
    a = (_fetch(data, 0) * (_K1 if size <= 32 else _K2)) & _MASK
    b = _fetch(data, 8)
    c, d = (_fetch(data, size - 8) * factor) & _MASK, (_fetch(data, size - 16) * _K2) & _MASK
    y = (_rotate((a + b) & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    z = _pair(y, (a + _rotate((b + _K2) & _MASK, 18) + c) & _MASK, factor)
    if size <= 32:
        return z
    e, f = (_fetch(data, 16) * factor) & _MASK, _fetch(data, 24)
    g = ((y + _fetch(data, size - 32)) * factor) & _MASK
    h = ((z + _fetch(data, size - 24)) * factor) & _MASK
    left = (_rotate((e + f) & _MASK, 43) + _rotate(g, 30) + h) & _MASK
    return _pair(left, (e + _rotate((f + a) & _MASK, 18) + g) & _MASK, factor)


def _round(data: bytes, at: int, state: list[int], factor: int, weight: int) -> None:
    """One block of 64 bytes; ``state`` is x, y, z, v0, v1, w0, w1."""
    x, y, z, v0, v1, w0, w1 = state
    x = (_rotate((x + y + v0 + _fetch(data, at + 8)) & _MASK, 37) * factor) & _MASK
    y = (_rotate((y + v1 + _fetch(data, at + 48)) & _MASK, 42) * factor) & _MASK
    x ^= (w1 * weight) & _MASK
    y = (y + v0 * weight + _fetch(data, at + 40)) & _MASK
    z = (_rotate((z + w0) & _MASK, 33) * factor) & _MASK
    v0, v1 = _weak(data, at, (v1 * factor) & _MASK, (x + w0) & _MASK)
    w0, w1 = _weak(data, at + 32, (z + w1) & _MASK, (y + _fetch(data, at + 16)) & _MASK)
    state[:] = [z, y, x, v0, v1, w0, w1]


def fingerprint64(data: bytes) -> int:
    """FarmHash's ``Fingerprint64``."""
    return _word(data) if len(data) <= 64 else _long(data)


@functools.lru_cache(1 << 15)
def _word(data: bytes) -> int:
    """The fingerprint of up to 64 bytes, kept: words of a vocabulary come again and again."""
    return _short(data) if len(data) <= 16 else _medium(data)


def _long(data: bytes) -> int:
    size = len(data)
    y = (81 * _K1 + 113) & _MASK
    z = (_mix((y * _K2 + 113) & _MASK) * _K2) & _MASK
    state = [(81 * _K2 + _fetch(data, 0)) & _MASK, y, z, 0, 0, 0, 0]
    for at in range(0, (size - 1) // 64 * 64, 64):
        _round(data, at, state, _K1, 1)
    x, y, z, v0, v1, w0, w1 = state
    factor = (_K1 + ((z & 0xFF) << 1)) & _MASK
    w0 = (w0 + ((size - 1) & 63)) & _MASK
    v0 = (v0 + w0) & _MASK
    w0 = (w0 + v0) & _MASK
    state = [x, y, z, v0, v1, w0, w1]
    _round(data, size - 64, state, factor, 9)
    x, y, z, v0, v1, w0, w1 = state
    left = (_pair(v0, w0, factor) + _mix(y) * _K0 + z) & _MASK
    return _pair(left, (_pair(v1, w1, factor) + x) & _MASK, factor)


def hash64(data: bytes, seed: int = 0xDECAFCAFFE) -> int:
    """TensorFlow's ``Hash64`` (MurmurHash64A)."""
    found = (seed ^ (len(data) * _MURMUR)) & _MASK
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = (_fetch(data, at) * _MURMUR) & _MASK
        word = ((word ^ (word >> 47)) * _MURMUR) & _MASK
        found = ((found ^ word) * _MURMUR) & _MASK
    if len(data) > whole:
        found = ((found ^ int.from_bytes(data[whole:], "little")) * _MURMUR) & _MASK
    found = ((found ^ (found >> 47)) * _MURMUR) & _MASK
    return found ^ (found >> 47)


def siphash(data: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 under a key of two 64-bit numbers."""
    k0, k1 = (k & _MASK for k in key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(data) // 8 * 8
    words = [_fetch(data, at) for at in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | ((len(data) & 0xFF) << 56))
    for word in words:
        v[3] ^= word
        _sip_rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _sip_rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _sip_rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & _MASK
        v[2] = (v[2] + v[3]) & _MASK
        v[1] = _rotate(v[1], 51) ^ v[0]
        v[3] = _rotate(v[3], 48) ^ v[2]
        v[0] = (_rotate(v[0], 32) + v[3]) & _MASK
        v[2] = (v[2] + v[1]) & _MASK
        v[3] = _rotate(v[3], 43) ^ v[0]
        v[1] = _rotate(v[1], 47) ^ v[2]
        v[2] = _rotate(v[2], 32)
