"""Imports flow one way, and only `rpc` speaks ZeroMQ.

``.venv/bin/python tests/test_layering.py`` prints the circles of imports, with those inside functions and for types.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import networkx

PACKAGE = Path(__file__).parents[1] / "tfmini"
# What stands later may import what stands earlier.
LAYERS = (
    *("values", "numerics", "protos", "checkpoint", "graph", "ops", "layers", "placement", "collectives"),
    *("rpc", "status", "runtime", "data", "train", "estimator", "compat", "inspection"),
    "simulation",
    "dashboard",
    *("planning", "tools", "engines", "testing"),
)
# The same inside a layer: a room, or a single file that stands elsewhere in this order than its room.
ROOMS = {
    "ops": (
        *("array", "control", "sparse.sparse_tensor", "type_specs", "collectives", "clock", "session_tensors"),
        *("kept_values", "shared_state", "waiting_line"),
        *("sample_ops", "py_func", "gradients", "math", "flow", "debugging", "flow.case", "random", "math.special"),
        *("variables", "flow.functional", "gradients.custom_gradient", "training", "linalg", "sparse", "ragged"),
        *("strings", "nn", "image", "queues", "io", "tables", "summary"),
    ),
    "runtime": (
        *("options", "forks", "blas_threads", "heap", "step_ids", "process", "targets", "resources", "session_owners"),
        *("trace", "compiler", "collectives", "executor", "worker", "master", "client", "status", "server"),
    ),
    "train": (
        *("global_steps", "coordinator", "strategy", "cluster_resolver", "slurm_cluster_resolver"),
        *("optimizers", "checkpointing", "summaries", "hooks", "inputs", "sessions", "replicas", "loops"),
    ),
}
# What a room may not import although its layer may.
FORBIDDEN = {
    "tfmini.runtime.compiler": ("tfmini.rpc", "zmq", "socket"),
    "tfmini.placement": ("tfmini.rpc", "zmq", "socket", "threading"),
    "tfmini.collectives": ("tfmini.graph", "tfmini.rpc", "zmq", "socket"),
    "tfmini.layers.metrics": ("tfmini.layers.rnn", "tfmini.layers.contrib"),
    "tfmini.layers.rnn": ("tfmini.layers.metrics", "tfmini.layers.contrib"),
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


@functools.cache
def edges() -> tuple[tuple[str, str], ...]:
    """(module, module that it imports) for all imports: also inside functions, for types, and by a constant name."""
    modules = {module: path for module, path in sources() if module.split(".")[1:2] != ["__main__"]}
    found = set()
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _named_by(node):
                while name not in modules and "." in name:  # a class or function of a module
                    name = name.rpartition(".")[0]
                if name in modules and name not in (module, "tfmini"):
                    found.add((module, name))
    return tuple(sorted(found))


def _named_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def circles(part_of: Callable[[str], str]) -> list[list[str]]:
    """The circles of imports between the parts (modules, packages) that modules belong to, the largest first."""
    graph = networkx.DiGraph((part_of(a), part_of(b)) for a, b in edges() if part_of(a) != part_of(b))
    return sorted((sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1), key=len)[::-1]


def package_of(module: str) -> str:
    """The package of a module; a module of the root stands for itself."""
    return ".".join(module.split(".")[:2])


def test_no_packages_import_each_other() -> None:
    assert circles(package_of) == []


# A graph is typed by its operations, and an operation by its graph. The others are to go.
MOST_CIRCLES = 15


def test_few_modules_import_each_other() -> None:
    found = circles(str)
    assert len(found) <= MOST_CIRCLES, found
    of_graph = [circle for circle in found if package_of(circle[0]) == "tfmini.graph"]
    names = ("flow_checks", "graph", "graph_elements", "graph_scopes", "operation", "scopes")
    assert of_graph in ([], [[f"tfmini.graph.{name}" for name in names]])


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


if __name__ == "__main__":
    print(f"{len(circles(package_of))} circles of packages, {len(circles(str))} of modules")
    for circle in circles(str):
        print(f"{len(circle):3} {', '.join(circle)}")
