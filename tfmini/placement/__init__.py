"""Where ops run: device setters, plans, colocation, the placer, the partitioner. Pure; only `plan` reads a file."""

from tfmini.placement.device_setter import plan

__all__ = ["plan"]
