"""Layers of single ops, which stand for what a program computes between the layers of a functional model.

``keras.Model(x, tf.reduce_sum(layer(x), 1))`` needs a layer for the sum: it gets one as in TensorFlow 1.15
(``TensorFlowOpLayer``), when the model or the next layer takes the tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat.tf_keras import state
from tfmini.compat.tf_keras.counted_ops import count_call
from tfmini.compat.tf_keras.state import tf_logging
from tfmini.errors import OperatorNotAllowedInGraphError
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.graph_def import node_from_node_def
from tfmini.graph.importing import import_graph_def
from tfmini.graph.nest import flatten, is_nested, map_structure, pack_sequence_as
from tfmini.graph.node import input_dtypes
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.prune import topological_order, traverse
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import cast, placeholder
from tfmini.ops.composites import SparseTensor
from tfmini.ops.flow import autograph
from tfmini.ops.ragged import RaggedTensor
from tfmini.ops.variables.base import Variable
from tfmini.protos import GraphDef, NodeDef

_calls = threading.local()
PREFIX = "tf_op_layer_"
BY_PLACE = "*"  # stands for the arguments of a call that have no names


@contextmanager
def in_call(inputs: Any) -> Iterator[None]:
    """The ``call`` of a layer on inputs, whose ops belong to it."""
    before = calls_inputs()
    _calls.inputs = [x for x in flatten(inputs) if isinstance(x, Tensor)]
    try:
        yield
    finally:
        _calls.inputs = before


def calls_inputs() -> list[Tensor] | None:
    """The inputs of the innermost ``call`` of a layer; None outside of all calls."""
    found: list[Tensor] | None = getattr(_calls, "inputs", None)
    return found


def call(layer: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """Calls a layer's ``call``; several outputs become a flat list without Nones until `in_structure`.

    A layer that needs eager mode only tells its shape.
    """
    if getattr(layer, "_dynamic", False) and not hasattr(layer, "_is_graph_network"):
        outputs = _promised(layer, inputs)
    else:
        with in_call(inputs), explained(layer):
            named = {name: value for name, value in kwargs.items() if name != BY_PLACE}
            given = as_given(layer, _cast_inputs(layer, inputs))
            outputs = converted(layer.call, given, *kwargs.get(BY_PLACE, ()), **named)
        if is_librarys(layer.call):
            count_call(layer, inputs, kwargs.get("training"))
    outputs = map_structure(lambda x: convert_to_tensor(x) if isinstance(x, Variable) else x, outputs)
    parts = [x for x in flatten(outputs) if x is not None]
    is_plain = not is_nested(outputs) or type(outputs) is list and list(map(id, parts)) == list(map(id, outputs))
    vars(layer)["_output_structure"] = None if is_plain else map_structure(lambda x: x is not None, outputs)
    return outputs if is_plain else parts


def base_layer_utils(root: ModuleType) -> ModuleType:
    """The module ``engine.base_layer_utils``: whether layers have the dtypes of version 2, and whose call it is."""
    made = ModuleType(f"{root.engine.__name__}.base_layer_utils")

    def enable_v2_dtype_behavior() -> None:
        """Gives new layers the type `floatx`, to which they cast their inputs, instead of their inputs' type."""
        vars(made)["V2_DTYPE_BEHAVIOR"] = True

    def disable_v2_dtype_behavior() -> None:
        """Gives new layers the type of their inputs again."""
        vars(made)["V2_DTYPE_BEHAVIOR"] = False

    def enter(layer: object, inputs: Any, build_graph: object, training: object) -> Any:
        return in_call(inputs)

    vars(made).update(
        V2_DTYPE_BEHAVIOR=None, enable_v2_dtype_behavior=enable_v2_dtype_behavior,
        disable_v2_dtype_behavior=disable_v2_dtype_behavior,
        v2_dtype_behavior_enabled=lambda: bool(vars(made)["V2_DTYPE_BEHAVIOR"]),
        call_context=lambda: SimpleNamespace(enter=enter, in_call=calls_inputs() is not None),
    )  # fmt: skip
    return made


