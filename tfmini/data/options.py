"""``tf.data.Options``: hints for a pipeline; they are kept and merged, but change nothing."""

from __future__ import annotations

from typing import Any

from tfmini.export import export, export_names

AUTOTUNE = -1
"""Lets the runtime choose a buffer size or a number of parallel calls (``tf.data.experimental.AUTOTUNE``)."""


class OptionGroup:
    """Base class of groups of hints; every attribute is None until it is set."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


@export("tf.data.experimental.OptimizationOptions")
class OptimizationOptions(OptionGroup):
    """Hints about rewriting pipelines (``tf.data.experimental.OptimizationOptions``)."""


@export("tf.data.experimental.ThreadingOptions")
class ThreadingOptions(OptionGroup):
    """Hints about threads (``tf.data.experimental.ThreadingOptions``)."""


@export("tf.data.Options")
class Options(OptionGroup):
    """The hints of a dataset (``tf.data.Options``)."""

    def __init__(self) -> None:
        self.experimental_optimization = OptimizationOptions()
        self.experimental_threading = ThreadingOptions()

    def merge(self, options: Options) -> Options:
        """The hints of both.

        Raises:
          ValueError: when they contradict each other.
        """
        merged = Options()
        _merge(merged, self)
        _merge(merged, options)
        return merged


def _merge(into: OptionGroup, other: OptionGroup) -> None:
    for name, value in vars(other).items():
        here = getattr(into, name)
        if isinstance(value, OptionGroup):
            if here is None:
                here = type(value)()
                setattr(into, name, here)
            _merge(here, value)
        elif here is None:
            setattr(into, name, value)
        elif value is not None and here != value:
            raise ValueError(f"Cannot merge incompatible values {here} and {value} of option: {name}")


export_names("tf.contrib.data tf.data.experimental", "AUTOTUNE")
