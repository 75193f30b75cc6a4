"""TensorFlow's error classes, one per status code.

::

    OpError (Exception)
    ├─ CancelledError 1         ├─ PermissionDeniedError 7    ├─ InternalError 13
    ├─ UnknownError 2           ├─ ResourceExhaustedError 8   ├─ UnavailableError 14
    ├─ InvalidArgumentError 3   ├─ FailedPreconditionError 9  ├─ DataLossError 15
    ├─ DeadlineExceededError 4  ├─ AbortedError 10            └─ UnauthenticatedError 16
    ├─ NotFoundError 5          ├─ OutOfRangeError 11
    └─ AlreadyExistsError 6     └─ UnimplementedError 12

Every error of the runtime is one of these. It has the code, the message, the failing node and
operation (if known), the device and task that reported it, and whether it is *derived*: a
consequence of another failure of the same step. Derived is a field, not a marker in the text, so
that a step reports its root cause.

Misuse of the Python API (a wrong argument, a closed session) raises ``ValueError``,
``TypeError`` or ``RuntimeError`` instead, as in TensorFlow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Self

from tfmini.export import export, export_names
from tfmini.text import printable_lines

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


@export("tf.OpError", "tf.errors.OpError")
class OpError(Exception):
    """An error of the runtime (``tf.errors.OpError``).

    Args:
      node_def: the NodeDef of the failing node, or None.
      op: the Operation of the failing node, or None if it is not in the client's graph.
      message: the description of the error: the event, the op, file or task, and the remedy.
      error_code: one of this module's integer codes.
      device: full name of the device that failed, or "".
      task: full name of the task that reported the error, or "".
      derived: whether another error of the same step is the cause of this one.
    """

    def __init__(
        self,
        node_def: object,
        op: Any,
        message: str,
        error_code: int,
        *,
        device: str = "",
        task: str = "",
        derived: bool = False,
    ) -> None:
        super().__init__()
        self._node_def = node_def
        self._op = op
        # It may have words of a peer or of a file, and ends on a terminal or in a log.
        self._message = printable_lines(message) if isinstance(message, str) else message
        self._error_code = error_code
        self.device = device
        self.task = task
        self.derived = derived
        self.node_name = ""
        # Of a step that was cut off: the object that finds out what it has done (`runtime.client.call`).
        self.unfinished: Any = None

    @property
    def message(self) -> str:
        """The message, without the traceback of the operation's creation."""
        return self._message

    def explain(self, sentence: str) -> None:
        """Adds a line to the message: the cause or the remedy, as far as who catches the error knows more of it."""
        self._message += f"\n{sentence}"

    @property
    def op(self) -> Any:
        """The `Operation` that failed, or None."""
        return self._op

    @property
    def node_def(self) -> Any:
        """The NodeDef of the operation that failed, or None."""
        if self._node_def is None and self._op is not None:
            return self._op.node_def
        return self._node_def

    @property
    def error_code(self) -> int:
        """The status code, one of this module's constants."""
        return self._error_code

    def __str__(self) -> str:
        if self._op is None:
            return self._message
        text = self._message
        if stack := self._op.creation_stack():
            text += f"\n\nOriginal stack trace for {self._op.name!r}:\n{format_frames(stack)}"
        original = getattr(self._op, "_original_op", None)  # of a gradient: the op that it is the gradient of
        while original is not None:
            text += f"\n...which was originally created as op {original.name!r}, defined at:\n"
            text += format_frames(original.creation_stack())
            original = original._original_op
        return text.rstrip("\n")

    def __reduce__(self) -> tuple[Any, ...]:
        # An Operation cannot be pickled; the message and the origin are.
        state = (self._message, self._error_code, self.device, self.task, self.derived, self.node_name)
        return (_rebuild, state)


def format_frames(frames: Sequence[tuple[str, int, str]]) -> str:
    """Formats frames as Python does, with their source lines. Each frame is (file, line, function)."""
    import linecache
    import traceback

    shown = [(file, line, function, linecache.getline(file, line).strip()) for file, line, function in frames]
    return "".join(traceback.format_list(shown))


def _rebuild(message: str, code: int, device: str, task: str, derived: bool, node_name: str) -> OpError:
    return from_code(code, message, device=device, task=task, derived=derived, node_name=node_name)


class _CodedError(OpError):
    """Base of the classes with a fixed code."""

    code = UNKNOWN

    def __init__(self, node_def: object, op: Any, message: str, **origin: Any) -> None:
        super().__init__(node_def, op, message, self.code, **origin)

    @classmethod
    def of(cls, message: str, **origin: Any) -> Self:
        """Makes an error without an operation: the caller knows none, or the runtime adds it."""
        return cls(None, None, message, **origin)


