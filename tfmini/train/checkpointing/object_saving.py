"""``tf.saved_model.save``: an object with its variables, tables and `tf.function`s as a SavedModel.

The file has a graph for servers and for ``tf.saved_model.load`` of version 1, in which each signature is a part; and
the object graph with the functions, which ``load_v2`` reads. Bodies of functions hold no calls: a function that calls
another one contains it, here as in every graph of tfmini. Variables are in a checkpoint of objects.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini import dtypes, protos
from tfmini.checkpoint.files import local_path
from tfmini.core_types import PathLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.attr_values import shape_proto
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.functions import function_def
from tfmini.graph.graph import Graph
from tfmini.graph.importing import import_graph_def
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import control_dependencies
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import placeholder
from tfmini.ops.composites import TensorSpec
from tfmini.ops.control import group
from tfmini.ops.flow.effects import add_ordered_body
from tfmini.ops.flow.function import ConcreteFunction, PolymorphicFunction
from tfmini.ops.tables import InitializableLookupTableBase, TrackableAsset
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.resource_variable import LoadedVariable
from tfmini.runtime.client.session import Session
from tfmini.shapes import as_raw
from tfmini.train.checkpointing import saved_model as files
from tfmini.train.checkpointing.checkpoint import Checkpoint
from tfmini.train.checkpointing.graph_files import export_meta_graph, write_message
from tfmini.train.checkpointing.object_graph import ObjectGraph, Trackable, children_of, is_trackable
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.checkpointing.structure_coder import StructureCoder

SIGNATURES = "signatures"  # the attribute of a loaded object
_DEFAULT_SIGNATURE = "_default_save_signature"  # a method that makes the default signature of an object


class SignatureMap(Trackable, Mapping[str, Any]):
    """The signatures of a loaded object: name -> function, which takes tensors by name and gives a dictionary."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._signatures = dict(functions)

    def __getitem__(self, key: str) -> Any:
        return self._signatures[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signatures)

    def __len__(self) -> int:
        return len(self._signatures)

    def __repr__(self) -> str:
        return f"_SignatureMap({self._signatures})"

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return []


@export(
    "tf.saved_model.save", "tf.saved_model.experimental.save", "tf.compat.v2.saved_model.save",
    "tensorflow.python.saved_model.save.save",
)  # fmt: skip
def save(obj: Any, export_dir: PathLike, signatures: Any = None) -> None:
    """Writes an object as a SavedModel (``tf.saved_model.save``).

    The variables are those of the default session; without one, of Keras's, if it is in use.

    Args:
      obj: a trackable object: a `tf.Module`, a `tf.train.Checkpoint`, a model of Keras.
      export_dir: the directory. Files that are there are replaced.
      signatures: for servers: a `tf.function` with an input signature or a concrete function, or a dictionary of them
        by name. Default: the only function of ``obj`` that can be one, as ``serving_default``.

    Raises:
      ValueError: ``obj`` is not trackable, or has an attribute ``signatures`` of its own; a signature is no function,
        or gives no tensors by name; or a function uses a tensor of the graph that is no constant.
      AssertionError: a function uses a variable or table that is no attribute of the object, or of one below it.
      FailedPreconditionError: a variable has no value in the session.
    """
    if not is_trackable(obj):
        raise ValueError(f"Expected a Trackable object for export, got {obj}.")
    with obj._object_to_save() if hasattr(type(obj), "_object_to_save") else nullcontext(obj) as saved:
        _save(saved, export_dir, signatures)


def _save(obj: Any, export_dir: PathLike, signatures: Any) -> None:
    named = _signature_functions(obj, signatures)
    writer = _Writer(obj, named)
    directory = os.fsdecode(export_dir)
    os.makedirs(local_path(os.path.join(directory, files.VARIABLES_DIRECTORY)), exist_ok=True)
    with _session() as session:
        _Root(obj).write(os.path.join(directory, files.VARIABLES_DIRECTORY, files.VARIABLES_FILENAME), session)
    model = protos.SavedModel(saved_model_schema_version=files.SAVED_MODEL_SCHEMA_VERSION)
    model.meta_graphs.add().CopyFrom(writer.meta_graph(directory))
    write_message(model, os.path.join(directory, files.SAVED_MODEL_FILENAME_PB), as_text=False)


