"""Where a rank lays out its part of an all-reduce for the other ranks of its host: a *stage* in shared memory.

Only its owner writes to a stage. All that the ranks have to tell each other stands in its head, as numbers
that only grow::

    u64 serial | u64 wrote | u64 reduced | u64 copied | u64 waiting, sleeps | u64 step, step |
    u64 address of the tensor, address of the result, in the owner's memory                 (a cache line each)
    fingerprint, fingerprint (u16 length, text)                                          from byte 512 on
    data                                                                                from byte 4096 on

A *mark* is the number of an exchange times 2**24 plus a number of windows of it. Even and odd exchanges have
a step and a fingerprint each.

Stores must become visible in the order in which they were made, as on x86: see `IS_ORDERED`.
"""

from __future__ import annotations

import platform
import sys
import threading
from hashlib import blake2b
from typing import Any

import numpy as np

IS_ORDERED = platform.machine() in ("x86_64", "AMD64") and sys.maxsize > 1 << 32
"""Whether this processor lets others see stores in program order, and 64 bits at once."""

HEAD_BYTES = 4096
WINDOW_BITS = 24
SERIAL, WROTE, REDUCED, COPIED, WAITING, SLEEPS, STEPS = 0, 8, 16, 24, 32, 33, 40
VALUE_AT, RESULT_AT = 48, 49
_KIND_SHIFT = 60
_TEXT_AT = (512, 2304)
_TEXT_LIMIT = 1700  # bytes

_lock = threading.Lock()


def fence() -> None:
    """What was stored before is visible before what follows is loaded: a lock's atomic operation."""
    with _lock:
        return


def fingerprint_text(text: str) -> bytes:
    """What stands in a stage for a fingerprint; where it is too long its end is a digest of it."""
    data = text.encode()
    if len(data) <= _TEXT_LIMIT:
        return data
    digest = blake2b(data, digest_size=8).hexdigest()
    return data[: _TEXT_LIMIT - 40].decode(errors="ignore").encode() + f"… ({digest})".encode()


class Stage:
    """A stage, one's own or another rank's.

    Args:
      memory: its bytes, writable for its owner.
      serial: of this use of the memory; the same number stands there as long as nobody else uses it.
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
        """Its owner begins to use it, with that exchange: those before are over."""
        self.words[SERIAL] = self.serial
        fence()
        for word in (WAITING, SLEEPS, STEPS, STEPS + 1):
            self.words[word] = 0
        for word in (WROTE, REDUCED, COPIED):
            self.words[word] = count << WINDOW_BITS

    def give_up(self) -> None:
        """Its owner uses it no more: nobody does."""
        self.words[SERIAL] = 0

    @property
    def is_valid(self) -> bool:
        """Whether what has been read before was still its owner's."""
        return self.words[SERIAL] == self.serial

    def wait_for(self, word: int, mark: int, sleeps_on: int) -> None:
        """Notes that its owner waits until that word of all others has reached a mark.

        Args:
          sleeps_on: the rank on whose word it sleeps; -1: on none, it wants to be rung.
        """
        self.words[SLEEPS] = sleeps_on + 1
        self.words[WAITING] = word << _KIND_SHIFT - 3 | mark

    def wanted(self, word: int) -> int:
        """The mark that its owner waits for in the others' ``word``; 0: it does not."""
        waiting = self.words[WAITING]
        return waiting & (1 << _KIND_SHIFT - 3) - 1 if waiting >> _KIND_SHIFT - 3 == word else 0

    def sign(self, count: int, text: bytes, step: int) -> None:
        """Says what the count-th exchange is."""
        side = count & 1
        self.words[STEPS + side] = step
        if text != self._written[side]:
            at = _TEXT_AT[side]
            self._bytes[at + 2 : at + 2 + len(text)] = text
            self._bytes[at : at + 2] = len(text).to_bytes(2, "little")
            self._written[side] = text

    def signature(self, count: int) -> tuple[bytes, int]:
        """What `sign` has said: text and step."""
        side = count & 1
        at = _TEXT_AT[side]
        size = int.from_bytes(self._bytes[at : at + 2], "little")
        return bytes(self._bytes[at + 2 : at + 2 + size]), self.words[STEPS + side]
