"""Where TensorFlow's `replica_device_setter` puts ops. (Runs in its process, see `tests.oracle`.)"""

from __future__ import annotations

from typing import Any


def placements(tf: Any, cases: list[dict[str, Any]], ops: list[tuple[str, str]]) -> list[list[str] | None]:
    """For each case of keyword arguments the devices of ``ops``, given as (type, requested device).

    None where there is no device function.
    """
    return [_placed(tf, tf.train.replica_device_setter(**arguments), ops) for arguments in cases]


def _placed(tf: Any, function: Any, ops: list[tuple[str, str]]) -> list[str] | None:
    if function is None:
        return None
    nodes = [tf.NodeDef(name=f"n{number}", op=op, device=device) for number, (op, device) in enumerate(ops)]
    return [function(node) for node in nodes]
