"""What of one source will not run: names that are absent, calls that do not fit, and what Python 2 did otherwise."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tfmini._version import API_VERSION as VERSION
from tfmini.compat.old_python import arrays, behaviours
from tfmini.tools import python2
from tfmini.tools.migration import known
from tfmini.tools.migration.known import Absent
from tfmini.tools.migration.sources import DIVISION, MAYBE, MENDED, STOPS, Obstacle, Parsed
from tfmini.tools.migration.uses import BUILTINS, Found, Member, Use, uses

_PRINT = ("print statement that Python 3 takes for something else", "write print(...) around all of it, with file=f")
_QUOTIENT = "write //: in Python 3 the / of two integers is a float"


@dataclass(frozen=True)
class Project:
    """What belongs to a program beside the source that is checked.

    Attributes:
      modules: the names of its own modules and packages that can be imported.
      siblings: the names of modules beside the source in a package, which only Python 2 found by their name alone.
      defined: the names of functions and methods that its sources define.
    """

    modules: Collection[str] = ()
    siblings: Collection[str] = ()
    defined: Collection[str] = ()


def read(parsed: Parsed) -> Found:
    """What a source uses."""
    return uses(parsed.tree, known.public_names)


def check(parsed: Parsed, found: Found, project: Project) -> list[Obstacle]:
    """What of a source will not run, by line."""
    findings = [*parsed.findings, *_names(found, project), *_members(found, project)]
    for use in found.uses:
        if use.call is not None and not _is_own(use.path, project):
            findings += _call(use, use.call)
    findings += [Obstacle(line, *_PRINT, "python 2") for line in found.prints]
    findings += [Obstacle(line, f"{text} is no integer", _QUOTIENT, "python 2") for line, text in found.quotients]
    if parsed.is_python_2 and not _divides_truly(parsed.tree):
        found_whole = {(node.lineno, ast.unparse(node)) for node in found.whole}
        findings += [Obstacle(line, text, _QUOTIENT, "python 2", fixer=DIVISION) for line, text in found_whole]
    findings += [*_versions(parsed.tree), *_changed_while_read(parsed.tree)]
    return sorted(set(findings))


def _divides_truly(tree: ast.Module) -> bool:
    """Whether ``from __future__ import division`` makes / what it is in Python 3."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    return any(name.name == "division" for node in imports for name in node.names)


def _is_own(path: str, project: Project) -> bool:
    root = path.partition(".")[0]
    return root in project.modules or root in project.siblings


# ---- Names -----------------------------------------------------------------------------------------------------------


def _names(found: Found, project: Project) -> Iterator[Obstacle]:
    imported: set[str] = set()  # what an import statement misses is told there alone
    for use in sorted(found.uses, key=lambda use: not use.is_import):
        if _is_own(use.path, project):
            yield from _sibling(use, project)
            continue
        if not all(any(_fails(path, project) for path in group) for group in use.instead_of):
            continue
        for path, finding in _name(use):
            if use.is_import:
                imported.add(path)
            if use.is_import or not path or path not in imported:
                yield finding


def _fails(path: str, project: Project) -> bool:
    """Whether an import fails."""
    use = Use(path, 0, path, is_import=True)
    return not _is_own(path, project) and any(finding.level == STOPS for _, finding in _name(use))


def _sibling(use: Use, project: Project) -> Iterator[Obstacle]:
    root = use.path.partition(".")[0]
    if use.is_import and root not in project.modules and not known.is_installed(root):
        remedy = f"write from . import {root}: Python 3 finds it so only if a script in its folder is run"
        yield Obstacle(use.line, f"import {root}", remedy, "python 2", MAYBE)


def _name(use: Use) -> Iterator[tuple[str, Obstacle]]:
    """What is wrong with a name: the path that is missing, and the finding."""
    root, _, name = use.path.partition(".")
    if root == BUILTINS:
        if not hasattr(builtins, name) and name in python2.NAMES:
            yield "", Obstacle(use.line, name, python2.NAMES[name], "python 2", fixer=_FIXERS.get(name, ""))
    elif root in python2.MODULES and not known.is_installed(root):
        if use.is_import:
            yield (
                root,
                Obstacle(use.line, f"module {root}", python2.MODULES[root], "python 2", fixer=_module_fixer(root)),
            )
    elif root in known.OF_TENSORFLOW:
        absent = known.look_up(use.path)
        if isinstance(absent, Absent):
            what = absent.path.replace("tensorflow.", "tf.", 1)
            yield absent.path, Obstacle(use.line, what, known.told(absent), "tensorflow")
    elif known.of_module_to_go(use.path) or known.is_known(root):
        yield from _of_package(use, root)
    elif use.is_import and not known.is_installed(package := _package(use.path)):
        yield package, Obstacle(use.line, f"package {package}", f"pip install {known.distribution(package)}", "package")


