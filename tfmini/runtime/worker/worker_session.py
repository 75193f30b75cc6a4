"""`WorkerSession`: the state that a worker keeps for one session of a master."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfmini.runtime.resources import Resources


@dataclass
class WorkerSession:
    """A master's session on this worker.

    Attributes:
      task: the worker's name in the session's own cluster; "" without one.
      kernels: node -> kernel with a state of its own, which all programs of the session share.
    """

    handle: str
    resources: Resources
    addresses: Mapping[str, str]
    task: str = ""
    graphs: set[int] = field(default_factory=set)
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)