@export("tf.errors.CancelledError")
class CancelledError(_CodedError):
    """The operation or step was cancelled, usually by closing its session or queue."""

    code = CANCELLED


@export("tf.errors.UnknownError")
class UnknownError(_CodedError):
    """An error without a more specific class."""

    code = UNKNOWN

    def __init__(self, node_def: object, op: Any, message: str, error_code: int = UNKNOWN, **origin: Any) -> None:
        OpError.__init__(self, node_def, op, message, error_code, **origin)


@export("tf.errors.InvalidArgumentError")
class InvalidArgumentError(_CodedError):
    """An operation received an argument that is invalid in any state of the system."""

    code = INVALID_ARGUMENT


@export("tf.errors.DeadlineExceededError")
class DeadlineExceededError(_CodedError):
    """A deadline expired before the operation could finish."""

    code = DEADLINE_EXCEEDED


@export("tf.errors.NotFoundError")
class NotFoundError(_CodedError):
    """A requested entity (file, resource, session factory) does not exist."""

    code = NOT_FOUND


@export("tf.errors.AlreadyExistsError")
class AlreadyExistsError(_CodedError):
    """An entity to create exists already."""

    code = ALREADY_EXISTS


@export("tf.errors.PermissionDeniedError")
class PermissionDeniedError(_CodedError):
    """The caller has no permission for the operation."""

    code = PERMISSION_DENIED


@export("tf.errors.ResourceExhaustedError")
class ResourceExhaustedError(_CodedError):
    """A resource (memory, disk, descriptors) is exhausted."""

    code = RESOURCE_EXHAUSTED


@export("tf.errors.FailedPreconditionError")
class FailedPreconditionError(_CodedError):
    """The system is not in the state that the operation needs, e.g. a variable is uninitialised."""

    code = FAILED_PRECONDITION


@export("tf.errors.AbortedError")
class AbortedError(_CodedError):
    """A concurrent event, such as the restart of a task, aborted the operation."""

    code = ABORTED


@export("tf.errors.OutOfRangeError")
class OutOfRangeError(_CodedError):
    """An operation went beyond the valid range, e.g. the end of an input."""

    code = OUT_OF_RANGE


@export("tf.errors.UnimplementedError")
class UnimplementedError(_CodedError):
    """The operation is not implemented."""

    code = UNIMPLEMENTED


@export("tf.errors.InternalError")
class InternalError(_CodedError):
    """An invariant of the system is broken."""

    code = INTERNAL


@export("tf.errors.UnavailableError")
class UnavailableError(_CodedError):
    """A task cannot be reached now; the same request may succeed later."""

    code = UNAVAILABLE


@export("tf.errors.DataLossError")
class DataLossError(_CodedError):
    """Data is lost or corrupt and cannot be recovered."""

    code = DATA_LOSS


@export("tf.errors.UnauthenticatedError")
class UnauthenticatedError(_CodedError):
    """The request has no valid credentials."""

    code = UNAUTHENTICATED


class OperatorNotAllowedInGraphError(TypeError):
    """A symbolic tensor was used where Python needs a value (``if t:``, ``for x in t``)."""


class InaccessibleTensorError(ValueError):
    """A tensor was fetched or used outside the scope in which it is valid."""


_CLASSES: dict[int, type[_CodedError]] = {
    cls.code: cls
    for cls in (
        CancelledError,
        UnknownError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        OutOfRangeError,
        UnimplementedError,
        InternalError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
    )
}


@export("tf.errors.exception_type_from_error_code")
def exception_type_from_error_code(error_code: int) -> type[_CodedError]:
    """The class for a status code (``tf.errors.exception_type_from_error_code``).

    Raises:
      KeyError: for a code that has no class.
    """
    return _CLASSES[error_code]


@export("tf.errors.error_code_from_exception_type")
def error_code_from_exception_type(cls: type[OpError]) -> int:
    """The status code of a class (``tf.errors.error_code_from_exception_type``).

    Raises:
      KeyError: for a class without a code.
    """
    code = getattr(cls, "code", None)
    if code is None:
        raise KeyError(cls)
    return int(code)


class LentStatus:
    """What `tf.errors.raise_exception_on_not_ok_status` lends to a function, which leaves its error there."""

    def __init__(self) -> None:
        self.error: OpError | None = None


@export("tf.errors.raise_exception_on_not_ok_status")
class RaiseExceptionOnNotOkStatus:
    """A context whose value is a status, and that raises the error in it when it ends.

    Raises:
      OpError: at the end of the block, the error that a function has left in the status.
    """

    def __enter__(self) -> LentStatus:
        self._status = LentStatus()
        return self._status

    def __exit__(self, *_: object) -> None:  # what the block raised goes on
        if self._status.error is not None:
            raise self._status.error


