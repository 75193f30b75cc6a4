"""What ``tensorflow.python.keras.backend`` remembers: numbers, sessions, learning phases, names, variables.

Keras 2.3's backend for TensorFlow keeps none of it itself: it asks this module of TensorFlow, which
`tfmini.compat.tf_keras.backend` serves.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from tfmini.graph import nest
from tfmini.graph.default_graph import get_default_graph, reset_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.identity import cast, placeholder_with_default
from tfmini.ops.variables.assignment import is_variable_initialized
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.functions import variables_initializer
from tfmini.runtime.client.session import Session
from tfmini.train.checkpointing.object_saving import register_session_provider

# ---- Numbers and formats ---------------------------------------------------------------------------------------------

_numbers: dict[str, Any] = {"floatx": "float32", "epsilon": 1e-7, "image_data_format": "channels_last"}


def floatx() -> str:
    """The default element type: "float16", "float32" or "float64"."""
    return str(_numbers["floatx"])


def set_floatx(value: str) -> None:
    """Sets the default element type; raises ValueError for others."""
    if value not in ("float16", "float32", "float64"):
        raise ValueError(f"Unknown floatx type: {value}")
    _numbers["floatx"] = str(value)


def epsilon() -> float:
    """The small number that keeps logarithms and divisions finite."""
    return float(_numbers["epsilon"])


def set_epsilon(value: float) -> None:
    """Sets that number."""
    _numbers["epsilon"] = value


def image_data_format() -> str:
    """ "channels_first" or "channels_last"."""
    return str(_numbers["image_data_format"])


def set_image_data_format(data_format: str) -> None:
    """Sets the default format of images; raises ValueError for others."""
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"Unknown data_format: {data_format}")
    _numbers["image_data_format"] = str(data_format)


def cast_to_floatx(x: Any) -> Any:
    """An array, or a tensor of one, of the default element type."""
    if isinstance(x, (Tensor, Variable)):
        return cast(x, floatx())
    return np.asarray(x, dtype=floatx())


LIBRARY = "tfmini.compat.tf_keras.keras"  # the copy of Keras


def library_root() -> Any:
    """The copy of Keras, once it is loaded: for what it calls."""
    return sys.modules[LIBRARY]


def tf_logging() -> Any:
    """The module of ``tf.logging``, at the private path, where a program may have replaced it."""
    from tfmini.compat import internals

    return internals.module("python.platform.tf_logging")


# ---- Names -----------------------------------------------------------------------------------------------------------

_uids: weakref.WeakKeyDictionary[Graph, defaultdict[str, int]] = weakref.WeakKeyDictionary()


def get_uid(prefix: str = "") -> int:
    """The next number of a prefix in the default graph, from 1."""
    counts = _uids.setdefault(get_default_graph(), defaultdict(int))
    counts[prefix] += 1
    return counts[prefix]


def reset_uids() -> None:
    """Begins again at 1, in all graphs."""
    _uids.clear()
    _names.clear()


_names: weakref.WeakKeyDictionary[Graph, defaultdict[str, int]] = weakref.WeakKeyDictionary()


def to_snake_case(name: str) -> str:
    """The name of an object for that of its class: my_layer for MyLayer."""
    name = re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()
    return name if name[0] != "_" else f"private{name}"


def unique_name(name: str) -> str:
    """A name for a layer or model of ``tf.keras`` in the default graph: dense, dense_1, dense_2."""
    counts = _names.setdefault(get_default_graph(), defaultdict(int))
    counts[name] += 1
    return name if counts[name] == 1 else f"{name}_{counts[name] - 1}"


# ---- The session -----------------------------------------------------------------------------------------------------

_session = threading.local()
_variables: weakref.WeakKeyDictionary[Graph, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
_initializes = [True]


def manual_variable_initialization(value: bool) -> None:
    """With True, the program initializes variables itself; else `get_session` does."""
    _initializes[0] = not value


def get_graph() -> Graph:
    """The default graph."""
    return get_default_graph()


def get_session(op_input_list: Any = ()) -> Any:
    """The default session, or one of Keras in which its variables have values.

    Args:
      op_input_list: tensors whose graph the session has, instead of the default graph.
    """
    session = get_default_session()
    if session is None:
        graph = next((x.graph for x in nest.flatten(op_input_list) if hasattr(x, "graph")), get_default_graph())
        session = getattr(_session, "value", None)
        if session is None or session.graph is not graph:
            session = _session.value = Session(graph=graph)
    if _initializes[0]:
        with session.graph.as_default():
            initialize_variables(session)
    return session


register_session_provider(get_session)


def set_session(session: Any) -> None:
    """Makes Keras use a session, in this thread."""
    _session.value = session


_kind = threading.local()
_LOCAL = (GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES)


@contextmanager
def variables_train(trainable: bool, local: bool = False) -> Iterator[None]:
    """Says what the variables are that Keras makes in a ``with`` block.

    Args:
      trainable: whether an optimizer of ``tf.train`` trains them.
      local: whether they are a metric's, which no checkpoint has.
    """
    before = kind_of_variables()
    _kind.value = (trainable, _LOCAL if local else None)
    try:
        yield
    finally:
        _kind.value = before


def kind_of_variables() -> tuple[bool, Any]:
    """What `variables_train` says: whether they are trained, and their collections (None: the usual ones)."""
    return getattr(_kind, "value", (True, None))


def track_all_variables() -> None:
    """Lets `get_session` initialize all variables that the default graph has so far, the program's too."""
    graph = get_default_graph()
    for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
        track_variable(variable)