def set_dtype(layer: Any, dtype: Any, kwargs: dict[str, Any]) -> None:
    """Sets the dtype of a new layer, without one that of version 2 if its dtypes are in force, else that of inputs."""
    root = state.library_root()
    second = root.engine.base_layer_utils.v2_dtype_behavior_enabled()
    layer._autocast = kwargs.get("autocast", second)
    layer._has_default_dtype = dtype is None
    layer.dtype = root.backend.floatx() if dtype is None and second else dtype


def _cast_inputs(layer: Any, inputs: Any) -> Any:
    """The inputs of a layer, floating ones in its dtype if it casts them; a default one warns, once."""
    wanted = layer.dtype and dtypes.as_dtype(layer.dtype)
    if not (wanted and wanted.is_floating and vars(layer).get("_autocast")):
        return inputs

    def in_dtype(x: Any) -> Any:
        if not isinstance(x, (Tensor, SparseTensor, RaggedTensor)) or not x.dtype.is_floating or x.dtype == wanted:
            return x
        if vars(layer).pop("_has_default_dtype", False):
            tf_logging().warn(
                f"Layer {layer.name} is casting an input tensor from dtype {x.dtype.base_dtype.name} to the layer's"
                f" dtype of {wanted.name}. The layer has dtype {wanted.name} because layers have that of floatx unless"
                " they get another. Give dtype= to the layer, or autocast=False, to avoid the cast."
            )
        return cast(x, wanted)  # type: ignore[arg-type]

    return map_structure(in_dtype, inputs)


