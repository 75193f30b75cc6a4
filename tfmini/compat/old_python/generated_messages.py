"""``*_pb2.py`` files that protobuf's compiler wrote before version 3.20, which later ones refuse to run.

They describe each message twice: in bytes, and in calls that protobuf no longer takes ("Descriptors cannot be created
directly"). The bytes say all, so such a module gets its messages from them, as the files of later compilers do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.abc import InspectLoader, Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from tfmini.compat.old_python.notices import tell_once

_CALLS = ("_descriptor.FileDescriptor(", "_reflection.GeneratedProtocolMessageType(")


def loader_of_messages(fullname: str, loader: Loader) -> Loader:
    """A loader that makes the messages of old generated code; that of the module itself for other code."""
    source = loader.get_source(fullname) if isinstance(loader, InspectLoader) else None
    return _FromBytes(source) if source and any(call in source for call in _CALLS) else loader


class _FromBytes(Loader):
    """Runs what the file imports, then makes the messages that its bytes describe."""

    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from google.protobuf import descriptor_pool
        from google.protobuf.internal import builder

        tell_once("messages that protobuf's compiler wrote before 3.20", "tfmini makes them from their description")
        tree = ast.parse(self._source)
        kept = ast.Module([node for node in tree.body if _stays(node)], type_ignores=[])
        names = vars(module)
        # Python would run all of this file; here a part of it runs: its imports, then the expression of its bytes,
        # which is no literal up to 3.19 (`_b('…')`).
        exec(compile(kept, module.__name__, "exec"), names)  # noqa: S102
        described = eval(compile(ast.Expression(_bytes(tree)), module.__name__, "eval"), names)  # noqa: S307
        file = names["DESCRIPTOR"] = descriptor_pool.Default().AddSerializedFile(described)
        builder.BuildMessageAndEnumDescriptors(file, names)
        builder.BuildTopDescriptorsAndMessages(file, module.__name__, names)
        if file.services_by_name and file.GetOptions().py_generic_services:
            builder.BuildServices(file, module.__name__, names)  # type: ignore[arg-type]  # a dict, as in generated code


def _stays(node: ast.stmt) -> bool:
    """Whether a statement imports other messages, or is the ``_b`` that makes bytes of a literal for Python 2 and 3."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["_b"]
    if isinstance(node, ast.ImportFrom) and node.module == "google.protobuf":
        return all(alias.name.endswith("_pb2") for alias in node.names)
    return isinstance(node, ast.Import | ast.ImportFrom) and not _of_runtime(node)


def _of_runtime(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("google.protobuf.internal")


def _bytes(tree: ast.Module) -> ast.expr:
    """The expression of the description."""
    return next(_described(tree))


def _described(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "serialized_pb")
            if ast.unparse(node.func).endswith(".AddSerializedFile"):
                yield node.args[0]
