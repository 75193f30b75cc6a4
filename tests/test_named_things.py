"""The things that documents and docstrings name in backticks exist: files, modules, classes, attributes, variables.

In docstrings, TensorFlow's own names stand in double backticks; of these only `tf.…` is checked. The names are looked
up in the source text: a name exists if its class, one of the base classes, or its module defines it. A name that begins
with a variable (`server.join()`) must end with a name that some class or module defines. A name of one word is checked
if it has an underscore and stands in a module or a page of concepts. Names of Python, numpy and other packages are not
checked.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmini
from tfmini.out_of_scope import alternative

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for path in (ROOT / "tfmini").rglob("*.py") if not path.name.endswith("_pb2.py"))
PAGES = sorted(
    page
    for place in ("*", "docs/**/*", "examples/*", "benchmarks/*")
    for page in ROOT.glob(place + ".md")
    if page.name != "libraries.md"  # lists names that are absent
)
NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`|``(tf\.[\w.]*\w)(?:\(\))?``")
FILE = re.compile(r"`((?:[\w.-]+/)*\w+\.py)`")
PATH = re.compile(r"(?<!`)`((?:tfmini/)?(\w+)/[\w./-]*)`")  # (path, its first folder below tfmini)
WORD = re.compile(r"(?<!`)`([a-z]+(?:_[a-z0-9]+)+)(?:\(\))?`")
VARIABLE = re.compile(r"\bTFMINI_[A-Z_]*[A-Z]\b")
OTHER_PACKAGES = {
    "keras",
    "scipy",
    *("absl", "array", "compat", "horovod", "hvd", "learn", "ndarray", "np", "slim", "tensorflow", "ufunc"),
    *sys.stdlib_module_names,
    "imp",  # of Python until 3.11
}
NO_ATTRIBUTES = {"x", "py", "md", "json", "txt", "html", "toml", "pbtxt", "typed", "admitted", "key_secret"}
# What the documents name because it does not exist, or does so no longer.
ABSENT = {
    *("Saver._add_collection_def", "nn_conv.py", "session_fetches.py"),
    *("tf.random.Generator", "tf.PartitionedVariable", "tf.compat.v1"),  # of TensorFlow, not of its API of 1.15
    *("tf.compat.v2.where", "tf.compat.v2.Variable", "tensor2tensor.models"),  # of version 2, and of a library
    *("tf.compat.v2.nn.max_pool", "tf.compat.v2.nn.conv3d_transpose"),
}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings, also of those under assignments, and of long comments in text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


@functools.cache
def texts() -> dict[str, str]:
    """Place -> text that names things: pages, and modules with only their docstrings and comments."""
    found = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    for path, tree in trees().items():
        comments = re.findall(r"(?:^|\s)#(.*)$", path.read_text(), re.MULTILINE)
        found[str(path.relative_to(ROOT))] = "\n".join([*(text for _, text in docstrings(tree)), *comments])
    return found


def targets(node: ast.AST) -> Iterator[str]:
    """The names that a statement defines: those of variables and of attributes of ``self``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).rpartition(".")[2]
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        yield node.value  # of __slots__, or of a table of names


@functools.cache
def modules() -> dict[str, set[str]]:
    """Last name of a module or package -> what its modules define, at any depth, and its modules."""
    found: dict[str, set[str]] = {}
    for path, tree in trees().items():
        name = path.parent.name if path.stem == "__init__" else path.stem
        found.setdefault(name, set()).update(name for node in ast.walk(tree) for name in targets(node))
        found.setdefault(path.parent.name, set()).update({path.stem, *found[name]})
        found.setdefault(path.parents[1].name, set()).add(path.parent.name)
    return found


@functools.cache
def identifiers() -> set[str]:
    """What the sources define anywhere, and the names of the folders, modules and fields of messages."""
    return set(modules()).union(*modules().values(), *message_fields().values())


@functools.cache
def message_fields() -> dict[str, set[str]]:
    """Protobuf message -> its fields and enum values."""
    found = {}
    pending = [getattr(getattr(tfmini.protos, name), "DESCRIPTOR", None) for name in dir(tfmini.protos)]
    while pending:
        descriptor = pending.pop()
        if hasattr(descriptor, "fields_by_name"):
            found[descriptor.name] = {*descriptor.fields_by_name, *descriptor.enum_values_by_name}
            pending += descriptor.nested_types
    return found


