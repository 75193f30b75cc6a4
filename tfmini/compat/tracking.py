"""``tensorflow.python.training.tracking``: what libraries import of the rules by which checkpoints find objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.export import export, export_names
from tfmini.train.checkpointing.module import NoDependency as NoDependency
from tfmini.train.checkpointing.object_graph import Trackable as Trackable


@export("tensorflow.python.training.tracking.base.no_automatic_dependency_tracking_scope")
@contextmanager
def no_automatic_dependency_tracking_scope(obj: Any) -> Iterator[None]:
    """Within, checkpoints leave out the attributes that an object gets."""
    before = set(vars(obj))
    try:
        yield
    finally:
        vars(obj).setdefault("_left_out", set()).update(set(vars(obj)) - before)


@export("tensorflow.python.training.tracking.base.no_automatic_dependency_tracking")
def no_automatic_dependency_tracking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method so that checkpoints leave out the attributes that it sets."""

    @functools.wraps(method)
    def untracked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with no_automatic_dependency_tracking_scope(self):
            return method(self, *args, **kwargs)

    return untracked


export_names("tensorflow.python.training.tracking.base", "Trackable")
export_names("tensorflow.python.training.tracking.tracking", "AutoTrackable=Trackable")
export_names("tensorflow.python.training.tracking.data_structures", "NoDependency")