_providers: list[Callable[[], Any]] = []


@export("tensorflow.python.training.tracking.util.register_session_provider")
def register_session_provider(session_provider: Callable[[], Any]) -> None:
    """Sets where `save` gets a session without a default one: from Keras, which gives its variables their values."""
    _providers[:] = [session_provider]


def _session() -> AbstractContextManager[Any]:
    """The default session, else that of Keras, else one for this purpose on the default graph."""
    session = get_default_session() or (_providers[0]() if _providers else None)
    return Session(graph=get_default_graph()) if session is None else nullcontext(session)


class _Root(Checkpoint):
    """A checkpoint whose root is the saved object; TensorFlow wants the node of the signatures in it, too."""

    def __init__(self, saved: Any) -> None:
        super().__init__()
        self._saved, self._map = saved, SignatureMap({})

    def _trackable_children(self) -> list[tuple[str, Any]]:
        found = [(name, child) for name, child in children_of(self._saved) if not isinstance(child, SignatureMap)]
        return [*found, (SIGNATURES, self._map)]


# ---- Signatures ----------------------------------------------------------------------------------------------------


def _signature_functions(obj: Any, signatures: Any) -> dict[str, ConcreteFunction]:
    """The functions that are signatures, each of tensors by name, with a dictionary as result."""
    if not isinstance(getattr(obj, SIGNATURES, SignatureMap({})), SignatureMap) and SIGNATURES in vars(obj):
        raise ValueError(
            f"Exporting an object {obj} which has an attribute named 'signatures'. This is a reserved attribute used"
            " to store SavedModel signatures in objects which come from `tf.saved_model.load`. Delete this attribute"
            " (e.g. 'del obj.signatures') before saving if this shadowing is acceptable."
        )
    if signatures is None:
        found = _default_signature(obj)
        return {} if found is None else {files.DEFAULT_SERVING_SIGNATURE_DEF_KEY: _as_signature(found, None)}
    if not isinstance(signatures, Mapping):
        signatures = {files.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
    return {key: _as_signature(_concrete(function), key) for key, function in signatures.items()}


def _default_signature(obj: Any) -> ConcreteFunction | None:
    """The only function of an object that can be a signature."""
    functions = functions_of(obj)
    if _DEFAULT_SIGNATURE in functions:
        return _concrete(functions[_DEFAULT_SIGNATURE])
    possible = []
    for function in functions.values():
        if isinstance(function, ConcreteFunction) or getattr(function, "input_signature", None) is not None:
            concrete = _concrete(function)
            if concrete.outputs and _named_outputs(concrete.structured_outputs, None) is not None:
                possible.append(concrete)
    return possible[0] if len(possible) == 1 else None


def _concrete(function: Any) -> ConcreteFunction:
    if isinstance(function, ConcreteFunction):
        return function
    signature = getattr(function, "input_signature", None)
    if signature is not None:
        return function.get_concrete_function()  # type: ignore[no-any-return]
    raise ValueError(
        f"Expected a TensorFlow function to generate a signature for, but got {function}. Only `tf.functions` with an"
        " input signature or concrete functions can be used as a signature."
    )


def _as_signature(function: ConcreteFunction, key: str | None) -> ConcreteFunction:
    """A function of the same tensors by name, whose results have names."""
    names = function.argument_names
    specs = {name: TensorSpec(x.shape, x.dtype.base_dtype, name) for name, x in zip(names, function.inputs)}

    def signature_wrapper(**given: Any) -> Any:
        results = call_traced(function, [given[name] for name in names])
        structure = function.structured_outputs
        return _named_outputs(None if structure is None else nest.pack_sequence_as(structure, results), function)

    wrapper = PolymorphicFunction(signature_wrapper, autograph=False)
    return wrapper.get_concrete_function(**specs)


def _named_outputs(found: Any, function: ConcreteFunction | None) -> dict[str, Any] | None:
    """The results of a function by name; without ``function``, None where that is not possible."""
    named = dict(found) if isinstance(found, Mapping) else {}
    if not isinstance(found, Mapping) and found is not None:
        parts = found if isinstance(found, (list, tuple)) else [found]
        named = {f"output_{number}": value for number, value in enumerate(parts)}
    for key, value in named.items():
        if isinstance(key, str) and isinstance(value, (Tensor, TensorSpec)):
            continue
        if function is None:
            return None
        raise ValueError(
            f"Got a dictionary containing non-Tensor value {value} for key {key} in the output of the function"
            f" {function.name} used to generate a SavedModel signature. Dictionaries outputs for functions used as"
            " signatures should have one Tensor output per string key."
        )
    if found is None and function is not None:
        raise TypeError(f"The function {function.name} returns no tensors, so it cannot be a signature.")
    return named


def call_traced(function: Any, values: list[Any]) -> list[Tensor]:
    """Adds the ops of a traced function to the default graph; returns its results, one after the other."""
    graph = get_default_graph()
    given = dict(zip(function.inputs, [*values, *function.captured_inputs]))
    given |= {inner: outer for outer, inner in function.graph.copies.items()}
    captures = hasattr(graph, "capture")
    return _inlined(
        function, {x: graph.capture(y) if captures and y.graph is not graph else y for x, y in given.items()}
    )


def _inlined(function: Any, given: dict[Tensor, Tensor]) -> list[Tensor]:
    """Adds the ops of a traced function with tensors in the place of some of its own; returns its results."""
    wanted = [*(x.name for x in function.outputs), *(op.name for op in function.ends)]
    traced = function.graph.as_graph_def(add_shapes=True)
    found = add_ordered_body(traced, {x.op.name: value for x, value in given.items()}, wanted, function.name)
    return found[: len(function.outputs)]


# ---- Functions of objects ------------------------------------------------------------------------------------------


def functions_of(thing: Any) -> dict[str, Any]:
    """The `tf.function`s and concrete functions that are attributes of an object or of its class, by name."""
    kinds = (PolymorphicFunction, ConcreteFunction)
    if isinstance(thing, list):
        return {str(number): item for number, item in enumerate(thing) if isinstance(item, kinds)}
    if isinstance(thing, (Variable, dict, SignatureMap)):
        return {}
    found = (
        {name for name, value in vars(thing).items() if isinstance(value, kinds)}
        if hasattr(thing, "__dict__")
        else set()
    )
    for owner in type(thing).__mro__:
        found |= {name for name, value in vars(owner).items() if isinstance(value, kinds)}
    functions = {name: getattr(thing, name) for name in sorted(found)}
    return {name: value for name, value in functions.items() if isinstance(value, kinds)}


def argument_spec(function: PolymorphicFunction) -> tuple[inspect.FullArgSpec, bool]:
    """What ``inspect.getfullargspec`` says of the Python function, without annotations; whether that is a method."""
    if hasattr(function, "argument_spec"):  # a loaded one
        return function.argument_spec  # type: ignore[no-any-return]
    python = function.python_function
    parameters = [*inspect.signature(python).parameters.values()]
    of = lambda *kinds: [p for p in parameters if p.kind in kinds]  # noqa: E731
    positional = of(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    is_method = function._instance is not None or inspect.ismethod(python)
    names = [*(["self"] if inspect.ismethod(python) else []), *(p.name for p in positional)]
    defaults = tuple(p.default for p in positional if p.default is not p.empty)
    named = of(inspect.Parameter.KEYWORD_ONLY)
    varargs, varkw = (
        next((p.name for p in of(kind)), None)
        for kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    )
    preset = {p.name: p.default for p in named if p.default is not p.empty}
    spec = inspect.FullArgSpec(names, varargs, varkw, defaults or None, [p.name for p in named], preset or None, {})
    return spec, is_method


class _TableFunctions:
    """The functions of a table: they make it, fill it and remove it."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def named(self) -> dict[str, PolymorphicFunction]:
        made = {"_create_resource": self._create, "_initialize": self._initialize, "_destroy_resource": self._destroy}
        return {name: PolymorphicFunction(function, (), autograph=False) for name, function in made.items()}

    def _create(self) -> Any:
        return self._table._create_resource()

    def _initialize(self) -> Any:
        with control_dependencies([self._table._initializer.initialize(self._table)]):
            return constant(1)

    def _destroy(self) -> Any:
        return constant(1)


# ---- The message ---------------------------------------------------------------------------------------------------


class _Writer:
    """Makes the MetaGraphDef of an object."""

    def __init__(self, obj: Any, signatures: dict[str, ConcreteFunction]) -> None:
        self._signatures = signatures
        self._coder = StructureCoder()
        graph = ObjectGraph(_Root(obj))
        self._things = [obj, *(item.thing for item in graph.reached[1:])]
        self._children = [item.children for item in graph.reached]
        self._variables = {key: thing for key, thing in graph.variables.items() if isinstance(thing, Variable)}
        self._made: Any = protos.SavedObjectGraph()
        self._library: Any = protos.FunctionDefLibrary()
        self._names: dict[Any, str] = {}  # those of the functions in the library
        self._numbers: dict[Tensor, int] = {}  # tensor that functions use -> the node that stands for it
        self._main: Graph = Graph()
        self._tensors: dict[int, Tensor] = {}  # number of a node -> its tensor in the main graph
        self._initializers: list[ConcreteFunction] = []
        self._assets: list[Any] = []  # AssetFileDefs
        self._bare: dict[str, Any] = {}  # the messages of the signatures

    def meta_graph(self, directory: str) -> Any:
        """The message; copies the files of assets into the directory."""
        for thing, children in zip(self._things, self._children):
            self._add_object(thing, children)
        with self._main.as_default():
            for number, thing in enumerate(self._things):
                self._add_tensor(number, thing)
            self._assets = files.add_assets(directory, [x for x in self._tensors.values() if x.dtype is dtypes.string])
        for number, thing in enumerate(self._things):
            self._add_functions(number, thing)
            if isinstance(thing, SignatureMap):
                self._add_map(self._made.nodes[number])
        return self._message()

    # ---- objects --------------------------------------------------------------------------------

    def _add_object(self, thing: Any, children: Iterable[tuple[str, int]]) -> None:
        node = self._made.nodes.add()
        for name, number in children:
            node.children.add(local_name=name, node_id=number)
        if isinstance(thing, Variable):
            _describe(thing, node.variable)
        elif isinstance(thing, TrackableAsset):
            node.asset.asset_file_def_index = sum(other.HasField("asset") for other in self._made.nodes)
            node.asset.SetInParent()
        elif isinstance(thing, InitializableLookupTableBase):
            node.resource.SetInParent()
        elif not isinstance(thing, SignatureMap):
            kinds = {"trackable_list_wrapper": list, "trackable_dict_wrapper": dict}
            _identify(node, next((name for name, kind in kinds.items() if isinstance(thing, kind)), ""))

    def _add_map(self, node: Any) -> None:
        """Fills the node of the signatures, and adds those of each."""
        _identify(node, "signature_map")
        for key, function in self._signatures.items():
            node.children.add(local_name=key, node_id=len(self._made.nodes))
            bare = self._bare[key] = self._made.nodes.add().bare_concrete_function
            bare.argument_keywords.extend(function.argument_names)
            bare.allowed_positional_arguments = int(len(function.argument_names) == 1)

    def _add_tensor(self, number: int, thing: Any) -> None:
        """What stands for an object in the main graph, and for its handle in functions."""
        if isinstance(thing, Variable):
            handle = getattr(thing, "handle", None)
            if handle is None:
                raise ValueError(
                    f"{thing.name} is no resource variable, as models need: make it with use_resource=True."
                )
            made = LoadedVariable(
                lambda: None, trainable=False, collections=[], name=thing.op.name, dtype=thing.dtype, shape=thing.shape
            )
            self._numbers[handle], self._tensors[number] = number, made.handle
            self._variables = {key: made if v is thing else v for key, v in self._variables.items()}
        elif isinstance(thing, TrackableAsset):
            path = thing.asset_path
            self._numbers[path] = number
            self._tensors[number] = constant(path.op.attrs["value"], name="asset_path_initializer")
        elif isinstance(thing, InitializableLookupTableBase):
            self._numbers[thing.resource_handle] = number
            self._tensors[number] = _copied(thing.resource_handle.op)

    # ---- functions ------------------------------------------------------------------------------

    def _add_functions(self, number: int, thing: Any) -> None:
        for name, function in functions_of(thing).items():
            self._add_function(number, name, function)
        if isinstance(thing, InitializableLookupTableBase):
            for name, function in _TableFunctions(thing).named().items():
                self._add_function(number, name, function)
                if name == "_initialize":
                    self._initializers += function.traced_functions()

    def _add_function(self, holder: int, name: str, function: Any) -> None:
        node = self._made.nodes.add()
        self._made.nodes[holder].children.add(local_name=name, node_id=len(self._made.nodes) - 1)
        if isinstance(function, ConcreteFunction):
            node.bare_concrete_function.concrete_function_name = self._named(function)
            node.bare_concrete_function.argument_keywords.extend(function.argument_names)
            node.bare_concrete_function.allowed_positional_arguments = len(function.argument_names)
            return
        node.function.concrete_functions.extend(map(self._named, function.traced_functions()))
        spec, is_method = argument_spec(function)
        told = node.function.function_spec
        told.fullargspec.CopyFrom(self._coder.encode_structure(spec))
        told.input_signature.CopyFrom(self._coder.encode_structure(function.input_signature))
        told.is_method = is_method

    def _named(self, function: ConcreteFunction) -> str:
        """The name of a function in the library, to which it is added with what it uses."""
        if function not in self._names:
            name = self._names[function] = f"__inference_{function.name}_{len(self._names)}"
            bound = self._bound(function)
            arguments = dict(zip(function.argument_names, function.inputs))
            arguments |= {f"{function.name}_{self._label(number)}": inner for inner, number in bound}
            ops, ends = function.graph.get_operations(), [op.name for op in function.ends]
            self._library.function.append(function_def(name, ops, arguments, function.outputs, ends))
            told = self._made.concrete_functions[name]
            told.bound_inputs.extend(number for _, number in bound)
            told.canonicalized_input_signature.CopyFrom(
                self._coder.encode_structure(function.structured_input_signature)
            )
            told.output_signature.CopyFrom(self._coder.encode_structure(_specs(function.structured_outputs)))
        return self._names[function]

    def _bound(self, function: ConcreteFunction) -> list[tuple[Tensor, int]]:
        """The tensors of a traced function that stand for others of the model, and the numbers of these."""
        captured = function.inputs[len(function.argument_names) :]
        pairs = [(inner, self._number(outer, function)) for inner, outer in zip(captured, function.captured_inputs)]
        copied = [(inner, self._numbers.get(outer)) for outer, inner in function.graph.copies.items()]
        return [*pairs, *((inner, number) for inner, number in copied if number is not None)]

    def _number(self, tensor: Tensor, function: ConcreteFunction) -> int:
        if tensor not in self._numbers:
            if tensor.dtype is dtypes.resource:
                raise AssertionError(
                    f"Tried to export a function which references untracked object {tensor}.TensorFlow objects (e.g."
                    " tf.Variable) captured by functions must be tracked by assigning them to an attribute of a"
                    " tracked object or assigned to an attribute of the main object directly."
                )
            if tensor.op.type != "Const":
                raise ValueError(
                    f"Attempted to save a function {function.name} which references a symbolic Tensor {tensor} that is"
                    " not a simple constant. This is not supported."
                )
            with self._main.as_default():
                made = _copied(tensor.op)
            number = self._numbers[tensor] = len(self._made.nodes)
            self._made.nodes.add().constant.operation = made.op.name
            self._tensors[number] = made
        return self._numbers[tensor]

    def _label(self, number: int) -> str:
        return self._tensors[number].op.name

    # ---- the main graph -------------------------------------------------------------------------

    def _message(self) -> Any:
        for key, function in self._signatures.items():
            self._bare[key].concrete_function_name = self._named(function)
        with self._main.as_default():
            signatures = {key: self._signature(key, function) for key, function in self._signatures.items()}
            main_op = group(*(self._called(function, [])[0].op for function in self._initializers), name="init")
            self._main.add_to_collection(files.MAIN_OP_KEY, main_op)
            saver = Saver(self._variables, sharded=True, allow_empty=True)
            graph_def = self._main.as_graph_def(add_shapes=True)
            graph_def.library.CopyFrom(self._library)
            made = export_meta_graph(graph_def=graph_def, saver_def=saver.saver_def, clear_devices=True)
        signatures[files.INIT_OP_SIGNATURE_KEY] = protos.SignatureDef()
        told = signatures[files.INIT_OP_SIGNATURE_KEY].outputs[files.INIT_OP_SIGNATURE_KEY]
        told.name, told.tensor_shape.unknown_rank = main_op.name, True
        for key, signature in signatures.items():
            made.signature_def[key].CopyFrom(signature)
        made.meta_info_def.tags.append(files.SERVING)
        made.asset_file_def.extend(self._assets)
        made.object_graph_def.CopyFrom(self._made)
        return made

    def _signature(self, key: str, function: ConcreteFunction) -> Any:
        names = function.argument_names
        inputs = [placeholder(x.dtype, x.shape, f"{key}_{name}") for name, x in zip(names, function.inputs)]
        outputs = nest.pack_sequence_as(function.structured_outputs, self._called(function, inputs))
        given, found = (
            {name: files.build_tensor_info(x) for name, x in part.items()}
            for part in (dict(zip(names, inputs)), outputs)
        )
        return files.build_signature_def(given, found, files.PREDICT_METHOD_NAME)

    def _called(self, function: ConcreteFunction, values: list[Tensor]) -> list[Tensor]:
        """The results of a function in the main graph."""
        bound = {inner: self._tensors[number] for inner, number in self._bound(function)}
        return _inlined(function, dict(zip(function.inputs, values)) | bound)


def _describe(variable: Variable, told: Any) -> None:
    """Fills a SavedVariable."""
    told.dtype, told.name, told.trainable = (
        variable.dtype.base_dtype.as_datatype_enum,
        variable.op.name,
        variable.trainable,
    )
    told.shape.CopyFrom(shape_proto(as_raw(variable.shape)))
    told.synchronization = variable.synchronization.value
    told.aggregation = variable.aggregation.value


def _identify(node: Any, identifier: str) -> None:
    node.user_object.identifier = identifier or "_generic_user_object"
    node.user_object.version.producer = node.user_object.version.min_consumer = 1


def _copied(op: Operation) -> Tensor:
    """The output of a copy, in the default graph, of an op without inputs."""
    made = import_graph_def(protos.GraphDef(node=[op.node_def]), return_elements=[f"{op.name}:0"], name="")
    assert made is not None
    return made[0]  # type: ignore[no-any-return]


def _specs(outputs: Any) -> Any:
    """The result of a function with specs for tensors, whose names are their places in it."""

    def spec(path: tuple[Any, ...], value: Any) -> Any:
        if isinstance(value, Tensor):
            return TensorSpec(value.shape, value.dtype.base_dtype, "/".join(map(str, path)) or None)
        return value if value is None or isinstance(value, TensorSpec) else value._type_spec

    flat = [spec(path, value) for path, value in nest.yield_flattened_paths(outputs)]
    return nest.pack_sequence_as(outputs, flat)
