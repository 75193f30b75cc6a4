"""Imports flow one way, and only `rpc` speaks ZeroMQ."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tfmini"
# What stands later may import what stands earlier.
LAYERS = (
    *("values", "numerics", "protos", "checkpoint", "graph", "ops", "layers", "placement", "collectives"),
    *("rpc", "runtime", "xla", "data", "train", "estimator", "compat", "show", "launch", "tools", "testing"),
)
# The same inside a layer: a room, or a single file that stands elsewhere in this order than its room.
ROOMS = {
    "ops": (
        *("array", "control", "composites", "collectives"),
        *("waiting_line",),
        *(
            "py_func",
            "gradients",
            "math",
            "session_tensors",
            "flow",
            "debugging",
            "checks",
            "random_ops",
            "quantization",
        ),
        *(
            "math.special",
            "random_functions",
            "variables",
            "flow.functional",
            "flow.tape",
            "flow.effects",
            "flow.autograph",
            "flow.function",
            "custom_gradient",
            "training",
        ),
        *("signal_frames",),
        *(
            "linear_systems",
            "decompositions",
            "clustering",
            "tridiagonal",
            "linalg",
            "sparse",
            "ragged_reductions",
            "ragged",
            "string_ops",
            "string_pieces",
            "unicode",
            "nn",
        ),
        *(
            "image",
            "queues",
            "io",
            "growing",
            "table_state",
            "table_ops",
            "tables",
            "vocabulary_tables",
            "summary_ops",
            "summary",
            "lowering",
            "audio",
        ),
    ),
    "runtime": (
        *(
            "options",
            "native_libraries",
            "snapshot",
            "process",
            "resources",
            "trace",
            "gathered_trace",
            "compiler",
            "collectives",
        ),
        *("executor", "worker", "master", "moving", "client", "waits", "task_status", "server"),
    ),
    "train": (
        *("global_steps", "coordinator", "queue_runners", "strategy", "cluster_resolver"),
        *("optimizers", "checkpointing", "contrib_summary", "summary_writer", "timeline", "session_run_hook"),
        *("hooks", "saving_hooks", "input_batches", "resampling", "sessions", "replicas", "train_ops"),
        *("evaluation", "slim_learning", "store"),
    ),
    "show": ("status", "inspection", "simulation", "planning", "dashboard"),
}
# What a room may not import although its layer may.
FORBIDDEN = {
    "tfmini.runtime.compiler": ("tfmini.rpc", "zmq", "socket"),
    "tfmini.placement": ("tfmini.rpc", "zmq", "socket", "threading"),
    "tfmini.collectives": ("tfmini.graph", "tfmini.rpc", "zmq", "socket"),
    "tfmini.layers.metrics": ("tfmini.layers.rnn_cells", "tfmini.layers.rnn_unrolling", "tfmini.layers.contrib"),
    "tfmini.layers.rnn_cells": ("tfmini.layers.metrics", "tfmini.layers.contrib"),
}
# The values that turn themselves into messages, by an import inside the method that does it.
EXCEPTIONS = {("tfmini.cluster", "tfmini.protos"), ("tfmini.shapes", "tfmini.protos")}
# The root re-exports everything, and these serve it; nobody below imports them.
ROOT_MODULES = {"__init__", "__main__", "namespace", "public_names", "_version"}


def layer_of(module: str) -> str | None:
    """The layer of ``tfmini.a.b`` (None for the root's own modules and for other packages)."""
    parts = module.split(".")
    if parts[0] != "tfmini" or len(parts) == 1 or parts[1] in ROOT_MODULES:
        return None
    return parts[1] if parts[1] in LAYERS else "values"


@functools.cache
def imports_of(path: Path) -> tuple[str, ...]:
    """The absolute names of all modules that a file imports, inside functions as well."""
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            if module == "tfmini":
                yield from (f"tfmini.{alias.name}" for alias in node.names)
            else:
                yield module


def sources() -> Iterator[tuple[str, Path]]:
    """(dotted module name, file) of all that is written by hand."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.stem.endswith("_pb2"):
            dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            yield dotted.removesuffix(".__init__"), path


def test_imports_flow_one_way() -> None:
    wrong = []
    for module, path in sources():
        here = layer_of(module)
        if here is None:
            continue
        for imported in imports_of(path):
            there = layer_of(imported)
            if there is None or (module, imported) in EXCEPTIONS:
                continue
            if LAYERS.index(there) > LAYERS.index(here):
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


def room_of(module: str) -> tuple[str, int] | None:
    """The layer of a module and its room's place in that layer (None where the layer has no order)."""
    layer, _, inner = module.removeprefix("tfmini.").partition(".")
    if not module.startswith("tfmini.") or layer not in ROOMS or not inner:
        return None
    rooms = [room for room in ROOMS[layer] if f"{inner}.".startswith(f"{room}.")]
    assert rooms, f"{module} is in no room of {layer}; add it to ROOMS"
    return layer, ROOMS[layer].index(max(rooms, key=len))


def test_imports_between_rooms_flow_one_way() -> None:
    wrong = []
    for module, path in sources():
        here = room_of(module)
        for imported in imports_of(path) if here else ():
            there = room_of(imported)
            if here and there and here[0] == there[0] and there[1] > here[1]:
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_rooms_that_stay_apart() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, path in sources()
        for room, forbidden in FORBIDDEN.items()
        if f"{module}.".startswith(f"{room}.")
        for imported in imports_of(path)
        if f"{imported}.".startswith(tuple(f"{name}." for name in forbidden))
    ]
    assert wrong == []


def test_nothing_below_imports_the_root() -> None:
    roots = {"tfmini", "tfmini.namespace", "tfmini.public_names"}
    wrong = [
        f"{module} imports {imported}"
        for module, path in sources()
        if layer_of(module) not in (None, "tools", "testing")
        for imported in imports_of(path)
        if imported in roots
    ]
    assert wrong == []


def test_only_rpc_imports_zmq() -> None:
    wrong = [
        module
        for module, path in sources()
        if layer_of(module) != "rpc" and any(name.split(".")[0] == "zmq" for name in imports_of(path))
    ]
    assert wrong == []


def test_training_has_the_clock_of_its_process() -> None:
    """So it also runs in virtual time (`runtime.process`)."""
    wrong = [
        module
        for module, path in sources()
        if layer_of(module) == "train" and any(name.split(".")[0] in ("time", "datetime") for name in imports_of(path))
    ]
    assert wrong == []


def test_no_pickle_anywhere() -> None:
    wrong = [
        module
        for module, path in sources()
        if any(name.split(".")[0] in ("pickle", "marshal", "shelve") for name in imports_of(path))
    ]
    assert wrong == []
