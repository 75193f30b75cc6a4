"""The hashes of byte strings that TensorFlow's string ops use: FarmHash's Fingerprint64, SipHash-2-4, Hash64."""

from __future__ import annotations

import struct

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
    size = len(data)
    if size <= 16:
        return _short(data)
    if size <= 64:
        return _medium(data)
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
