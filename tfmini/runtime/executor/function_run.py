"""The driver of a partition that neither exchanges tensors nor waits: one function call."""

from __future__ import annotations

from tfmini.runtime.executor.partition_run import PartitionRun


class FunctionRun(PartitionRun):
    """A run that is one function call in its caller's thread."""

    __slots__ = ()

    def run_segments(self) -> None:
        for segment in self.program.segments:
            segment.run(self, self.slots)
