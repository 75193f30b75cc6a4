"""Fingerprints: descriptions of an exchange that ranks compare, to detect that they run different collectives."""

from __future__ import annotations

from typing import NamedTuple

from tfmini import errors


class Fingerprint(NamedTuple):
    """A rank's description of an exchange.

    Attributes:
      name: the name by which the ranks find each other; "" where keys count their collectives.
      shape, dtype, op: as text; ``shape`` has "?" for dimensions that may differ.
      step: the number of this member's step in the group, from 1; 0 if it is not compared: the collective has a name,
        or steps overlap.
    """

    name: str
    shape: str
    dtype: str
    op: str
    step: int

    def pack(self) -> str:
        """Returns it as one field of a message."""
        return "|".join(map(str, self))

    @classmethod
    def unpack(cls, text: str) -> Fingerprint:
        """The inverse of `pack`; a name may contain bars."""
        name, shape, dtype, op, step = text.rsplit("|", 4)
        return cls(name, shape, dtype, op, int(step))

    def without_step(self) -> str:
        """Returns everything except the step as text, the name last."""
        return f"{self.shape}|{self.dtype}|{self.op}|{self.name}"

    @classmethod
    def with_step(cls, text: str, step: int) -> Fingerprint:
        """The inverse of `without_step`."""
        shape, dtype, op, name = text.split("|", 3)
        return cls(name, shape, dtype, op, step)

    def __str__(self) -> str:
        name = f'"{self.name}" ' if self.name else ""
        return f"{name}{self.op} {self.dtype}{self.shape}{f' in step {self.step}' if self.step else ''}"


def mismatch(mine: Fingerprint, me: str, theirs: Fingerprint, them: str) -> errors.OpError | None:
    """Returns the error for two ranks whose fingerprints of one exchange differ, or None if they agree."""
    if mine == theirs:
        return None
    both = f"{me} has {mine}; {them} has {theirs}."
    if mine.name and theirs.name and mine.name != theirs.name:
        remedy = "Give tensors that belong together the same name on all ranks."
        return errors.FailedPreconditionError.of(f"Name mismatch in a collective: {both} {remedy}")
    for aspect in ("op", "dtype", "shape"):
        if getattr(mine, aspect) != getattr(theirs, aspect):
            return errors.FailedPreconditionError.of(f"{aspect.title()} mismatch in a collective: {both}")
    if mine.step and theirs.step and mine.step != theirs.step:
        behind = them if theirs.step > mine.step else me
        return errors.FailedPreconditionError.of(
            f"Collective call skipped: {behind} left one out in an earlier step. {both} Every rank must run the same "
            "collectives in every step."
        )
    return None


def skipped(mine: str, me: str, theirs: str, them: str) -> errors.OpError:
    """Returns the error for two ranks that wait for each other in different exchanges."""
    return errors.FailedPreconditionError.of(
        f"Collective call skipped: {me} waits in {mine}, which {them} has not called, and {them} waits in {theirs}, "
        f"which needs {me}. Every rank must run the same collectives, and those that depend on each other in one order."
    )
