"""``tf.saved_model.load_v2``: the objects of a SavedModel, with their variables, tables and functions.

It reads what `save` of `tfmini.train.checkpointing.object_saving` and TensorFlow's ``tf.saved_model.save`` write. A
call of a loaded function adds the nodes of its body to the graph, so gradients pass as through any other ops.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.checkpoint.files import local_path
from tfmini.core_types import PathLike
from tfmini.dtypes import as_dtype
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.attr_values import tensor_from_proto
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.functions import body_of
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import placeholder
from tfmini.ops.composites import TensorSpec
from tfmini.ops.control import group
from tfmini.ops.flow.effects import add_ordered_body
from tfmini.ops.flow.function import ConcreteFunction, PolymorphicFunction
from tfmini.ops.flow.functional import FunctionGraph
from tfmini.ops.io.checkpoint_ops import restore_v2
from tfmini.ops.tables import TrackableAsset
from tfmini.ops.variables.base import Variable, VariableAggregation, VariableSynchronization
from tfmini.ops.variables.resource_variable import LoadedVariable
from tfmini.shapes import TensorShape
from tfmini.train.checkpointing import saved_model as files
from tfmini.train.checkpointing.graph_files import CheckpointReader
from tfmini.train.checkpointing.object_graph import Trackable, object_graph_of
from tfmini.train.checkpointing.object_saving import SignatureMap
from tfmini.train.checkpointing.structure_coder import StructureCoder

_CALL = "__call__"


@export(
    "tf.saved_model.load_v2", "tf.compat.v2.saved_model.load", "tensorflow.python.saved_model.load.load",
)  # fmt: skip
def load(export_dir: PathLike, tags: Any = None) -> Any:
    """Loads the objects of a SavedModel (``tf.saved_model.load_v2``).

    Their variables join the default graph; the initializer of each restores it. They are no trainable variables of the
    graph, whatever their attribute ``trainable`` says. Tables are filled by `tf.tables_initializer`.

    Args:
      export_dir: the directory.
      tags: those of the graph; None: the file has one graph.

    Returns:
      An object with the attributes that the saved one had: variables, functions, other objects, lists, dictionaries.
      Its ``signatures`` are functions by name, which take tensors by name.

    Raises:
      OSError: there is no SavedModel, or it cannot be read.
      ValueError: it has other tags, or several graphs; or the file is not valid.
      NotImplementedError: another program than ``tf.saved_model.save`` wrote it.
    """
    directory = os.fsdecode(export_dir)
    model = files.parse_saved_model(directory)
    if len(model.meta_graphs) != 1 or not model.meta_graphs[0].HasField("object_graph_def"):
        raise NotImplementedError(
            f"{directory} has no objects: tf.saved_model.save did not write it. tf.saved_model.load(session, tags,"
            " path) loads its graph."
        )
    graph = model.meta_graphs[0]
    wanted = {tags} if isinstance(tags, str) else None if tags is None else set(tags)
    if wanted is not None and wanted != set(graph.meta_info_def.tags):
        raise ValueError(
            f"The SavedModel at {directory} has one MetaGraph with tags {list(graph.meta_info_def.tags)}, but got an"
            f" incompatible argument tags={tags} to tf.saved_model.load. You may omit it, pass 'None', or pass matching"
            " tags."
        )
    with errors.reading(f"The SavedModel in {directory} is not valid", ValueError, also_own=True):
        loaded = _Loader(graph, directory).objects[0]
    loaded.tensorflow_version = graph.meta_info_def.tensorflow_version
    loaded.tensorflow_git_version = graph.meta_info_def.tensorflow_git_version
    return loaded


class LoadedObject(Trackable):
    """An object of a SavedModel. Its classes are made so that one with a function ``__call__`` can be called."""


class LoadedTable(Trackable):
    """A lookup table of a SavedModel: what its functions need.

    Attributes:
      resource_handle: the handle.
      initializer: the operation that fills it; it is in the collection of table initializers.
    """

    resource_handle: Tensor
    initializer: Operation

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return []


class _Loader:
    """Makes the objects of a MetaGraphDef in the default graph."""

    def __init__(self, graph: Any, directory: str) -> None:
        self._graph, self._directory = graph, directory
        self._saved = graph.object_graph_def
        self._coder = StructureCoder()
        self._variables = os.path.join(directory, files.VARIABLES_DIRECTORY, files.VARIABLES_FILENAME)
        self._keys = self._checkpoint_keys()
        self._nodes = {node.name: node for node in graph.graph_def.node}
        self._bodies: dict[str, Any] = {}
        self.objects = [self._made(number, node) for number, node in enumerate(self._saved.nodes)]
        for node, made in zip(self._saved.nodes, self.objects):
            for child in node.children:
                _set(made, child.local_name, _at(self.objects, child.node_id))
        for made in self.objects:
            if isinstance(made, LoadedTable):
                self._fill(made)

    def _checkpoint_keys(self) -> dict[int, str]:
        """Number of a variable -> the key of its value in the checkpoint."""
        if not os.path.exists(local_path(self._variables) + ".index"):
            return {}
        known = object_graph_of(CheckpointReader(self._variables))
        keys, waiting, seen = {}, [(0, 0)], {0}
        while waiting:  # the checkpoint has the same objects, with numbers of its own
            here, there = waiting.pop()
            node = _at(known.nodes, there)
            for attribute in node.attributes:
                keys[here] = attribute.checkpoint_key
            below = {child.local_name: child.node_id for child in node.children}
            for child in _at(self._saved.nodes, here).children:
                if child.local_name in below and child.node_id not in seen:
                    seen.add(child.node_id)
                    waiting.append((child.node_id, below[child.local_name]))
        return keys

    def _made(self, number: int, node: Any) -> Any:
        kind = node.WhichOneof("kind")
        if kind == "user_object":
            return _empty(node)
        if kind == "variable":
            return self._variable(number, node.variable)
        if kind == "asset":
            path = os.path.join(self._directory, files.ASSETS_DIRECTORY)
            name = _at(self._graph.asset_file_def, node.asset.asset_file_def_index).filename
            return TrackableAsset(os.path.join(path, name))
        if kind == "constant":
            return constant(tensor_from_proto(self._nodes[node.constant.operation].attr["value"].tensor))
        if kind == "resource":
            return LoadedTable()
        if kind == "function":
            told = node.function.function_spec
            spec, signature = (self._coder.decode_proto(part) for part in (told.fullargspec, told.input_signature))
            functions = [self._function(name) for name in node.function.concrete_functions]
            return RestoredFunction(spec, told.is_method, signature, functions)
        if kind == "bare_concrete_function":
            bare = node.bare_concrete_function
            return self._function(bare.concrete_function_name, list(bare.argument_keywords))
        raise ValueError(f"The SavedModel has an object of an unknown kind: {node}")

    def _variable(self, number: int, told: Any) -> LoadedVariable:
        dtype = as_dtype(told.dtype)

        def restored() -> Tensor | None:
            if number not in self._keys:
                return None
            with device("/cpu:0"):
                return restore_v2(self._variables, [self._keys[number]], [""], [dtype])[0]  # type: ignore[no-any-return]

        made = LoadedVariable(
            restored, trainable=False, name=told.name or None, dtype=dtype, shape=TensorShape(told.shape),
            synchronization=VariableSynchronization(told.synchronization),
            aggregation=VariableAggregation(told.aggregation),
        )  # fmt: skip
        made._trainable = told.trainable
        return made

    def _function(self, name: str, keywords: list[str] | None = None) -> LoadedFunction:
        return LoadedFunction(self, name, keywords)

    def body(self, name: str) -> Any:
        """What `body_of` gives for a function of the library; each is made once."""
        if name not in self._bodies:
            with errors.reading(f"Function {name} of the SavedModel in {self._directory} is not valid", ValueError):
                self._bodies[name] = body_of(self._graph.graph_def.library, name)
        return self._bodies[name]

    def told(self, name: str) -> tuple[list[int], Any, Any]:
        """The numbers of the objects that a function captures, and the structures of its arguments and its result."""
        if name not in self._saved.concrete_functions:
            raise ValueError(f"The SavedModel has no function {name}.")
        told = self._saved.concrete_functions[name]
        arguments, result = map(self._coder.decode_proto, (told.canonicalized_input_signature, told.output_signature))
        if not (isinstance(arguments, tuple) and [*map(type, arguments)] == [tuple, dict]):
            raise ValueError(f"The arguments of function {name} are no tuple and dictionary: {arguments!r:.80}")
        return list(told.bound_inputs), arguments, result

    def captured(self, numbers: Iterable[int]) -> list[Tensor]:
        """The tensors that stand for objects in functions."""
        return [_tensor_of(_at(self.objects, number)) for number in numbers]

    def _fill(self, table: Any) -> None:
        table.resource_handle = table._create_resource()
        table.initializer = table._initialize().op
        get_default_graph().add_to_collection(GraphKeys.TABLE_INITIALIZERS, table.initializer)


def _at(items: Sequence[Any], number: int) -> Any:
    """An item by its number, which comes from a file.

    Raises:
      ValueError: there is no such item.
    """
    if not 0 <= number < len(items):
        raise ValueError(f"The SavedModel names item {number} of {len(items)}.")
    return items[number]


def _empty(node: Any) -> Any:
    """An object without attributes, which come later."""
    kind = node.user_object.identifier
    if kind == "trackable_list_wrapper":
        return []
    if kind == "trackable_dict_wrapper":
        return {}
    if kind == "signature_map":
        return SignatureMap({})
    members = {}
    if any(child.local_name == _CALL for child in node.children):
        members[_CALL] = lambda self, *args, **kwargs: vars(self)[_CALL](*args, **kwargs)
    return type("_UserObject", (LoadedObject,), members)()


def _set(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, SignatureMap):
        holder._signatures[name] = value
    elif isinstance(holder, dict):
        holder[name] = value
    elif isinstance(holder, list):
        holder.append(value)
    elif not isinstance(holder, TrackableAsset):
        setattr(holder, name, value)


def _tensor_of(thing: Any) -> Tensor:
    """What a function captures for an object."""
    if isinstance(thing, LoadedVariable):
        return thing.handle
    if isinstance(thing, TrackableAsset):
        return thing.asset_path
    found = thing.resource_handle if isinstance(thing, LoadedTable) else thing
    if not isinstance(found, Tensor):
        raise ValueError(f"A function of the SavedModel uses an object of which it can use nothing: {thing}.")
    return found


# ---- Functions -----------------------------------------------------------------------------------------------------


class LoadedFunction(ConcreteFunction):
    """A function of a SavedModel for arguments of certain types and shapes; a call adds its ops to the graph.

    Attributes:
      structured_outputs: its result, with a `TensorSpec` for each tensor.
    """

    def __init__(self, loader: _Loader, name: str, keywords: list[str] | None) -> None:
        self._loader, self._library_name = loader, name
        self.name = name.removeprefix("__inference_").rpartition("_")[0].strip("<_>") or "function"
        self._bound, self.structured_input_signature, self.structured_outputs = loader.told(name)
        specs = [leaf for leaf in nest.flatten(self.structured_input_signature) if isinstance(leaf, TensorSpec)]
        by_name = {spec.name: spec for spec in specs}
        self._specs = [by_name[key] for key in keywords] if keywords and {*keywords} == {*by_name} else specs
        self.argument_names = keywords or _unique([spec.name or "args" for spec in specs])

    @functools.cached_property
    def _traced(self) -> tuple[FunctionGraph, list[Tensor], list[Tensor], list[Operation]]:
        """A graph with the body; its placeholders for arguments and what is captured, its results, and its ends."""
        made = FunctionGraph(get_default_graph())
        with made.as_default():
            given = [placeholder(s.dtype, s.shape, n) for s, n in zip(self._specs, self.argument_names)]
            for tensor in self.captured_inputs:
                held = placeholder(tensor.dtype.base_dtype, tensor.shape, f"captured_{tensor.op.name}")
                held.handle_data = tensor.handle_data
                given.append(held)
            return made, given, *self._added(given)

    @property
    def graph(self) -> FunctionGraph:  # type: ignore[override]
        return self._traced[0]

    @property
    def inputs(self) -> list[Tensor]:  # type: ignore[override]
        return self._traced[1]

    @property
    def outputs(self) -> list[Tensor]:  # type: ignore[override]
        return self._traced[2]

    @property
    def ends(self) -> list[Operation]:
        return self._traced[3]

    @property
    def captured_inputs(self) -> list[Tensor]:  # type: ignore[override]
        return self._loader.captured(self._bound)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables that it uses."""
        return tuple(v for v in (_at(self._loader.objects, n) for n in self._bound) if isinstance(v, LoadedVariable))

    def _added(self, given: Sequence[Tensor]) -> tuple[list[Tensor], list[Operation]]:
        """Adds the body to the default graph; returns its results and the ops that run in any case."""
        body, names, results, ends = self._loader.body(self._library_name)
        found = add_ordered_body(body, dict(zip(names, given)), [*results, *ends], self.name)
        return found[: len(results)], found[len(results) :]

    def _expected(self) -> Sequence[Any]:
        return self._specs

    def _run(self, values: Sequence[Tensor]) -> Any:
        graph = get_default_graph()
        given = [*values, *self.captured_inputs]
        captures = hasattr(graph, "capture")
        results, ends = self._added([graph.capture(x) if captures and x.graph is not graph else x for x in given])
        if self.structured_outputs is None:
            return group(*ends)
        return nest.pack_sequence_as(self.structured_outputs, results)


