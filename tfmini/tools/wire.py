"""What one step of a session sends between devices."""

from __future__ import annotations

from typing import Any

from tfmini.errors import FailedPreconditionError, UnimplementedError
from tfmini.placement.layout import lay_out
from tfmini.placement.wire_table import Transfer, format_transfers, transfers
from tfmini.runtime.session import BaseSession


def step_transfers(session: BaseSession, fetches: Any, feed_dict: Any = None) -> list[Transfer]:
    """The transfers of the step that ``session.run(fetches, feed_dict)`` runs.

    They are read from the plan that the master keeps for the step, so nothing is run. Sizes are
    those of the static shapes; the values of ``feed_dict`` do not matter, its keys do.

    Raises:
      FailedPreconditionError: before the first run of this step, which is when it is planned.
      UnimplementedError: when the session's master is in another process and keeps the plan there.
    """
    call, _ = session._find_call(fetches, feed_dict)
    if call.plan is None:
        raise FailedPreconditionError(
            None, None, "This step has not been run by the session, so there is no plan to show: run it once first."
        )
    partitions = getattr(call.plan, "partitions", None)
    if partitions is None:
        raise UnimplementedError(
            None, None, f"The master at {session.sess_str.decode()} is in another process and keeps the plan to itself:"
            " ask in the process whose tf.train.Server is the session's target."
        )  # fmt: skip
    shapes = {(op.name, i): out._shape for op in session.graph.get_operations() for i, out in enumerate(op.outputs)}
    return transfers(partitions, shapes, lay_out(partitions).routes)


def step_table(session: BaseSession, fetches: Any, feed_dict: Any = None) -> str:
    """`step_transfers` as a plain table, one block per pair of devices."""
    return format_transfers(step_transfers(session, fetches, feed_dict))
