"""What every exchange carries so that ranks which do different things notice at once."""

from __future__ import annotations

from typing import NamedTuple

from tfmini import errors


class Fingerprint(NamedTuple):
    """What a rank believes it is doing.

    Attributes:
      name: of the tensor, where the caller has given one; compared only if both sides have one.
      shape, dtype, op: as text; ``shape`` leaves out what may differ ("?").
      step: which step of this member in the group it is, from 1; 0 when steps overlap, and then not compared.
    """

    name: str
    shape: str
    dtype: str
    op: str
    step: int

    def pack(self) -> str:
        """As one field of a message."""
        return "|".join(map(str, self))

    @classmethod
    def unpack(cls, text: str) -> Fingerprint:
        """The inverse of `pack`; a name may contain bars."""
        name, shape, dtype, op, step = text.rsplit("|", 4)
        return cls(name, shape, dtype, op, int(step))

    def lasting(self) -> str:
        """All but the step, the name last."""
        return f"{self.shape}|{self.dtype}|{self.op}|{self.name}"

    @classmethod
    def of_lasting(cls, text: str, step: int) -> Fingerprint:
        """The inverse of `lasting`."""
        shape, dtype, op, name = text.split("|", 3)
        return cls(name, shape, dtype, op, step)

    def __str__(self) -> str:
        name = f'"{self.name}" ' if self.name else ""
        return f"{name}{self.op} {self.dtype}{self.shape} in step {self.step or 'unknown'}"


def mismatch(mine: Fingerprint, me: str, theirs: Fingerprint, them: str) -> errors.OpError | None:
    """The error for two ranks that met in one exchange but do not do the same, or None."""
    both = f"{me} has {mine}; {them} has {theirs}."
    if mine.name and theirs.name and mine.name != theirs.name:
        remedy = "All ranks must reduce the same tensors in the same order."
        return _error(f"Name mismatch in a collective: {both} {remedy}")
    if mine.op != theirs.op:
        return _error(f"Op mismatch in a collective: {both}")
    if mine.dtype != theirs.dtype:
        return _error(f"Dtype mismatch in a collective: {both}")
    if mine.shape != theirs.shape:
        return _error(f"Shape mismatch in a collective: {both}")
    if mine.step and theirs.step and mine.step != theirs.step:
        behind = them if theirs.step > mine.step else me
        return _error(
            f"Collective call skipped: {behind} left one out in an earlier step. {both} Every rank must run the same "
            "collectives in every step."
        )
    return None


def skipped(mine: str, me: str, theirs: str, them: str) -> errors.OpError:
    """The error for two ranks that wait for each other in different exchanges."""
    return errors.InvalidArgumentError(
        None, None,
        f"Collective call skipped: {me} waits in {mine}, which {them} has not called, and {them} waits in {theirs}, "
        f"which needs {me}. Every rank must run the same collectives in every step.",
    )  # fmt: skip


def _error(text: str) -> errors.OpError:
    return errors.InvalidArgumentError(None, None, text)
