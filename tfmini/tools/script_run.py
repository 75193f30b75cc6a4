"""Runs a script in this process as ``python SCRIPT ARGS...`` does, with tfmini as ``tensorflow``."""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

from tfmini import errors
from tfmini.compat import alias
from tfmini.compat.script_text import script_text
from tfmini.launch_report import is_launched
from tfmini.tools import python2, step_times, tracing

_INTERRUPTED = 130  # a shell's exit code for a process that SIGINT ended


def run_script(script: str, args: Sequence[str]) -> int:
    """Runs ``script`` as ``__main__`` and returns its exit code.

    The script sees ``sys.argv``, ``__file__`` and its own directory in ``sys.path[0]`` as in Python. For an
    error it prints the script's traceback and, if the cause is a Python 2 form, that form.

    Raises:
      SystemExit: raised by the script.
      OSError: when the script cannot be read.
    """
    alias.install()
    tracing.install_if_requested()
    step_times.install_if_requested()
    with io.open_code(os.path.abspath(script)) as file:
        data = file.read()
    main = _main_module(script, args)
    try:
        if is_launched():  # `TaskProcess` has blocked it: a Ctrl-C during the imports now ends the task
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = compile(data, script, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # any error of the script, Ctrl-C too, is printed as Python does
        return _report(error, script)
    return 0


def _main_module(script: str, args: Sequence[str]) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = script
    main.__dict__.update(__builtins__=builtins, __cached__=None, __loader__=SourceFileLoader("__main__", script))
    sys.modules["__main__"] = main
    sys.argv[:] = [script, *args]
    folder = os.path.dirname(os.path.realpath(script))
    # Python has put another folder first, unless it runs with -P.
    if sys.flags.safe_path:
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder
    return main


def _report(error: BaseException, script: str) -> int:
    # As Python does for an exception that nobody has handled: what runs at exit looks whether there was one.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if isinstance(error, KeyboardInterrupt) and is_launched():
        return _INTERRUPTED  # the launcher forwards Ctrl-C to all tasks: a traceback of each would be noise
    if end := _end_of_run(error):
        print(f"tfmini: {end}", file=sys.stderr)
        return 0
    shown = _below_this_file(error.__traceback__)
    error.__traceback__ = shown
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, shown  # for handlers at exit
    sys.excepthook(type(error), error, shown)
    sys.stderr.flush()
    for line in _hints(error, script):
        print(f"tfmini: {line}", file=sys.stderr)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _end_of_run(error: BaseException) -> str:
    """The message, if a synchronous worker comes after the end of its run or does not handle it; else ""."""
    if not isinstance(error, errors.OutOfRangeError):
        return ""
    from tfmini.train.sessions.run_state import RUN_HAS_ENDED  # late: a script may use no training

    return error.message if RUN_HAS_ENDED in error.message else ""


def _below_this_file(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _hints(error: BaseException, script: str) -> list[str]:
    if isinstance(error, SyntaxError):
        path = error.filename or script
        return _syntax_hints(path)
    frames = traceback.extract_tb(error.__traceback__)
    where = next((f for f in reversed(frames) if "site-packages" not in f.filename and "<" not in f.filename), None)
    found = python2.of_error(error, where.lineno or 0 if where else 0)
    return [f"{where.filename if where else script}, {found}"] if found else []


def _syntax_hints(path: str) -> list[str]:
    try:
        findings = python2.in_source(script_text(path))
    except OSError:  # the code is not in a file
        return []
    if not findings:
        return []
    shown = [f"  {path}, {finding}" for finding in findings[:20]]
    more = [f"  and {len(findings) - 20} more"] if len(findings) > 20 else []
    head = f"{path} is written for Python 2; this is Python {sys.version_info.major}.{sys.version_info.minor}."
    return [head + " `2to3 -w` rewrites most of it. Lines to change:", *shown, *more]
