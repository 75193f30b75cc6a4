"""The contexts of conds and loops come back from their messages, with the nested ones, when a graph is imported."""

from __future__ import annotations

from typing import Any

from tfmini.graph.collection_protos import register_proto_function
from tfmini.graph.keys import GraphKeys
from tfmini.ops.cond_context import CondContext
from tfmini.ops.control_flow_context import ControlFlowContext, inside
from tfmini.ops.while_context import WhileContext

_KINDS: dict[str, Any] = {"cond_ctxt": CondContext, "while_ctxt": WhileContext}


def restored_context(kind: str, message: Any, import_scope: str | None = None) -> ControlFlowContext:
    """The context of a CondContextDef or WhileContextDef, whose ops are in the default graph."""
    context: ControlFlowContext = _KINDS[kind]._restored(message, import_scope)
    with inside(context):
        for nested in message.nested_contexts:
            nested_kind = nested.WhichOneof("ctxt")
            restored_context(nested_kind, getattr(nested, nested_kind), import_scope)
    return context


def _to_proto(context: Any, export_scope: str | None = None) -> Any:
    return context.to_proto(export_scope)


def _cond_from_proto(message: Any, import_scope: str | None = None) -> Any:
    return restored_context("cond_ctxt", message, import_scope)


def _while_from_proto(message: Any, import_scope: str | None = None) -> Any:
    return restored_context("while_ctxt", message, import_scope)


register_proto_function(GraphKeys.COND_CONTEXT, "CondContextDef", _to_proto, _cond_from_proto)
register_proto_function(GraphKeys.WHILE_CONTEXT, "WhileContextDef", _to_proto, _while_from_proto)
