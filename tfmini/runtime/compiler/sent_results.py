"""Which results are computed in the memory of a connection.

A result that only one message to another task takes needs no memory here. Its kernel can write into the connection's
shared memory, if the op has a rule for that (`OpHandle.into`), so that sending it takes no copy. Whether there is such
memory is known when the kernel runs: `RegisteredGraph.sent_array` decides it by the size and the connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tfmini.graph.node import Endpoint
from tfmini.graph.op_types import OPS
from tfmini.runtime.compiler import kernel_checks
from tfmini.runtime.compiler.lowering import Lowering
from tfmini.runtime.compiler.units import Form, Unit

# Tensors of a message. Each has a block of its own, of which a connection lends few (`rpc.part_memory.PART_LIMIT`); and
# many tensors are small ones.
_FEW = 16


def sent_results(lowering: Lowering) -> dict[Endpoint, int]:
    """Results whose only consumer is one message, each with that message's group."""
    if lowering.compilation.model is not None:  # its kernels compute nothing
        return {}
    sends = [unit for unit in lowering.units if unit.form is Form.SEND and len(unit.inputs) <= _FEW]
    if not sends:
        return {}
    takers = Counter(endpoint for unit in lowering.units for endpoint in unit.reads())
    makers = {unit.node.name: unit for unit in lowering.units if unit.form is Form.COMPUTE and unit.outputs == 1}
    also_taken = lowering.kept | lowering.wanted
    found: dict[Endpoint, int] = {}
    for send in sends:
        for taken in send.inputs:
            endpoint: Endpoint | None = taken
            while endpoint is not None and takers[endpoint] == 1 and endpoint not in also_taken:
                maker = makers.get(endpoint[0])
                if maker is not None and _into(maker) is not None:
                    found[endpoint] = send.key
                endpoint = _handed_on(maker)
    return found


def _into(unit: Unit) -> Callable[..., Any] | None:
    rule = OPS[unit.node.op].into_rule
    return rule(unit.node) if rule is not None else None


def _handed_on(unit: Unit | None) -> Endpoint | None:
    """The input of a node that hands it on unchanged, as one that waits for control edges does; None for others."""
    if unit is None or unit.derefs != [False]:
        return None
    inline = OPS[unit.node.op].inline_expression
    return unit.inputs[0] if inline is not None and inline(unit.node) == "{0}" else None


def computing_into(unit: Unit, group: int) -> Callable[..., Any]:
    """``call(step, *inputs)`` for one of these units, which computes its result in memory of the group's connection."""
    function = _into(unit)
    assert function is not None

    check = kernel_checks.ResultCheck(unit.node) if kernel_checks.ENABLED else None

    def call(step: Any, *inputs: Any) -> Any:
        result = function(partial(step.sent_array, group), *inputs)
        return result if check is None else check(result)

    return call