def _unique(names: list[str]) -> list[str]:
    """Names with a number where another one is the same."""
    return [f"{n}_{names[:i].count(n)}" if n in names[:i] else n for i, n in enumerate(names)]


class RestoredFunction(PolymorphicFunction):
    """A `tf.function` of a SavedModel.

    Attributes:
      concrete_functions: one for each combination of arguments that was saved.
    """

    def __init__(self, spec: Any, is_method: bool, input_signature: Any, functions: list[LoadedFunction]) -> None:
        super().__init__(lambda *args, **kwargs: self(*args, **kwargs), input_signature, autograph=False)
        self.argument_spec = spec, is_method
        self._parameters = vars(self)["__signature__"] = _signature(spec, is_method)
        self.concrete_functions = functions

    def traced_functions(self) -> list[ConcreteFunction]:
        return [*self.concrete_functions]

    def get_concrete_function(self, *args: object, **kwargs: object) -> ConcreteFunction:
        if self.input_signature is not None and not args and not kwargs:
            return self.concrete_functions[0]
        return self._match(args, kwargs)[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the ops of the saved function for these arguments to the default graph, and returns its result.

        Raises:
          ValueError: no function was saved for such arguments.
        """
        if self.input_signature is not None:
            args, kwargs = self._by_signature(args, kwargs), {}
        function, values = self._match(args, kwargs)
        return function._run(values)

    def _bind(self, args: Sequence[object], kwargs: dict[str, object]) -> inspect.BoundArguments:
        return self._parameters.bind(*args, **kwargs)

    def _match(self, args: Sequence[object], kwargs: dict[str, object]) -> tuple[LoadedFunction, list[Tensor]]:
        """The function for some arguments, and the tensors of these; Python's numbers become tensors if need be."""
        bound = self._bind(args, kwargs)
        if self.input_signature is None:
            bound.apply_defaults()
        given = bound.args, bound.kwargs
        for converts in (False, True):
            for function in self.concrete_functions:
                values = _fitting(function.structured_input_signature, given, converts)
                if values is not None:
                    return function, values
        options = [function.structured_input_signature for function in self.concrete_functions]
        told = "\n\n".join(f"Option {number + 1}:\n{_told(option)}" for number, option in enumerate(options))
        raise ValueError(
            f"Could not find matching function to call loaded from the SavedModel. Got:\n{_told(given)}\n\nExpected"
            f" these arguments to match one of the following {len(options)} option(s):\n\n{told}"
        )


def _signature(spec: Any, is_method: bool) -> inspect.Signature:
    """The parameters that an argument specification tells, without ``self``."""
    kind = inspect.Parameter
    defaults = dict(zip(reversed(spec.args), reversed(spec.defaults or ())))
    names = spec.args[1:] if is_method else spec.args
    made = [kind(n, kind.POSITIONAL_OR_KEYWORD, default=defaults.get(n, kind.empty)) for n in names]
    if spec.varargs:
        made.append(kind(spec.varargs, kind.VAR_POSITIONAL))
    preset = spec.kwonlydefaults or {}
    made += [kind(n, kind.KEYWORD_ONLY, default=preset.get(n, kind.empty)) for n in spec.kwonlyargs or ()]
    if spec.varkw:
        made.append(kind(spec.varkw, kind.VAR_KEYWORD))
    return inspect.Signature(made)


def _fitting(expected: Any, given: Any, converts: bool) -> list[Tensor] | None:
    """The tensors of arguments, if these are what a function expects."""
    try:
        nest.assert_same_structure(expected, given)
    except (TypeError, ValueError):
        return None
    values = []
    for spec, value in zip(nest.flatten(expected), nest.flatten(given)):
        if not isinstance(spec, TensorSpec):
            if isinstance(value, Tensor) or not (spec is value or spec == value):
                return None
            continue
        if isinstance(value, TensorSpec) and spec.is_compatible_with(value):
            continue  # who asks for a concrete function
        tensor = _tensor(value, spec, converts)
        if tensor is None or not spec.is_compatible_with(tensor):
            return None
        values.append(tensor)
    return values


def _tensor(value: Any, spec: TensorSpec, converts: bool) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if not converts and not isinstance(value, (np.ndarray, Variable)):
        return None
    try:
        return convert_to_tensor(value, None if isinstance(value, (np.ndarray, Variable)) else spec.dtype)
    except (TypeError, ValueError):
        return None


def _told(arguments: Any) -> str:
    positional, named = arguments
    lines = [f"  Positional arguments ({len(positional)} total):", *(f"    * {value}" for value in positional)]
    return "\n".join([*lines, f"  Keyword arguments: {named}"])