def _package(path: str) -> str:
    """The root of a path; its first two parts where packages of many authors share the root."""
    return ".".join(path.split(".")[: 2 if path.startswith("google.") else 1])


def _of_package(use: Use, root: str) -> Iterator[tuple[str, Obstacle]]:
    """A name of Python or of a package that is installed."""
    absent = known.look_up(use.path)
    to_go = known.of_module_to_go(use.path)
    given = known.mended(use.path)
    if given and (to_go or isinstance(absent, Absent)):
        path = root if to_go else use.path
        if use.is_import or not to_go:
            yield path, Obstacle(use.line, use.path, given, "python", MENDED)
    elif isinstance(absent, Absent) and absent.package and not to_go:
        if use.is_import:
            yield root, Obstacle(use.line, f"package {root}", f"pip install {known.distribution(root)}", "package")
    elif isinstance(absent, Absent) or (to_go and "." in use.path):
        path = absent.path if isinstance(absent, Absent) and not (to_go and absent.package) else use.path
        fixer = "urllib" if root == "urllib" else "imports" if root in ("itertools", "types") else ""
        yield path, Obstacle(use.line, path, _instead(path, root), "python", fixer=fixer)


def _instead(path: str, root: str) -> str:
    way = known.dropped(path) or python2.ATTRIBUTES.get(path.rpartition(".")[2], "")
    plain = f"{known.version_of(root)} has none"
    return f"{plain}; {way if way.startswith(('write', 'import', 'leave')) else 'use ' + way}" if way else plain


_FIXERS = {
    "xrange": "xrange", "raw_input": "raw_input", "unicode": "unicode", "basestring": "basestring", "long": "long",
    "unichr": "unicode", "reduce": "reduce", "reload": "reload", "execfile": "execfile", "iteritems": "dict",
    "itervalues": "dict", "iterkeys": "dict", "viewitems": "dict", "viewvalues": "dict", "viewkeys": "dict",
    "has_key": "has_key", "next": "next", "func_name": "funcattrs", "func_code": "funcattrs",
}  # fmt: skip


def _module_fixer(root: str) -> str:
    return "urllib" if root == "urllib2" else "imports"


# ---- Attributes and items of what is no path -------------------------------------------------------------------------

_CERTAIN = ("iteritems", "itervalues", "iterkeys", "viewitems", "viewvalues", "viewkeys", "has_key")
_OLD_MEMBERS = {
    "func_name": "write __name__", "func_code": "write __code__", "func_defaults": "write __defaults__",
    "im_func": "write __func__", "im_self": "write __self__", "im_class": "write type(x.__self__)",
    "getchildren": "write list(element)",
}  # fmt: skip
_OF_ARRAYS = {name: arrays.METHODS[name][1] for name in ("tostring", "itemset")}  # the others have namesakes
_VIEWS = {"keys", "values", "items"}
_LAZY = {"map", "zip", "filter"}


def _members(found: Found, project: Project) -> Iterator[Obstacle]:
    packages = {use.path.partition(".")[0] for use in found.uses}
    for member in found.members:
        if member.name in project.defined:
            continue
        if member.name in _CERTAIN:
            fix = python2.ATTRIBUTES[member.name]
            yield Obstacle(member.line, f".{member.name}", fix, "python 2", fixer=_FIXERS[member.name])
        elif member.name == "next" and member.call is not None and not member.call.args:
            yield Obstacle(member.line, f"{member.text}()", "write next(iterator)", "python 2", MAYBE, "next")
        elif member.name in _OLD_MEMBERS:
            yield Obstacle(member.line, f".{member.name}", _OLD_MEMBERS[member.name], "python")
        elif member.name in _OF_ARRAYS and not _is_there(member.name):
            yield Obstacle(
                member.line, f".{member.name}", f"tfmini run gives {_OF_ARRAYS[member.name]}", "python", MENDED
            )
        elif given := _given_member(member, packages):
            yield given
        yield from _of_list(member)


@cache
def _is_there(name: str) -> bool:
    """Whether the arrays of the numpy that is installed still have an attribute that newer ones lack."""
    return hasattr(np.ndarray, name)


def _given_member(member: Member, packages: Collection[str]) -> Obstacle | None:
    for package, names in behaviours.MEMBERS.items():
        if package in packages and member.name in names:
            remedy = "tfmini run gives it back"
            return Obstacle(member.line, f".{member.name} of {package}", remedy, "python", MENDED)
    return None


