"""Restores contexts of conds and loops from the collections ``cond_context`` and ``while_context`` of a MetaGraph."""

from __future__ import annotations

from typing import Any

from tfmini.graph.meta_graph import register_proto_function
from tfmini.graph.names import GraphKeys
from tfmini.ops.flow.cond import CondContext
from tfmini.ops.flow.control_flow_context import ControlFlowContext, inside
from tfmini.ops.flow.while_loop import WhileContext


def cond_context_from_proto(context_def: object, import_scope: str | None = None) -> CondContext:
    """The branch that a ``CondContextDef`` describes; its ops must be in the default graph."""
    context = CondContext._restored(context_def, import_scope)
    _restore_nested(context, context_def, import_scope)
    return context


def while_context_from_proto(context_def: object, import_scope: str | None = None) -> WhileContext:
    """The loop that a ``WhileContextDef`` describes; its ops must be in the default graph."""
    context = WhileContext._restored(context_def, import_scope)
    _restore_nested(context, context_def, import_scope)
    return context


def _restore_nested(context: ControlFlowContext, message: Any, import_scope: str | None) -> None:
    with inside(context):
        for nested in message.nested_contexts:
            from_control_flow_context_def(nested, import_scope)


def from_control_flow_context_def(context_def: Any, import_scope: str | None = None) -> ControlFlowContext:
    """The context that a ``ControlFlowContextDef`` describes.

    Raises:
      NotImplementedError: for a kind of context that tfmini does not have.
    """
    kind = context_def.WhichOneof("ctxt")
    if kind == "cond_ctxt":
        return cond_context_from_proto(context_def.cond_ctxt, import_scope)
    if kind == "while_ctxt":
        return while_context_from_proto(context_def.while_ctxt, import_scope)
    raise NotImplementedError(f"Unknown ControlFlowContextDef field: {kind}; there are cond_ctxt and while_ctxt.")


register_proto_function(GraphKeys.COND_CONTEXT, "CondContextDef", CondContext.to_proto, cond_context_from_proto)
register_proto_function(GraphKeys.WHILE_CONTEXT, "WhileContextDef", WhileContext.to_proto, while_context_from_proto)
