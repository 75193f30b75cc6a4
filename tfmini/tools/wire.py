"""Lists the transfers between devices in one step of a session."""

from __future__ import annotations

from typing import Any

from tfmini.errors import FailedPreconditionError, UnimplementedError
from tfmini.placement.wire_table import Transfer, format_transfers, transfers
from tfmini.runtime.client.session import BaseSession


def step_transfers(session: BaseSession, fetches: Any, feed_dict: Any = None) -> list[Transfer]:
    """The transfers of the step that ``session.run(fetches, feed_dict)`` runs.

    They come from the master's plan of the step, so nothing is run. Sizes follow from the static shapes;
    only the keys of ``feed_dict`` matter, not its values.

    Raises:
      FailedPreconditionError: before the first run of this step, which makes the plan.
      UnimplementedError: the session's master, and so the plan, is in another process.
    """
    call, _ = session._find_call(fetches, feed_dict)
    if call.plan is None:
        raise FailedPreconditionError.of("The session has not run this step, so there is no plan: run it once first.")
    partitions = getattr(call.plan, "partitions", None)
    if partitions is None:
        raise UnimplementedError.of(
            f"The plan is in another process, that of the master at {session.sess_str.decode()}: call this function"
            " in the process whose tf.train.Server is the session's target."
        )
    shapes = {(op.name, i): out.raw_shape for op in session.graph.get_operations() for i, out in enumerate(op.outputs)}
    return transfers(partitions, shapes)


def step_table(session: BaseSession, fetches: Any, feed_dict: Any = None) -> str:
    """Formats `step_transfers` as a table, one block per pair of devices."""
    return format_transfers(step_transfers(session, fetches, feed_dict))
