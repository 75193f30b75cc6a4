"""Layers of single ops, which stand for what a program computes between the layers of a functional model.

``keras.Model(x, tf.reduce_sum(layer(x), 1))`` needs a layer for the sum: it gets one as in TensorFlow 1.15
(``TensorFlowOpLayer``), when the model or the next layer takes the tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from tfmini.graph.importing import import_graph_def
from tfmini.graph.nest import flatten
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.protos import GraphDef, NodeDef

_calls = threading.local()
PREFIX = "tf_op_layer_"


@contextmanager
def in_call() -> Iterator[None]:
    """The ``call`` of a layer, whose ops belong to it."""
    _calls.depth = getattr(_calls, "depth", 0) + 1
    try:
        yield
    finally:
        _calls.depth -= 1


def call(layer: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """Calls a layer's ``call``; several outputs become a list."""
    with in_call():
        outputs = layer.call(inputs, **kwargs)
    return list(outputs) if type(outputs) is tuple else outputs


def make_layers(root: ModuleType, tensors: Any) -> None:
    """Gives the ops between layers and some tensors layers of their own, unless a layer is being called."""
    if getattr(_calls, "depth", 0):
        return
    for tensor in flatten(tensors):
        if isinstance(tensor, Tensor) and not hasattr(tensor, "_keras_history") and _comes_from_layers(tensor):
            _make_layer(root, tensor.op)


def _comes_from_layers(tensor: Tensor) -> bool:
    """Whether a tensor depends on an output of a layer."""
    seen, waiting = set(), [tensor]
    while waiting:
        found = waiting.pop()
        if hasattr(found, "_keras_history"):
            return True
        if found.op not in seen:
            seen.add(found.op)
            waiting.extend(found.op.inputs)
    return False


def _make_layer(root: ModuleType, op: Operation) -> None:
    """Makes the layer of an op, after those of the ops before it."""
    from_layers = [_comes_from_layers(x) for x in op.inputs]
    made = {i: _value(root, x) for i, (x, is_from_layer) in enumerate(zip(op.inputs, from_layers)) if not is_from_layer}
    inputs = [x for x, is_from_layer in zip(op.inputs, from_layers) if is_from_layer]
    for x in inputs:
        if not hasattr(x, "_keras_history"):
            _make_layer(root, x.op)
    layer = root.layers.TensorFlowOpLayer(op.node_def, constants=made, name=op.name)
    outputs = list(op.outputs)
    layer._add_inbound_node(
        inputs, outputs, [None] * len(inputs), [None] * len(outputs), [x.raw_shape for x in inputs],
        [x.raw_shape for x in outputs],
    )  # fmt: skip


def _value(root: ModuleType, tensor: Tensor) -> Any:
    """The value of a tensor that depends on no layer."""
    known = constant_value(tensor)
    return root.backend.get_session().run(tensor) if known is None else known


def _as_message(node_def: Any) -> Any:
    """A NodeDef, of a message or of its bytes as text."""
    if not isinstance(node_def, (bytes, str)):
        return node_def
    data = node_def.encode("latin-1") if isinstance(node_def, str) else node_def
    return NodeDef.FromString(data)


def op_layer(root: ModuleType) -> type:
    """The class of layers of single ops."""
    base: Any = root.engine.base_layer.Layer

    class TensorFlowOpLayer(base):
        """The layer of one op.

        Args:
          node_def: the op's NodeDef.
          constants: its inputs that come from no layer: index -> value.
        """

        def __init__(
            self, node_def: Any, name: str | None = None, constants: dict[Any, Any] | None = None, **kwargs: Any
        ) -> None:
            name = name or _as_message(node_def).name
            super().__init__(name=name if name.startswith(PREFIX) else PREFIX + name, **kwargs)
            self.node_def = _as_message(node_def)
            self.constants = {int(index): value for index, value in (constants or {}).items()}
            self.built = True

        def call(self, inputs: Any) -> Any:
            found = list(flatten(inputs))
            for index, value in sorted(self.constants.items()):
                found.insert(index, constant(value))
            outputs = _run(self.node_def, found)
            return outputs[0] if len(outputs) == 1 else outputs

        def compute_output_shape(self, input_shape: Any) -> Any:
            return input_shape

        def get_config(self) -> dict[str, Any]:
            own = {
                "node_def": self.node_def.SerializeToString().decode("latin-1"),
                "constants": {str(index): np.asarray(value).tolist() for index, value in self.constants.items()},
            }
            return {**super().get_config(), **own}

    return TensorFlowOpLayer


def _run(node_def: Any, inputs: Iterable[Any]) -> list[Any]:
    """The outputs of a new op like another one."""
    node, replaced = NodeDef(), {}
    node.CopyFrom(node_def)
    del node.input[:]
    graph = GraphDef()
    for i, x in enumerate(inputs):
        holder = graph.node.add(name=f"input_{i}", op="Placeholder")
        holder.attr["dtype"].type = x.dtype.base_dtype.as_datatype_enum
        node.input.append(holder.name)
        replaced[f"{holder.name}:0"] = x
    node.name = node_def.name.rpartition("/")[2]
    if "_class" in node.attr:
        del node.attr["_class"]  # it colocates with ops of the other graph
    graph.node.add().CopyFrom(node)
    made: Any = import_graph_def(graph, replaced, return_elements=[node.name], name="")
    return list(made[0].outputs)
