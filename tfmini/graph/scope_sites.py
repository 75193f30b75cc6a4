"""Where the `with` blocks of devices and colocations begin that were in force when an op was made."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

_HOME = __file__.rsplit("/", 2)[0] + "/"


@dataclass(frozen=True, slots=True)
class ScopeSite:
    """One such block; TensorFlow's ``TraceableObject``.

    Attributes:
      obj: the device as it was given, or ``NAME<FILE, LINE>`` for a function; None for a colocation.
      filename, lineno: of the call of ``tf.device`` or ``tf.colocate_with``.
      anchor: the name of the op to colocate with; "" for a device.
    """

    obj: str | None
    filename: str
    lineno: int
    anchor: str = ""

    def __str__(self) -> str:
        what = f"tf.colocate_with({self.anchor})" if self.anchor else f"tf.device({self.obj})"
        return f"with {what} at {self.filename}:{self.lineno}"


def device_site(requested: Any) -> ScopeSite:
    """The site of a call of ``tf.device`` by the user's code, for a device or a device function."""
    return ScopeSite(_text(requested), *_caller())


def colocation_site(anchor: str) -> ScopeSite:
    """The site of a call of ``tf.colocate_with``."""
    return ScopeSite(None, *_caller(), anchor)


def _text(requested: Any) -> str:
    if requested is None or isinstance(requested, str):
        return str(requested)
    if not callable(requested):
        return str(requested.to_string())
    code = getattr(requested, "__code__", None)
    name = getattr(requested, "__name__", type(requested).__name__)
    return f"{name}<{code.co_filename}, {code.co_firstlineno}>" if code is not None else name


def _caller() -> tuple[str, int]:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
