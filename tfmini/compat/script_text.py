"""Reads a script's source as text, in any encoding and for any version of Python."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path


def script_text(path: str | Path) -> str:
    """The text of a script, decoded as its coding line says, or else as Latin-1.

    Raises:
      OSError: when the file cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")
