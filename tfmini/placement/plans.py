"""`PlacementPlan`: which variable goes to which ps, as `tfmini place` proposes it, and as a model in use follows it.

A plan is a device function, for `tf.device`, and a strategy, for ``ps_strategy=`` of `replica_device_setter`. It knows
variables and ops by name, so every worker that builds the same model gets the same placement.

``tf.get_variable`` asks the device functions in force for a partitioner (`partitioner_of`), so that a plan also cuts
variables of a model that does not know of it. Such a variable still is one table for embedding lookups: id i is row i,
as before it was cut.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.devices import merge_device
from tfmini.graph.traits import ops_with

_log = logging.getLogger(__name__)
_FORMAT = "tfmini placement plan 1"
_ON_PS = ops_with("on_ps")
_LIST = re.compile(r"\[([^\[\]{}\"]+)\]")  # of numbers
_REMEDY = "Run `tfmini place` again."


@dataclass(frozen=True)
class PlacementPlan:
    """A placement. Calling it with an operation returns its device, as a device function does.

    Attributes:
      tasks: the number of ps tasks that the plan is for.
      variables: name of a variable, or of a part (``emb/part_0``) -> ps task.
      partitions: name of a variable that is cut -> its number of parts per axis.
      ops: names of other ops that the plan moves -> ps task.
      job: the ps job.
      predicted: what `tfmini place` predicted, in seconds per step, and for which cluster. Nothing depends on it.
    """

    tasks: int
    variables: Mapping[str, int]
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ops: Mapping[str, int] = field(default_factory=dict)
    job: str = "ps"
    predicted: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tasks, int) or self.tasks < 1 or not isinstance(self.job, str):
            raise ValueError(f"The plan must be for a positive number of tasks of a job, not {self.tasks!r}.")
        for kind in ("variables", "ops"):
            for name, task in getattr(self, kind).items():
                if not isinstance(task, int) or not 0 <= task < self.tasks:
                    raise ValueError(f"The plan puts {name} on task {task!r}, but it is for {self.tasks} ps tasks.")
        for name, counts in self.partitions.items():
            if not counts or any(not isinstance(count, int) or count < 1 for count in counts):
                raise ValueError(f"The plan cuts {name} into {counts!r}; it takes a positive number of parts per axis.")

    def __call__(self, op: Any) -> str:
        """The device of an op: that of its variable or move; else what it requests already, "" for nothing."""
        requested = op.device or ""
        task = self.task_of(op) if op.type in _ON_PS else self.ops.get(op.name)
        return requested if task is None else merge_device(f"/job:{self.job}/task:{task}", requested)

    def task_of(self, op: Any) -> int:
        """The ps task of a variable. One that the plan does not know gets a task by its name, with a warning."""
        task = self.variables.get(op.name)
        if task is None:
            digest = hashlib.md5(op.name.encode(), usedforsecurity=False).digest()
            task = int.from_bytes(digest, "big") % self.tasks
            _log.warning(
                "The plan does not know the variable %s; it goes to %s %d. %s", op.name, self.job, task, _REMEDY
            )
        return task

    def partitioner_of(self, name: str) -> Callable[..., list[int]] | None:
        """The partitioner of a variable that the plan cuts, for ``tf.get_variable``; None for all others."""
        counts = self.partitions.get(name)
        return None if counts is None else VariableCut(name, counts)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {"format": _FORMAT, **asdict(self)}

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the file that `plan` reads.

        Raises:
          OSError: it cannot be written.
        """
        text = json.dumps(self.to_json(), indent=1)
        Path(path).write_text(_LIST.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")


class VariableCut:
    """The partitioner of one variable of a plan: ``(shape, dtype)`` -> number of parts per axis."""

    by_plan = True  # not by the model: lookups still see one table

    def __init__(self, name: str, counts: Sequence[int]) -> None:
        self._name, self._counts = name, list(counts)

    def __call__(self, shape: Any, dtype: Any = None) -> list[int]:
        """Raises ValueError if the variable has another shape than when the plan was made."""
        sizes = shape.as_list()
        if len(sizes) != len(self._counts) or any(n > size for n, size in zip(self._counts, sizes)):
            raise ValueError(
                f"The plan cuts {self._name} into {self._counts} parts, but it has shape {sizes}. {_REMEDY}"
            )
        return list(self._counts)


def plan(path: str | PathLike[str]) -> PlacementPlan:
    """Reads a plan of `tfmini place`.

    Use it as ``tf.device(tfmini.placement.plan("plan.json"))``, or as ``ps_strategy=`` of `replica_device_setter`.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is no plan, or contradicts itself.
    """
    with errors.reading(f"{path} is not JSON", ValueError, "A plan is written by `tfmini place`."):
        found = json.loads(Path(path).read_text())
    if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
        raise ValueError(f'{path} is no plan: it lacks "format": "{_FORMAT}". A plan is written by `tfmini place`.')
    with errors.reading(f"{path} is not valid", ValueError, also_own=True):
        return PlacementPlan(**found)