def _of_list(member: Member) -> Iterator[Obstacle]:
    """Python 2 made lists of what Python 3 makes iterators and views of."""
    what = _no_list(member.owner)
    if what and (member.is_position or member.name in ("sort", "append", "extend", "remove", "reverse")):
        remedy = f"write list({what}): it is no list in Python 3"
        text = member.text if member.name == "" else f"{member.text}()"
        yield Obstacle(member.line, text, remedy, "python 2")


def _no_list(node: ast.expr) -> str:
    """What makes a value that was a list in Python 2 and is none in Python 3; "" for others."""
    return _view(node) or _lazy(node)


def _view(node: ast.expr) -> str:
    """A call for the keys, values or items of a dictionary, as ``….keys()``; "" for others."""
    function = node.func if isinstance(node, ast.Call) and not node.args and not node.keywords else None
    return f"….{function.attr}()" if isinstance(function, ast.Attribute) and function.attr in _VIEWS else ""


def _lazy(node: ast.expr) -> str:
    """A call of a function that gives an iterator, as ``map(…)``; "" for others."""
    function = node.func if isinstance(node, ast.Call) and node.args and not node.keywords else None
    return f"{function.id}(…)" if isinstance(function, ast.Name) and function.id in _LAZY else ""


# ---- Calls -----------------------------------------------------------------------------------------------------------


def _call(use: Use, call: ast.Call) -> Iterator[Obstacle]:
    path = use.path.replace("tensorflow.compat.v1.", "tensorflow.", 1)
    for check in (_old_order, _old_behaviour):
        finding = check(path, use, call)
        if finding is not None:
            yield finding
            return
    root = path.partition(".")[0]
    if root in known.OF_TENSORFLOW:
        for what in map(_lazy, _arguments(call)):  # many functions take views, and apply_gradients takes zip(...)
            if what not in ("", "zip(…)"):
                yield Obstacle(use.line, f"{what} for {use.text}", f"write list({what})", "python 2", MAYBE)
    if root in known.OF_TENSORFLOW or root in ("numpy", "scipy") or path == "builtins.sorted":  # which took cmp=
        misfit = _misfit(path, call)
        if misfit:
            yield Obstacle(use.line, f"{use.text}(...)", misfit, "signature")


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


class _Any:
    """Stands for an argument."""


def _misfit(path: str, call: ast.Call) -> str:
    """Why the arguments of a call do not fit what it calls; "" if they do, or if that cannot be seen."""
    signature = known.signature(path)
    if signature is None:
        return ""
    is_partial = any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords)
    args = [_Any() for arg in call.args if not isinstance(arg, ast.Starred)]
    keywords: dict[str, Any] = {keyword.arg: _Any() for keyword in call.keywords if keyword.arg is not None}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    unknown = [] if takes_any else [keyword for keyword in keywords if keyword not in signature.parameters]
    if unknown:
        return f"there is no argument {' or '.join(unknown)}; the arguments are {_shown(signature)}"
    try:
        (signature.bind_partial if is_partial else signature.bind)(*args, **keywords)
    except TypeError as error:
        return f"{error}; the arguments are {_shown(signature)}"
    return ""


def _shown(signature: inspect.Signature) -> str:
    names = [str(p.replace(annotation=p.empty, default=p.empty)) for p in signature.parameters.values()]
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


_NAMED_ONLY = {
    *("softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_logits_v2"),
    *("sparse_softmax_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits"),
}


def _old_order(path: str, use: Use, call: ast.Call) -> Obstacle | None:
    """A call with the arguments in the order of TensorFlow 0.x."""
    args, name = call.args, path.removeprefix("tensorflow.")
    first_is_axis = bool(args) and _is_int(args[0])
    told = ""
    if name == "concat" and len(args) > 1 and first_is_axis and not _is_int(args[1]):
        told = "write tf.concat(values, axis): TensorFlow 0.x had them the other way round"
    elif name == "split" and len(args) > 2 and first_is_axis:
        told = "write tf.split(value, parts, axis): TensorFlow 0.x had them the other way round"
    elif name.removeprefix("nn.") in _NAMED_ONLY and len(args) > 1:
        told = "name the arguments: labels=..., logits=..."
    return Obstacle(use.line, f"{use.text}(...)", told, "signature") if told else None


