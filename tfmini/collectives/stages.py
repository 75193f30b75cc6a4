"""Stages: shared memory in which a rank publishes its part of an all-reduce to the other ranks of its host.

Only its owner writes to a stage. The head of a stage holds its owner's progress, as numbers that only grow::

    u64 serial | u64 wrote | u64 reduced | u64 copied | u64 waiting, sleeps | u64 step, step |
    u64 address of the tensor, address of the result, in the owner's memory                 (a cache line each)
    fingerprint, fingerprint (u16 length, text)                                          from byte 512 on
    data                                                                                from byte 4096 on

A *mark* is the number of an exchange times 2**24 plus a number of completed windows. Even and odd exchanges each
have their own step and fingerprint.

Other processors must see stores in program order, as on x86: see `IS_ORDERED`.
"""

from __future__ import annotations

import platform
import sys
import threading
from hashlib import blake2b
from typing import Any

import numpy as np

IS_ORDERED = platform.machine() in ("x86_64", "AMD64") and sys.maxsize > 1 << 32
"""Whether other processors see this one's stores in program order, and 64-bit stores as a whole."""

HEAD_BYTES = 4096
WINDOW_BITS = 24
SERIAL, WROTE, REDUCED, COPIED, WAITING, SLEEPS, STEPS = 0, 8, 16, 24, 32, 33, 40
VALUE_AT, RESULT_AT = 48, 49
_KIND_SHIFT = 60
_TEXT_AT = (512, 2304)
_TEXT_LIMIT = 1700  # bytes

_lock = threading.Lock()


def fence() -> None:
    """Makes earlier stores visible before later loads: a full memory barrier."""
    with _lock:  # an atomic operation
        return


def fingerprint_text(text: str) -> bytes:
    """Encodes a fingerprint for a stage; the end of a text that is too long is replaced by a digest of it."""
    data = text.encode()
    if len(data) <= _TEXT_LIMIT:
        return data
    digest = blake2b(data, digest_size=8).hexdigest()
    return data[: _TEXT_LIMIT - 40].decode(errors="ignore").encode() + f"… ({digest})".encode()


class RankStage:
    """The stage of this rank or of another one.

    Args:
      memory: its bytes, writable for its owner.
      serial: identifies this use of the memory; the memory holds the same number until it has another use.
    """

    __slots__ = ("memory", "data", "words", "serial", "address", "_bytes", "_written")

    def __init__(self, memory: np.ndarray[Any, Any], serial: int) -> None:
        self.memory = memory
        self.data = memory[HEAD_BYTES:]
        self.address = memory.ctypes.data
        self._bytes = memory[:HEAD_BYTES].data
        self.words = self._bytes[:512].cast("Q")
        self.serial = serial
        self._written = [b"", b""]

    def open(self, count: int) -> None:
        """Begins its use with the exchange ``count``; earlier exchanges are over. Called by its owner."""
        self.words[SERIAL] = self.serial
        fence()
        for word in (WAITING, SLEEPS, STEPS, STEPS + 1):
            self.words[word] = 0
        for word in (WROTE, REDUCED, COPIED):
            self.words[word] = count << WINDOW_BITS

    def release(self) -> None:
        """Ends its use: no rank uses it any more. Called by its owner."""
        self.words[SERIAL] = 0

    @property
    def is_valid(self) -> bool:
        """Whether the stage still belongs to its owner, so that the data read before is valid."""
        return self.words[SERIAL] == self.serial

    def wait_for(self, word: int, mark: int, sleeps_on: int) -> None:
        """Records that its owner waits until this word of all other ranks has reached a mark.

        Args:
          sleeps_on: the rank on whose word it sleeps; -1: none, it waits for a bell.
        """
        self.words[SLEEPS] = sleeps_on + 1
        self.words[WAITING] = word << _KIND_SHIFT - 3 | mark

    def wanted(self, word: int) -> int:
        """Returns the mark that its owner waits for in the others' ``word``; 0 if it does not wait for that word."""
        waiting = self.words[WAITING]
        return waiting & (1 << _KIND_SHIFT - 3) - 1 if waiting >> _KIND_SHIFT - 3 == word else 0

    def write_fingerprint(self, count: int, text: bytes, step: int) -> None:
        """Writes the fingerprint of the count-th exchange: its text and step."""
        side = count & 1
        self.words[STEPS + side] = step
        if text != self._written[side]:
            at = _TEXT_AT[side]
            self._bytes[at + 2 : at + 2 + len(text)] = text
            self._bytes[at : at + 2] = len(text).to_bytes(2, "little")
            self._written[side] = text

    def read_fingerprint(self, count: int) -> tuple[bytes, int]:
        """Returns the text and step that `write_fingerprint` has written."""
        side = count & 1
        at = _TEXT_AT[side]
        size = int.from_bytes(self._bytes[at : at + 2], "little")
        return bytes(self._bytes[at + 2 : at + 2 + size]), self.words[STEPS + side]
