"""Values that outlive the step that brought them: in a queue, a staging area, an accumulator, a barrier.

The memory of an array may belong to somebody else: to the client, which may write into an array that it has fed, or
to the connection to another task, which lends a limited number of shared-memory blocks. Such an array is a view: a run
takes fed arrays as views if its program has an op with the trait ``keeps``, and the arrays from other tasks are views
of their message. An array without a base belongs to the runtime, which changes no array that has another reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def own(value: Any) -> Any:
    """The value itself, or a copy if it is a view of memory that may belong to somebody else."""
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value


def own_all(values: Iterable[Any]) -> tuple[Any, ...]:
    """`own` of each value."""
    return tuple([own(value) for value in values])
