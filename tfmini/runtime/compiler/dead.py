"""The value that stands for "this branch was not taken"."""

from __future__ import annotations

from typing import Final


class _Dead:
    """The type of `DEAD`.

    Attributes:
      dtype: None, so that the types of received values can be compared without a look for this one.
    """

    __slots__ = ()
    dtype: None = None

    def __repr__(self) -> str:
        return "DEAD"


DEAD: Final = _Dead()
"""What a dead output holds where another part of the program must be able to see that it is dead."""
