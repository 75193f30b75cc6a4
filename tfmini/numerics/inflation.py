"""Decompression with a bound, since a small input can be made to inflate to gigabytes (a decompression bomb)."""

from __future__ import annotations

import os
import zlib

from tfmini import errors

LIMIT_ENV = "TFMINI_INFLATE_LIMIT"
_DEFAULT_LIMIT = 1 << 30  # bytes


def inflate_limit() -> int:
    """The most bytes that one compressed value, line or record may inflate to, as ``TFMINI_INFLATE_LIMIT`` says.

    Raises:
      InvalidArgumentError: the variable is no positive number.
    """
    text = os.environ.get(LIMIT_ENV, "")
    if not text:
        return _DEFAULT_LIMIT
    if not text.isdecimal() or not int(text):
        raise errors.InvalidArgumentError.of(f"{LIMIT_ENV} must be a positive number of bytes, but is {text!r}.")
    return int(text)


def check_inflated(nbytes: int, what: str) -> None:
    """Refuses to inflate so many bytes.

    Raises:
      ResourceExhaustedError: they are more than `inflate_limit`.
    """
    limit = inflate_limit()
    if nbytes > limit:
        raise errors.ResourceExhaustedError.of(
            f"{what} inflates to more than {limit} bytes, the limit of one compressed value: it is very large, or made"
            f" to exhaust memory. If it can be trusted, set {LIMIT_ENV} to more bytes on the task that runs the op."
        )


def inflate(data: bytes, window_bits: int, what: str) -> bytes:
    """Decompresses a whole zlib or gzip stream.

    Args:
      window_bits: zlib's: 15 for a zlib header, 31 for a gzip one.
      what: the subject of the error.

    Raises:
      ResourceExhaustedError: it inflates to more than `inflate_limit`.
      zlib.error: the data are damaged or cut short.
    """
    decoder = zlib.decompressobj(window_bits)
    found = decoder.decompress(data, inflate_limit() + 1)
    check_inflated(len(found), what)
    if not decoder.eof:
        raise zlib.error("Error -5 while decompressing data: incomplete or truncated stream")
    return found