@functools.cache
def classes() -> dict[str, tuple[set[str], set[str]]]:
    """Class -> (what it defines, its bases); classes of one name are joined."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own, bases = found.setdefault(node.name, (set(), set()))
                own.update(name for inner in ast.walk(node) for name in targets(inner))
                bases.update(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    return found


def has_attribute(owner: str, name: str) -> bool:
    if name in message_fields().get(owner, ()):
        return True
    if owner not in classes():
        return False
    own, bases = classes()[owner]
    return name in own or any(has_attribute(base, name) for base in bases - {owner})


@functools.cache
def public() -> set[str]:
    """The names of TensorFlow 1.x and those of tfmini, with their namespaces."""
    text = "\n".join((ROOT / "tests" / name).read_text() for name in ("api_v1.txt", "public_names.txt"))
    names = set(re.findall(r"\btf(?:\.\w+)+", text))
    return {".".join(name.split(".")[:n]) for name in names for n in range(2, len(name.split(".")) + 1)}


def exists(name: str) -> bool:
    first, *rest = name.split(".")
    if first in OTHER_PACKAGES:
        return True
    if name.startswith("tf.keras."):
        return _is_of_keras(name)
    if first == "tf":
        owner, _, last = name.rpartition(".")
        is_public = name in public() or owner in public() and has_attribute(owner.rpartition(".")[2], last)
        return is_public or alternative(name[3:]) is not None
    if first == "tfmini":
        known = rest[0] in modules() or rest[0] in modules()["tfmini"] if len(rest) == 1 else exists(".".join(rest))
        return known or exists(f"tf.{'.'.join(rest)}")
    owner, last = [first, *rest][-2:]
    if owner in classes() or owner in message_fields():
        return has_attribute(owner, last)
    if owner in modules() and last in modules()[owner]:
        return True
    fields = set().union(*message_fields().values())
    if owner in fields and last in fields:
        return True
    return owner not in modules() and owner[0].islower() and {owner, last} <= identifiers()


def _is_of_keras(name: str) -> bool:
    """Whether the namespace has a name below ``tf.keras``, which comes from the installed Keras."""
    found: Any = tfmini
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found is not None


def missing(found: Iterator[tuple[str, str]]) -> list[str]:
    return sorted({f"{place}: {name}" for place, name in found if name not in ABSENT})


def names(text: str) -> Iterator[str]:
    """The dotted names in a text, without files and without placeholders such as `FLAGS.x` and `NAME.admitted`."""
    for name in (one or other for one, other in NAME.findall(text)):
        last = name.rpartition(".")[2]
        if last not in NO_ATTRIBUTES and not last.startswith("__"):
            yield name


def test_named_attributes_exist() -> None:
    assert missing((p, n) for p, text in texts().items() for n in names(text) if not exists(n)) == []


def test_named_files_exist() -> None:
    files = {path.relative_to(ROOT).as_posix() for place in ("tfmini", "tests", "examples", "benchmarks")
             for path in (ROOT / place).rglob("*.py")}  # fmt: skip
    assert missing((p, n) for p, text in texts().items() for n in FILE.findall(text)
                   if not any(f"/{file}".endswith(f"/{n}") for file in files)) == []  # fmt: skip


def test_named_folders_exist() -> None:
    """Of paths that begin with a folder of tfmini, with or without a suffix; history names folders of its time."""
    rooms = {"tfmini", *(path.parent.name for path in (ROOT / "tfmini").glob("*/__init__.py"))}
    now = {place: text for place, text in texts().items() if not place.startswith(("CHANGELOG", "docs/decisions"))}
    found = {(place, path, room) for place, text in now.items() for path, room in PATH.findall(text)}
    assert missing((place, path) for place, path, room in found if room in rooms and not any(
        (ROOT / base / path).exists() for base in ("", "tfmini", "tests"))) == []  # fmt: skip


def test_named_words_exist() -> None:
    """A module that has been renamed or merged is named no more."""
    places = {place: text for place, text in texts().items() if place.startswith(("tfmini/", "docs/concepts/"))}
    assert missing((p, n) for p, text in places.items() for n in WORD.findall(text) if n not in identifiers()) == []


def test_named_environment_variables_are_read() -> None:
    used = set()
    others = [path for place in ("tests", "benchmarks") for path in (ROOT / place).rglob("*.py")]
    for tree in [*trees().values(), *(ast.parse(path.read_text()) for path in others if "TFMINI_" in path.read_text())]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value):
                used.add(node.value)
    assert missing((p, n) for p, text in texts().items() for n in VARIABLE.findall(text) if n not in used) == []


@pytest.mark.parametrize("name, is_there", [
    ("tf.Session.run", True), ("tf.Session.rum", False), ("tf.train.Servant", False), ("tfmini.rpc", True),
    ("tfmini.rpc.gone", False), ("Reactor.drive", True), ("Reactor.dive", False), ("server.join", True),
    ("server.joyn", False), ("ConfigProto.device_count", True), ("ConfigProto.devices_count", False),
    ("sys.argv", True), ("codec.encode", True), ("codec.encore", False), ("gone_module.join", False),
])  # fmt: skip
def test_the_lookup_tells_names_from_typos(name: str, is_there: bool) -> None:
    assert exists(name) is is_there


HEADING = re.compile(r"^# -{2,} (.+?) *-*$", re.MULTILINE)


def test_a_heading_says_what_its_section_holds() -> None:
    """Not the name of the file, under which the reader has found it, and no two sections by one name."""
    wrong = []
    for path in SOURCES:
        headings = HEADING.findall(path.read_text())
        own = path.parent.name if path.stem == "__init__" else path.stem
        wrong += [f"{path.relative_to(ROOT)}: {heading}" for heading in headings
                  if heading.lower().replace(" ", "_") == own or headings.count(heading) > 1]  # fmt: skip
    assert wrong == []


# TensorFlow and Horovod have each of them twice, in different namespaces; tf.keras has optimizers of its own.
TWICE = {"Dataset", "DenseHashTable", "MutableHashTable", "Optimizer", "ReduceOp", "TFRecordWriter"}


def test_a_class_has_its_name_for_itself() -> None:
    """One word, one meaning: whoever looks for a class by its name finds one."""
    places: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in TWICE} == {}


def test_a_term_has_one_meaning_in_the_glossary() -> None:
    terms = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "reference" / "glossary.md").read_text(), re.MULTILINE)
    listed = [term for row in terms for term in row.strip().split(", ") if term not in ("term", "---")]
    assert sorted(term for term in set(listed) if listed.count(term) > 1) == []