def _mode(node: ast.expr) -> str:
    """The mode of a file that a call of ``open`` opens; "" where that cannot be seen."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ("open", "file"):
        return ""
    given = [k.value for k in node.keywords if k.arg == "mode"] or node.args[1:2]
    if not given:
        return "r"
    return given[0].value if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else ""


# Functions that take a file: the argument, and whether its mode must have a b.
_FILES = {
    **{f"{pickle}.load": (0, True) for pickle in ("pickle", "cPickle", "_pickle")},
    **{f"{pickle}.dump": (1, True) for pickle in ("pickle", "cPickle", "_pickle")},
    "csv.reader": (0, False), "csv.writer": (0, False), "csv.DictReader": (0, False), "csv.DictWriter": (0, False),
    "json.dump": (1, False),
}  # fmt: skip


def _old_behaviour(path: str, use: Use, call: ast.Call) -> Obstacle | None:
    """A call that did something else."""
    if path in behaviours.CALLS:
        argument, done = behaviours.CALLS[path]
        if len(call.args) == 1 and argument not in {keyword.arg for keyword in call.keywords}:
            return Obstacle(use.line, f"{use.text}(...)", f"tfmini run {done}", "python", MENDED)
    former, name = behaviours.RENAMED.get(path, ("", ""))
    if former in {keyword.arg for keyword in call.keywords}:
        remedy = f"tfmini run takes it for {name}"
        return Obstacle(use.line, f"{use.text}({former}=…)", remedy, "python", MENDED)
    if path in ("builtins.open", "builtins.file") and "U" in _mode(call):
        remedy = "leave out the U: Python 3.11 has no such mode"
        return Obstacle(use.line, f"{use.text}(..., {_mode(call)!r})", remedy, "python")
    if path in _FILES and len(use.args) > _FILES[path][0]:
        return _file(use, *_FILES[path])
    if path == "builtins.len" and use.args and (what := _lazy(use.args[0])):
        return Obstacle(use.line, f"len({what})", f"write len(list({what}))", "python 2")
    if path == "random.shuffle" and use.args and ast.unparse(use.args[0]).startswith(("range(", "xrange(")):
        return Obstacle(use.line, f"{use.text}(range(…))", "write list(range(…)): it is no list", "python 2")
    return None


def _file(use: Use, index: int, is_binary: bool) -> Obstacle | None:
    mode = _mode(use.args[index])
    if not mode or ("b" in mode) == is_binary:
        return None
    right = f"{mode}b" if is_binary else mode.replace("b", "")
    return Obstacle(use.line, f"{use.text}(...) with a file of mode {mode!r}", f"open it with {right!r}", "python 2")


# ---- Statements ------------------------------------------------------------------------------------------------------

_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge
}  # fmt: skip
_VERSIONS = ("tf.__version__", "tf.VERSION", "tensorflow.__version__", "tensorflow.VERSION")


def _versions(tree: ast.Module) -> Iterator[Obstacle]:
    """Comparisons of TensorFlow's version as a text, where "1.15.0" comes before "1.4"."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _ORDERS:
            continue
        sides = [_version(side) for side in (node.left, node.comparators[0])]
        is_ours = [ast.unparse(side) in _VERSIONS for side in (node.left, node.comparators[0])]
        if None in sides or is_ours[0] == is_ours[1]:
            continue
        order = _ORDERS[type(node.ops[0])]
        if order(*sides) != order(*([int(part) for part in str(side).split(".")] for side in sides)):
            other = next(side for side in sides if side != VERSION)
            place = "after" if str(other) < VERSION else "before"
            remedy = f"it compares texts, and {VERSION!r} comes {place} {other!r}; write LooseVersion(...) around both"
            yield Obstacle(node.lineno, ast.unparse(node), remedy, "tensorflow")


def _version(node: ast.expr) -> str | None:
    if ast.unparse(node) in _VERSIONS:
        return VERSION
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text and re.fullmatch(r"\d+(\.\d+)*", node.value) else None  # type: ignore[attr-defined]


def _changed_while_read(tree: ast.Module) -> Iterator[Obstacle]:
    """Loops over the keys, values or items of a dictionary that take entries out of it: an error in Python 3."""
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or not _view(loop.iter):
            continue
        owner = ast.unparse(loop.iter.func.value)  # type: ignore[attr-defined]
        inside = [node for statement in loop.body for node in ast.walk(statement)]
        may_end = any(isinstance(node, (ast.Break, ast.Return)) for node in inside)  # perhaps after its change
        if not may_end and any(_takes_out(node, owner) for node in inside):
            text = ast.unparse(loop.iter)
            remedy = f"write list({text}): Python 3 refuses to change what it reads"
            yield Obstacle(loop.lineno, f"for … in {text}", remedy, "python 2")


def _takes_out(node: ast.AST, owner: str) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(each, ast.Subscript) and ast.unparse(each.value) == owner for each in node.targets)
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr not in ("pop", "popitem"):
        return False
    return ast.unparse(function.value) == owner