def track_variable(variable: Any) -> None:
    """Lets `get_session` initialize a variable, unless it has a value by then."""
    _variables.setdefault(variable.graph, weakref.WeakSet()).add(variable)


def initialize_variables(session: Any) -> None:
    """Initializes the variables of Keras in a session's graph that have no values yet."""
    candidates = [
        v for v in sorted(_variables.get(session.graph, ()), key=lambda v: str(v.name))
        if not getattr(v, "_keras_initialized", False)
    ]  # fmt: skip
    if not candidates:
        return
    have = session.run([is_variable_initialized(v) for v in candidates])
    without = [v for v, has in zip(candidates, have) if not has]
    for variable in candidates:
        variable._keras_initialized = True
    if without:
        session.run(variables_initializer(without))


def clear_session() -> None:
    """Begins anew: another default graph, without session, names and learning phase."""
    reset_default_graph()
    reset_uids()
    _session.value = None
    _phases.clear()
    learning_phase()


# ---- The learning phase ----------------------------------------------------------------------------------------------

_phases: weakref.WeakKeyDictionary[Graph, Any] = weakref.WeakKeyDictionary()


def learning_phase() -> Any:
    """1 or 0 if that was set; else a tensor of the default graph, which is False unless it is fed."""
    graph = get_default_graph()
    if graph not in _phases:
        with name_scope(None), graph.device(None), graph.control_dependencies(None):
            _phases[graph] = placeholder_with_default(False, shape=(), name="keras_learning_phase")
    return _phases[graph]


def known_learning_phase() -> Any:
    """The phase of the default graph; None if nothing has asked for it."""
    return _phases.get(get_default_graph())


symbolic_learning_phase = learning_phase


def set_learning_phase(value: int) -> None:
    """Fixes the phase in the default graph: 1 to train, 0 to test; raises ValueError for others."""
    if value not in {0, 1}:
        raise ValueError("Expected learning phase to be 0 or 1.")
    _phases[get_default_graph()] = value


_in_scope = threading.local()


def is_in_phase_scope() -> bool:
    """Whether this thread is in a `learning_phase_scope`."""
    return getattr(_in_scope, "depth", 0) > 0


@contextmanager
def learning_phase_scope(value: Any) -> Iterator[None]:
    """Fixes the phase in the default graph for a ``with`` block: 0, 1, or a tensor that says it; else ValueError."""
    graph = get_default_graph()
    if not hasattr(value, "graph") and value not in {0, 1}:
        raise ValueError("Expected learning phase to be 0 or 1.")
    before = _phases.get(graph)
    _phases[graph] = int(value) if isinstance(value, (bool, int, np.bool_, np.integer)) else value
    _in_scope.depth = getattr(_in_scope, "depth", 0) + 1
    try:
        yield
    finally:
        _in_scope.depth -= 1
        if before is None:
            _phases.pop(graph, None)
        else:
            _phases[graph] = before


def callers_phase() -> Any:
    """The phase of the layer or model whose call is in progress; None if nobody has told one."""
    phase = known_learning_phase() if is_in_phase_scope() else None
    return bool(phase) if isinstance(phase, int) else phase


def calls_in_phase(phase: Any) -> AbstractContextManager[None]:
    """The call of a layer in a phase, which its layers have, too; None: in that of its caller."""
    return nullcontext() if phase is None else learning_phase_scope(phase)


def reachable(inputs: Iterable[Any], targets: set[Any] | None = None) -> set[Any]:
    """What depends on tensors: all tensors and operations, or until one of ``targets`` is among them."""
    queue = [x for x in inputs if hasattr(x, "graph")]
    found = set(queue)
    while queue:
        x = queue.pop()
        for after in x.outputs if hasattr(x, "outputs") else x.consumers():
            if after not in found:
                found.add(after)
                if targets and after in targets:
                    return found
                queue.append(after)
    return found
