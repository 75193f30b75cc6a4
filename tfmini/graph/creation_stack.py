"""The stack of the call that made an op, kept in a form that costs little, since every op has one.

A stack is a tuple of code, instruction offset, code, … innermost first. Line numbers are computed when they are asked
for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_STACK_DEPTH = 20
_HOME = __file__.rsplit("/", 2)[0]
# Modules that run a script from another program, as `python -m` and `tfmini run` do.
_BETWEEN = "/absl/app.py"  # `tf.app.run`, if absl is installed
_LAUNCHERS = ("<frozen runpy>", "/runpy.py", "/tfmini/tools/script_run.py")


def capture_stack() -> tuple[Any, ...]:
    """Returns the stack of the caller's caller."""
    frames: list[Any] = []
    frame = sys._getframe(2)
    for _ in range(_STACK_DEPTH):
        frames.append(frame.f_code)
        frames.append(frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            break
    return tuple(frames)


def frames_of(stack: tuple[Any, ...]) -> Iterator[tuple[str, int, str]]:
    """The frames of a stack, innermost first: (file, line, function)."""
    for code, lasti in zip(stack[::2], stack[1::2]):
        yield code.co_filename, _line_of(code, lasti), code.co_name


def user_frames(stack: tuple[Any, ...]) -> list[tuple[str, int, str]]:
    """The user's frames of a stack, outermost first, from the script on.

    Frames of tfmini and of the program that runs the script are left out.
    """
    found = []
    for file, line, name in frames_of(stack):
        if file.endswith(_LAUNCHERS):
            break  # the frames above belong to the program that runs the script
        if _HOME not in file and not file.startswith("<frozen ") and not file.endswith(_BETWEEN):
            found.append((file, line, name))
    return found[::-1]


def _line_of(code: Any, lasti: int) -> int:
    """Returns the source line of an instruction offset."""
    line: int = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end:
            return int(number or line)
        line = int(number or line)
    return line
