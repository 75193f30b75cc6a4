"""Reads of variables that may be uninitialised: ``initialized_value`` and safe initial values.

An initial value that is computed from another variable would fail, or read an old value, when both
are initialised in one step. So its graph is copied, and each read of a variable is replaced by its
value if it has one, else by its initial value.
"""

from __future__ import annotations

from typing import Any

from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, colocate_with, get_default_graph, name_scope
from tfmini.graph.keys import GraphKeys
from tfmini.ops.array.identity import identity

_READS_THAT_STAND = frozenset({"IsVariableInitialized", "VarIsInitializedOp", "ReadVariableOp"})
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})


def initialized_value(variable: Any) -> Tensor:
    """The value of a reference variable, or its initial value while it is uninitialised."""
    has_value = variable.is_initialized()
    switch = raw_ops.Switch
    with name_scope("cond"):
        no_value, value_there = switch(has_value, has_value, name="Switch")
        identity(value_there, name="switch_t")
        identity(no_value, name="switch_f")
        chosen = identity(has_value, name="pred_id")
        # The variable may be a slot that is being made beside another one; a switch stands beside its own input.
        with colocate_with(variable.op, ignore_existing=True):
            _, alive = raw_ops.RefSwitch(variable._ref(), chosen, name="read/Switch")
        present = identity(alive, name="read")
        with colocate_with(variable.initial_value.op, ignore_existing=True):
            initial, _ = switch(variable.initial_value, chosen, name="Switch_1")
        return raw_ops.Merge([initial, present], name="Merge")[0]


def safe_initial_value(scope: str, value: Tensor) -> Tensor:
    """``value``, or a copy of it that reads initialised values of the variables it depends on.

    Args:
      scope: the new variable's name scope, with its final ``/``; copies are named after it.
      value: the initial value as given.
    """
    if not _depends_on_variable(value):
        return value
    return _Copier(scope).copy(value)


def _depends_on_variable(value: Tensor) -> bool:
    pending, seen = [value.op], {value.op}
    found = False
    while pending:
        op = pending.pop()
        if op._control_flow_context is not None or op.type in ("NextIteration", "RefNextIteration"):
            return False  # A loop cannot be copied op by op.
        found = found or op.type in ("Variable", "VariableV2")
        if op.type in _READS_THAT_STAND:
            continue
        fresh = [t.op for t in op.inputs if t.op not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return found


class _Copier:
    """Copies the ops between an initial value and the variables it depends on."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.copies: dict[Operation, list[Tensor]] = {}
        graph = get_default_graph()
        known = graph.get_collection(GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(GraphKeys.LOCAL_VARIABLES)
        self.variables = {v.op: v for v in known if not v._is_resource}

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor that replaces ``tensor`` in the safe value."""
        pending = [tensor.op]
        while pending:
            op = pending[-1]
            missing = [] if self._stands(op) else [t.op for t in op.inputs if t.op not in self.copies]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if op not in self.copies:
                self.copies[op] = self._copy_op(op)
        return self.copies[tensor.op][tensor.value_index]

    def _stands(self, op: Operation) -> bool:
        return op.type in _READS_THAT_STAND or op.type in _VARIABLES

    def _copy_op(self, op: Operation) -> list[Tensor]:
        variable = self.variables.get(op)
        if variable is not None and variable.initial_value is not None:
            return [initialized_value(variable)]
        if self._stands(op):
            return op.outputs
        inputs = tuple(self.copies[t.op][t.value_index] for t in op.inputs)
        if inputs == op.inputs:
            return op.outputs
        # The Switch of a reference becomes a Switch of a value.
        kind = op.type.removeprefix("Ref") if op.type in ("RefSwitch", "RefMerge", "RefIdentity") else op.type
        twin = op.graph.create_op(kind, list(inputs), name=f"{op.name}_{self.scope}", attrs=op.attrs)
        return twin.outputs
