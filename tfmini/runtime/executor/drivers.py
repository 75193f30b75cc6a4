"""The choice of the driver that runs a registered graph. It is made once, at registration."""

from __future__ import annotations

from tfmini.runtime.compiler.program import Program
from tfmini.runtime.executor.blocking_run import BlockingRun, can_block
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.partition_run import FunctionRun, PartitionRun


def choose_driver(program: Program, in_caller: bool, has_network: bool) -> type[PartitionRun]:
    """The driver for all runs of a program.

    Args:
      in_caller: whether the thread of the client may run the program: the client is in this process, and the
        program is the only part of its plan.
    """
    if not in_caller:
        return DataflowRun
    if program.is_simple:
        return FunctionRun
    return BlockingRun if has_network and can_block(program) else DataflowRun