def called_again(layer: Any, inputs: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The outputs of a layer when its model is called; the inputs know their mask, unless another is given."""
    if isinstance(layer, state.library_root().layers.InputLayer):
        return _listed(inputs)
    masks = map_structure(lambda x: getattr(x, "_keras_mask", None), inputs)
    named = {name: value for name, value in kwargs.items() if name != BY_PLACE}
    if "mask" in named and all(mask is known for mask, known in zip(_listed(named["mask"]), _listed(masks))):
        del named["mask"]
    return list(flatten(layer(as_given(layer, inputs), *kwargs.get(BY_PLACE, ()), **named)))


def mask_behind(layer: Any, inputs: Any, mask: Any) -> Any:
    """The mask of a layer's outputs; one that takes no masks drops those of its inputs, which its method refuses."""
    method = state.library_root().engine.base_layer.Layer.compute_mask
    if not layer.supports_masking and type(layer).compute_mask is method:
        return None
    return layer.compute_mask(inputs, mask)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def flat_inputs(layer: Any, inputs: Any) -> Any:
    """The inputs of a call as a tensor or a list; `as_given` makes of it again what the call got."""
    is_flat = not is_nested(inputs) or type(inputs) is list and not any(map(is_nested, inputs))
    vars(layer)["_given_structure"] = None if is_flat else map_structure(lambda _: None, inputs)
    if is_flat or is_librarys(layer.call) and type(inputs) is not tuple:
        return inputs
    return list(inputs) if is_librarys(layer.call) else flatten(inputs)


def is_librarys(method: Any) -> bool:
    """Whether the program has not written it."""
    return (getattr(method, "__module__", "") or "").startswith("tfmini.")


def as_given(layer: Any, inputs: Any) -> Any:
    """A layer's inputs, or their shapes, in the structure of the last call of a layer of the program."""
    structure = vars(layer).get("_given_structure")
    parts = inputs if type(inputs) is list else [inputs]
    if structure is None or is_librarys(layer.call) or len(parts) != len(flatten(structure)):
        return inputs
    return pack_sequence_as(structure, parts)


def converted(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a layer's ``call`` returns; AutoGraph converts one that a program has written."""
    return autograph.call(function, args, kwargs)


def in_structure(layer: Any, outputs: Any) -> Any:
    """The outputs of a layer as its ``call`` has returned them; its newest node remembers how it got its inputs."""
    node = next(reversed(getattr(layer, "_inbound_nodes", [])), None)
    if node is not None and node.output_tensors[0] is next(iter(flatten(outputs)), None):
        node.given_structure = vars(layer).get("_given_structure")
    structure = vars(layer).pop("_output_structure", None)
    if structure is None:
        return outputs
    parts = iter(flatten(outputs))
    return map_structure(lambda is_there: next(parts) if is_there else None, structure)


def _promised(layer: Any, inputs: Any) -> Any:
    """Placeholders for the outputs of a layer with ``dynamic=True``, whose model cannot be compiled."""
    shapes = layer.compute_output_shape(map_structure(lambda x: x.shape, inputs))
    made = [placeholder(layer.dtype, shape) for shape in (shapes if isinstance(shapes, list) else [shapes])]
    return made if isinstance(shapes, list) else made[0]


@contextmanager
def explained(layer: Any) -> Iterator[None]:
    """Tells of an error which layer has used the value of a tensor."""
    try:
        yield
    except OperatorNotAllowedInGraphError as error:
        if "control flow" in str(error):
            raise
        raise OperatorNotAllowedInGraphError(
            f"The `call` of layer {layer.name!r} is attempting to use Python control flow on a tensor: {error}"
        ) from error


def make_layers(root: ModuleType, tensors: Any) -> None:
    """Gives tensors that come from no layer yet layers of their own, and the ops between layers and them.

    If none depends on a layer, there is no functional model, and nothing is made; nor while a layer is being called.

    Raises:
      ValueError: an op between layers is part of a loop.
    """
    if calls_inputs() is not None:
        return
    found = [x for x in flatten(tensors) if isinstance(x, Tensor)]
    without = [x for x in found if not _is_of_a_layer(x)]
    ops = _ops_after_layers(x for x in without if not hasattr(x, "_keras_history_checked"))
    if ops or len(without) < len(found):
        for op in dict.fromkeys([*ops, *(x.op for x in without)]):
            _make_layer(root, op)
    for x in without:
        vars(x)["_keras_history_checked"] = True


def _is_of_a_layer(tensor: object) -> bool:
    return isinstance(tensor, Tensor) and hasattr(tensor, "_keras_history")


def _inputs_before(op: Operation) -> list[Operation]:
    """The ops that an op depends on, up to layers and to tensors that were seen before."""
    return [x.op for x in op.inputs if not _is_of_a_layer(x) and not hasattr(x, "_keras_history_checked")]


def _ops_after_layers(tensors: Iterable[Tensor]) -> list[Operation]:
    """The ops between layers and tensors, each after those that it depends on."""
    before = set(traverse((x.op for x in tensors), _inputs_before))
    consumers: dict[Operation, list[Operation]] = {op: [] for op in before}
    for op in before:
        for source in _inputs_before(op):
            consumers[source].append(op)
    after = set(traverse((op for op in before if any(map(_is_of_a_layer, op.inputs))), consumers.__getitem__))
    by_name = {op.name: op for op in sorted(after)}
    order = topological_order({op.name: {x.name for x in _inputs_before(op) if x in after} for op in by_name.values()})
    if len(order) < len(after):
        raise ValueError(_in_layer(next(op for name, op in by_name.items() if name not in set(order)), "in a loop"))
    return [by_name[name] for name in order]


def _in_layer(op: Operation, reason: str) -> str:
    """The message for an op that can be no layer."""
    return (
        f"Operation {op.name!r}, between layers, is {reason}, so it cannot be a layer of its own: compute it and what"
        " uses it in one layer, such as tf.keras.layers.Lambda."
    )


def _make_layer(root: ModuleType, op: Operation) -> None:
    """Makes the layer of an op; those of the ops before it are made."""
    inputs = [x for x in op.inputs if _is_of_a_layer(x)]
    constants = {i: _value_if_known(x) for i, x in enumerate(op.inputs) if not _is_of_a_layer(x)}
    count_ops(len(constants))  # TensorFlow makes an op to compute each
    layer = root.layers.TensorFlowOpLayer(op.node_def, constants=constants, name=op.name)
    outputs = list(op.outputs)
    layer._add_inbound_node(
        inputs, outputs, [None] * len(inputs), [None] * len(outputs), [x.raw_shape for x in inputs],
        [x.raw_shape for x in outputs],
    )  # fmt: skip


def _value_if_known(tensor: Tensor) -> Any:
    """A tensor that depends on no layer, such as a variable's, or its value if that is known."""
    known = constant_value(tensor)
    return tensor if known is None else known


# ---- Arguments of layers beside the first, which may have tensors of other layers ----------------------------------


def origins(node: Any) -> list[tuple[Any, Any, int, int]]:
    """The tensors of layers that the call of a node got, also in other arguments: each with its coordinates."""
    firsts = zip(node.input_tensors, node.inbound_layers, node.node_indices, node.tensor_indices)
    more = [x for x in flatten(node.arguments or {}) if _is_of_a_layer(x)]
    return [*firsts, *((x, *x._keras_history) for x in more)]


def add_inputs(
    inputs: list[Any], layers: dict[Any, int], order: dict[Any, int], nodes: dict[Any, int], keys: set[str]
) -> None:
    """Adds the inputs of a functional model that lead to no output to its layers, their order and its nodes."""
    for layer in [x._keras_history[0] for x in inputs if x._keras_history[0] not in layers]:
        layers[layer], order[layer], nodes[layer._inbound_nodes[0]] = 0, -1, 0
        keys.add(layer._node_key(layer, 0))


def arguments_now(node: Any, tensor_map: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a node's call when its model is called on other inputs: id of a tensor -> that of now, mask.

    The layer gets its inputs as in the node's call.
    """
    vars(node.outbound_layer)["_given_structure"] = getattr(node, "given_structure", None)
    here = lambda x: tensor_map[str(id(x))][0] if str(id(x)) in tensor_map else x  # noqa: E731
    return {name: map_structure(here, value) for name, value in (node.arguments or {}).items()}


def arguments_as_config(model: Any, node: Any, new_indices: dict[str, int]) -> dict[str, Any]:
    """The arguments of a node's call for a configuration: coordinates of tensors of layers, values of others."""

    def write(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return x.tolist()
        if not isinstance(x, Tensor):
            return x
        if not _is_of_a_layer(x):
            return _value(node.outbound_layer, x).tolist()
        layer, node_index, tensor_index = x._keras_history  # type: ignore[attr-defined]
        return [layer.name, new_indices.get(model._node_key(layer, node_index), 0), tensor_index]

    return {name: map_structure(write, value) for name, value in (node.arguments or {}).items()}


def arguments_of_config(value: Any, layers: dict[str, Any]) -> Any:
    """The arguments that a configuration has, with the tensors of layers.

    Raises:
      LookupError: a layer was not called so often yet.
    """
    if isinstance(value, dict):
        return {name: arguments_of_config(part, layers) for name, part in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    if [type(part) for part in value] == [str, int, int] and value[0] in layers:
        return layers[value[0]]._inbound_nodes[value[1]].output_tensors[value[2]]
    return [arguments_of_config(part, layers) for part in value]


def in_form(model: Any, kind: str, listed: list[Any]) -> Any:
    """A list of what belongs to the inputs or outputs of a model, by their keys if they were in a dictionary."""
    structure = getattr(model, f"_structured_{kind}", None)
    return listed if structure is None else pack_sequence_as(structure, listed)


def in_form_of(config: Any, listed: list[Any]) -> Any:
    """A list of the inputs or outputs of a configured model, by their keys if the configuration has keys."""
    return dict(zip(sorted(config), listed)) if isinstance(config, dict) else listed


def origins_in(config: Any) -> list[Any]:
    """The coordinates of the inputs or outputs of a configured model: of one, a list of them, or a dictionary."""
    if isinstance(config, dict):
        return [config[name] for name in sorted(config)]
    return [config] if config and isinstance(config[0], str) else config


# ---- Losses and metrics that a functional model got, which become layers of it --------------------------------------


def added_layers(root: ModuleType) -> tuple[type, type]:
    """The classes of layers that pass their input on and add it to the losses, or to a metric."""
    base: Any = root.engine.base_layer.Layer

    class AddLoss(base):
        """Adds its input to the losses."""

        def __init__(self, unconditional: bool, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.unconditional = unconditional

        def call(self, inputs: Any) -> Any:
            self.add_loss(inputs, inputs=not self.unconditional or None)
            return inputs

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "unconditional": self.unconditional}

    class AddMetric(base):
        """Adds its input to a metric."""

        def __init__(self, aggregation: str | None = None, metric_name: str | None = None, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.aggregation, self.metric_name = aggregation, metric_name

        def call(self, inputs: Any) -> Any:
            self.add_metric(inputs, self.aggregation, self.metric_name)
            return inputs

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "aggregation": self.aggregation, "metric_name": self.metric_name}

    return AddLoss, AddMetric


def add_layer(root: ModuleType, model: Any, layer: Any, tensor: Any) -> bool:
    """Lets a layer take a tensor of a functional model, and be a layer of it.

    Returns whether it is: not in the ``call`` of a layer, nor for a tensor that comes of no layer or from a loop.
    """
    is_functional = getattr(model, "_is_graph_network", False) and not isinstance(model, root.Sequential)
    if calls_inputs() is not None or not is_functional:
        return False
    try:
        make_layers(root, tensor)
    except ValueError:
        return False
    if not _is_of_a_layer(tensor):
        return False
    insert(root, model, [layer(tensor)])
    return True


def insert(root: ModuleType, model: Any, tensors: list[Any]) -> None:
    """Makes the layers that lead to tensors layers of a model, whose outputs stay."""
    model._added_outputs = [*getattr(model, "_added_outputs", ()), *tensors]
    made = root.engine.network._map_graph_network(model.inputs, [*model.outputs, *model._added_outputs])
    model._network_nodes, model._nodes_by_depth, model._layers, model._layers_by_depth = made


def with_added(model: Any, layers: dict[str, Any]) -> Any:
    """A model of a configuration, with those of its layers that lead to none of the outputs."""
    known = set(map(id, model.layers))
    nodes = [layer._inbound_nodes[-1] for layer in layers.values() if id(layer) not in known]
    if nodes:
        insert(state.library_root(), model, [x for node in nodes for x in node.output_tensors])
    return model


def _value(layer: Any, given: Any) -> Any:
    """The value that the configuration of a layer has for a tensor."""
    if not isinstance(given, Tensor):
        return given
    if given.dtype.base_dtype in (dtypes.resource, dtypes.variant) or not given.graph.is_fetchable(given):
        raise ValueError(_in_layer(given.op, f"no constant, which the configuration of {layer.name!r} needs"))
    return state.library_root().backend.get_session().run(given)


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
          constants: its inputs that come from no layer: index -> value, or a tensor whose value is not known; a
            configuration has the value that it has then.
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
            found, types = list(flatten(inputs)), input_dtypes(node_from_node_def(self.node_def))
            for index, value in sorted(self.constants.items()):  # a configuration has them without their types
                found.insert(index, value if isinstance(value, Tensor) else constant(value, types[index].base_dtype))
            outputs = _run(self.node_def, found)
            return outputs[0] if len(outputs) == 1 else outputs

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Any:
            """Makes the layer; an op without inputs of layers is called at once, since no layer leads to its call."""
            made = cls(**config)
            if len(made.constants) == sum(not name.startswith("^") for name in made.node_def.input):
                made([])
            return made

        def get_config(self) -> dict[str, Any]:
            values = {i: _value(self, given) for i, given in self.constants.items()}
            own = {
                "node_def": self.node_def.SerializeToString().decode("latin-1"),
                "constants": {str(index): np.asarray(value).tolist() for index, value in values.items()},
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


# What the text of the library calls.
HELPERS = {"_call": call, "_called_again": called_again, "_in_structure": in_structure, "_mask_behind": mask_behind}
