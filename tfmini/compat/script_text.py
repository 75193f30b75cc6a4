"""A script's source as text, whatever its encoding and its Python."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path


def script_text(path: str | Path) -> str:
    """The text of a script, by its coding line; one that cannot be decoded so is read as Latin-1.

    Raises:
      OSError: when it cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")
