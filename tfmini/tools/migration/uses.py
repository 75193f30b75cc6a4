"""What the names of a source denote, followed through imports and aliases; nothing is imported or run for it.

`uses` finds each dotted path that a source uses (``tensorflow.contrib.slim.nets`` for ``slim.nets`` after
``slim = tf.contrib.slim``), and attributes of what is no path. A name that is bound more than once is followed only if
all that it is bound to are paths. Left out is what a program makes sure of itself: uses in a ``try`` whose ``except``
catches a missing name, and below an ``if`` about versions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

BUILTINS = "builtins"
_NO_MODULE = {"ImportError", "ModuleNotFoundError"}
_NO_NAME = {"AttributeError", "NameError"}
_ABOUT_VERSIONS = ("version", "VERSION", "PY2", "PY3", "hasattr", "find_spec", "TYPE_CHECKING")
_SHORT = 3  # statements of a ``try`` whose bare ``except`` is about a missing name


@dataclass(frozen=True)
class Use:
    """A path that a source uses.

    Attributes:
      path: from the module at its root, such as ``numpy.float``; below `BUILTINS` if no line binds the name.
      line: where it is.
      text: as it is written.
      call: the call, where it is called.
      args: its positional arguments; of a name that one line binds, and no other, what the line binds it to.
      is_import: whether an import statement names it.
      instead_of: the imports whose failure leads to this one, in groups of which one must fail each.
    """

    path: str
    line: int
    text: str
    call: ast.Call | None = None
    args: tuple[ast.expr, ...] = ()
    is_import: bool = False
    instead_of: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Member:
    """An attribute of something that is no path, such as ``d.iteritems``, or an item of it, such as ``zip(a, b)[0]``.

    Attributes:
      name: the attribute; "" for an item.
      line: where it is.
      text: as it is written.
      owner: what has it; where that is a name that one line binds, and no other, what the line binds it to.
      call: the call, where it is called.
      is_position: whether the item is given by a number, or is a slice.
    """

    name: str
    line: int
    text: str
    owner: ast.expr
    call: ast.Call | None = None
    is_position: bool = False


@dataclass
class Found:
    """What a source uses.

    Attributes:
      uses: the paths.
      members: attributes and items of other things.
      quotients: (line, text) where the result of ``/`` is taken for an integer.
      whole: the quotients of integers by ``/``: integers in Python 2, floats in Python 3.
      prints: lines of print statements that Python 3 takes for something else.
      defined: the names of its functions, methods and classes.
      relative: (level, dotted path) of its relative imports.
    """

    uses: list[Use] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    quotients: list[tuple[int, str]] = field(default_factory=list)
    whole: list[ast.BinOp] = field(default_factory=list)
    prints: list[int] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    relative: list[tuple[int, str]] = field(default_factory=list)


StarNames = Callable[[str], "Sequence[str] | None"]
_Value = str | ast.expr | None
_WHOLE = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)


def uses(tree: ast.Module, star_names: StarNames) -> Found:
    """What a source uses.

    Args:
      star_names: the names that ``from MODULE import *`` brings; None if that is not known.
    """
    walk = _Walk(star_names)
    walk.enter(_Scope(None), tree.body)
    return walk.found


# ---- Scopes ----------------------------------------------------------------------------------------------------------


class _Scope:
    """The names of a module, class, function or comprehension: paths, expressions, None for anything else.

    All are bound before anything is looked up, so what a name denotes does not depend on the order of lines.
    """

    def __init__(self, parent: _Scope | None, is_class: bool = False) -> None:
        self.parent, self.is_class = parent, is_class
        self.names: dict[str, list[_Value]] = {}
        self.is_open = False  # a star import may have brought any name

    @property
    def top(self) -> _Scope:
        return self if self.parent is None else self.parent.top

    def bind(self, name: str, value: _Value) -> None:
        self.names.setdefault(name, []).append(value)

    def home(self, name: str) -> _Scope | None:
        """The scope that binds a name; None if none does. The names of a class are not those of its functions."""
        scope: _Scope | None = self
        while scope is not None and (name not in scope.names or (scope.is_class and scope is not self)):
            scope = scope.parent
        return scope

    def value(self, node: ast.expr) -> ast.expr:
        """What a name is bound to, where that is one expression; else the node itself."""
        home = self.home(node.id) if isinstance(node, ast.Name) else None
        if home is None or home.is_open or not isinstance(node, ast.Name):
            return node
        values = home.names[node.id]
        return values[0] if len(values) == 1 and isinstance(values[0], ast.expr) else node

    def paths(self, node: ast.expr, depth: int = 0) -> list[str]:
        """The paths that an expression may denote; none if it may denote anything else."""
        if isinstance(node, ast.Attribute):
            return [f"{path}.{node.attr}" for path in self.paths(node.value, depth)]
        if not isinstance(node, ast.Name) or depth > 20:
            return []
        home = self.home(node.id)
        if home is None:
            return [] if self.top.is_open else [f"{BUILTINS}.{node.id}"]
        found = []
        for value in home.names[node.id]:
            reached = [value] if isinstance(value, str) else home.paths(value, depth + 1) if value is not None else []
            if not reached:
                return []
            found += reached
        return list(dict.fromkeys(found))


class _Binding(ast.NodeVisitor):
    """Binds the names of one scope; it does not enter those inside."""

    def __init__(self, scope: _Scope, star_names: StarNames) -> None:
        self._scope, self._star_names = scope, star_names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            self._scope.bind(alias.asname or root, alias.name if alias.asname else root)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self._bind_star(node)
            else:
                path = None if node.level else f"{node.module}.{alias.name}"
                self._scope.bind(alias.asname or alias.name, path)

    def _bind_star(self, node: ast.ImportFrom) -> None:
        brought = None if node.level else self._star_names(node.module or "")
        self._scope.is_open |= brought is None
        for name in brought or ():
            self._scope.bind(name, f"{node.module}.{name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            self._scope.bind(target.id, node.value)
            self.visit(node.value)
        else:
            self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if isinstance(node.optional_vars, ast.Name):
            is_file = isinstance(node.context_expr, ast.Call)  # which gives itself, as files do
            self._scope.bind(node.optional_vars.id, node.context_expr if is_file else None)
            self.visit(node.context_expr)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._scope.bind(node.id, None)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self._scope.top.bind(name, None)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scope.bind(node.name, None)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.expr) -> None:
        """It has a scope of its own, as comprehensions have."""

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda  # noqa: N815


# ---- Walks through a source ------------------------------------------------------------------------------------------


class _Walk(ast.NodeVisitor):
    def __init__(self, star_names: StarNames) -> None:
        self.found = Found()
        self._star_names = star_names
        self._scope = _Scope(None)
        self._is_guarded = False
        self._are_imports_guarded = False
        self._instead_of: tuple[tuple[str, ...], ...] = ()

    def enter(self, scope: _Scope, nodes: Sequence[ast.AST]) -> None:
        """Binds the names of a scope and walks through it."""
        before, self._scope = self._scope, scope
        for node in nodes:
            _Binding(scope, self._star_names).visit(node)
        for node in nodes:
            self.visit(node)
        self._scope = before

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._use([alias.name], node, alias.name, is_import=True)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            path = ".".join(filter(None, (node.module, alias.name if alias.name != "*" else "")))
            if node.level:
                self.found.relative.append((node.level, path))
            else:
                self._use([path], node, path, is_import=True)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(self._scope.paths(node), node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._attribute(node, None)

    def _attribute(self, node: ast.Attribute, call: ast.Call | None) -> None:
        paths = self._scope.paths(node) if isinstance(node.ctx, ast.Load) else []
        if paths:
            self._use(paths, node, ast.unparse(node), call)
            return
        if isinstance(node.ctx, ast.Load):
            self._member(Member(node.attr, node.lineno, ast.unparse(node), self._scope.value(node.value), call))
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self._attribute(node.func, node)
        elif isinstance(node.func, ast.Name):
            self._use(self._scope.paths(node.func), node, node.func.id, node)
        else:
            self.visit(node.func)
        for argument in (*node.args, *node.keywords):
            self.visit(argument)
        if isinstance(node.func, ast.Name) and node.func.id in ("range", "xrange"):
            self._integers(node.args)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load):
            owner, by_position = self._scope.value(node.value), _is_position(node.slice)
            self._member(Member("", node.lineno, ast.unparse(node), owner, is_position=by_position))
        if isinstance(node.slice, ast.Slice):
            self._integers([part for part in (node.slice.lower, node.slice.upper, node.slice.step) if part])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        printer = node.left.func if isinstance(node.left, ast.Call) and isinstance(node.op, ast.Mod) else node.left
        is_print = isinstance(printer, ast.Name) and self._scope.paths(printer) == [f"{BUILTINS}.print"]
        if is_print and isinstance(node.op, ast.Mod | ast.RShift):
            self.found.prints.append(node.lineno)
        if isinstance(node.op, ast.Div) and self._is_whole(node) and not self._is_guarded:
            self.found.whole.append(node)
        self.generic_visit(node)

    def _is_whole(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is an integer in Python 2, whatever the values of the program are."""
        node = self._scope.value(node)
        if depth > 20:  # a name may be bound to itself
            return False
        if isinstance(node, ast.BinOp) and isinstance(node.op, _WHOLE):
            return self._is_whole(node.left, depth + 1) and self._is_whole(node.right, depth + 1)
        if isinstance(node, ast.UnaryOp):
            return self._is_whole(node.operand, depth + 1)
        if isinstance(node, ast.Call):
            return self._scope.paths(node.func) in ([f"{BUILTINS}.len"], [f"{BUILTINS}.int"])
        return isinstance(node, ast.Constant) and type(node.value) is int

    def _integers(self, nodes: Sequence[ast.expr]) -> None:
        """Notes expressions that must be integers and are quotients."""
        for node in nodes:
            if _is_quotient(self._scope.value(node)) and not self._is_guarded:
                self.found.quotients.append((node.lineno, ast.unparse(node)))

    def _use(
        self, paths: Sequence[str], node: ast.AST, text: str, call: ast.Call | None = None, is_import: bool = False
    ) -> None:
        if not (self._are_imports_guarded if is_import else self._is_guarded):
            line, args = getattr(node, "lineno", 0), tuple(map(self._scope.value, call.args if call else ()))
            instead_of = self._instead_of if is_import else ()
            self.found.uses += [Use(path, line, text, call, args, is_import, instead_of) for path in paths[:1]]

    def _member(self, member: Member) -> None:
        if not self._is_guarded:
            self.found.members.append(member)

    # ---- What has a scope of its own

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.found.defined.add(node.name)
        self._visit_all([*node.decorator_list, *_defaults(node.args)])
        self.enter(self._with_arguments(node.args), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all(_defaults(node.args))
        self.enter(self._with_arguments(node.args), [node.body])

    def _with_arguments(self, args: ast.arguments) -> _Scope:
        scope = _Scope(self._scope)
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if arg is not None:
                scope.bind(arg.arg, None)
        return scope

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.found.defined.add(node.name)
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self.enter(_Scope(self._scope, is_class=True), node.body)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.enter(_Scope(self._scope), [*node.generators, *results])

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    # ---- What a program makes sure of itself

    def visit_Try(self, node: ast.Try) -> None:
        caught = set().union(*(_caught(handler, len(node.body)) for handler in node.handlers))
        of_imports = bool(caught & _NO_MODULE)
        self._visit_all(node.body, bool(caught), of_imports)
        before = self._instead_of
        self._instead_of += (tuple(_imported(node.body)),) if of_imports else ()
        self._visit_all(node.handlers, bool(caught), of_imports and not all(self._instead_of))
        self._instead_of = before
        self._visit_all([*node.orelse, *node.finalbody])

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        is_guard = any(word in ast.unparse(node.test) for word in _ABOUT_VERSIONS)
        self._visit_all(list(ast.iter_child_nodes(node)), is_guard, is_guard)

    visit_IfExp = visit_If  # noqa: N815

    def _visit_all(self, nodes: Sequence[ast.AST], is_guard: bool = False, of_imports: bool = False) -> None:
        before = self._is_guarded, self._are_imports_guarded
        self._is_guarded |= is_guard
        self._are_imports_guarded |= of_imports
        for node in nodes:
            self.visit(node)
        self._is_guarded, self._are_imports_guarded = before


def _imported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")


def _defaults(args: ast.arguments) -> list[ast.expr]:
    return [default for default in (*args.defaults, *args.kw_defaults) if default is not None]


def _is_position(node: ast.expr) -> bool:
    plain = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Slice) or (isinstance(plain, ast.Constant) and type(plain.value) is int)


def _is_quotient(node: ast.expr) -> bool:
    """Whether an expression is a sum, product or quotient with ``/`` in it, which is a float in Python 3."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        return False
    return isinstance(node.op, ast.Div) or _is_quotient(node.left) or _is_quotient(node.right)


def _caught(handler: ast.ExceptHandler, statements: int) -> set[str]:
    """The errors about missing names that a handler catches."""
    if handler.type is None:
        return _NO_MODULE | _NO_NAME if statements <= _SHORT else set()
    names = {
        node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in ast.walk(handler.type)
    }
    return _NO_MODULE | _NO_NAME if "Exception" in names and statements <= _SHORT else names & (_NO_MODULE | _NO_NAME)