def from_code(
    code: int,
    message: str,
    *,
    node_def: object = None,
    op: object = None,
    node_name: str = "",
    **origin: Any,
) -> OpError:
    """Builds the error for a status code; an `UnknownError` with that code if the code is unknown."""
    cls = _CLASSES.get(code)
    error = UnknownError(node_def, op, message, code, **origin) if cls is None else cls(node_def, op, message, **origin)
    error.node_name = node_name
    return error


_OS_ERRORS: dict[int, type[_CodedError]] = {
    errno.ENOENT: NotFoundError,
    errno.EEXIST: AlreadyExistsError,
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
    errno.EROFS: PermissionDeniedError,
    errno.ENOSPC: ResourceExhaustedError,
    errno.EDQUOT: ResourceExhaustedError,
    errno.EISDIR: FailedPreconditionError,
    errno.ENOTDIR: FailedPreconditionError,
}


# Python's exceptions that say something about the values that a kernel got. Other ones are bugs.
_KINDS: tuple[tuple[tuple[type[Exception], ...], type[_CodedError]], ...] = (
    ((ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError), InvalidArgumentError),
    ((NotImplementedError,), UnimplementedError),
)


def of_exception(error: BaseException) -> OpError:
    """The error of an op whose code has raised any exception; an `OpError` is itself."""
    if isinstance(error, OpError):
        return error
    if isinstance(error, MemoryError):
        return ResourceExhaustedError.of(f"out of memory: {error}")
    kind = next((kind for classes, kind in _KINDS if isinstance(error, classes)), None)
    return InternalError.of(f"{type(error).__name__}: {error}{_place(error)}") if kind is None else kind.of(f"{error}")


def _place(error: BaseException) -> str:
    """`` at FILE:LINE`` of the line that raised; it is a bug, and the traceback stays in this process."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def shutting_down(task: str) -> UnavailableError:
    """What others get from a task whose server is being stopped; a recovering session waits for its restart."""
    return UnavailableError.of(f"{task} is shutting down.", task=task)


@contextlib.contextmanager
def naming_file(path: str | bytes | os.PathLike[Any]) -> Iterator[None]:
    """Converts the operating system's errors inside the block with `from_os_error`."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path) from error


@contextlib.contextmanager
def reading(
    what: str, raises: type[Exception] = DataLossError, remedy: str = "", also_own: bool = False
) -> Iterator[None]:
    """The door through which bytes from outside come: whatever a parser inside the block raises leaves as one class.

    Damaged or hostile bytes break a parser at any place and with any exception, so this catches all of them. Errors of
    the runtime and of the operating system pass.

    Args:
      what: the file and the place in it, or the value.
      raises: the class: an `OpError`, or one of Python's.
      remedy: a sentence at the message's end.
      also_own: whether an error of just this class gets ``what`` before its text, too; otherwise it passes.

    Raises:
      raises: the parser has raised.
      ResourceExhaustedError: the parser had no memory for what the bytes ask for.
    """
    try:
        yield
    except (OpError, OSError):
        raise
    except Exception as error:
        if type(error) is raises and not also_own:
            raise
        text = f"{what}: {_reason(error)}{remedy and '. ' + remedy}"
        if isinstance(error, MemoryError):
            raise ResourceExhaustedError.of(text) from error
        raise (raises.of(text) if issubclass(raises, _CodedError) else raises(text)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than this process gets"
    if isinstance(error, KeyError):
        return str(error.args[0]) if error.args and " " in str(error.args[0]) else f"it lacks {error}"
    if isinstance(error, ValueError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}"


def from_os_error(error: OSError, path: str | bytes | os.PathLike[Any]) -> OpError:
    """The error that TensorFlow raises for an error of the operating system on the file ``path``."""
    kind = _OS_ERRORS.get(error.errno or 0, UnknownError)
    return kind.of(f"{os.fsdecode(path)}; {error.strerror or error}")


export_names(
    "tf.errors",
    "ABORTED ALREADY_EXISTS CANCELLED DATA_LOSS DEADLINE_EXCEEDED FAILED_PRECONDITION INTERNAL INVALID_ARGUMENT "
    "NOT_FOUND OK OUT_OF_RANGE PERMISSION_DENIED RESOURCE_EXHAUSTED UNAUTHENTICATED UNAVAILABLE UNIMPLEMENTED "
    "UNKNOWN",
)


_NODE_TAG = re.compile(r"\{\{(?:colocation_)?node ([^}]+)\}\}")
_LAST_TAG = re.compile(r"\n\t \[\[\{\{node [^}]+\}\}\]\]$")


def without_tags(message: str) -> str:
    """A step's error with the plain names of nodes, for which a session writes their source lines."""
    return _NODE_TAG.sub(r"node \1", _LAST_TAG.sub("", message))
