"""A source as a tree of today's Python, whether it is written for Python 3 or Python 2, and what makes it Python 2.

The standard library has lost its parser of Python 2 with lib2to3, and parso its grammars of it. fissix, which goes on
with lib2to3, rewrites the statements that Python 3 cannot parse; they keep their lines. What is called as a name
(``xrange``) is found in the tree, as in any other source.
"""

from __future__ import annotations

import ast
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

STOPS, MENDED, MAYBE = "stops", "mended", "maybe"
DIVISION = "division"
"""In the place of a fixer's name: `floored` rewrites it."""


@dataclass(frozen=True, order=True)
class Obstacle:
    """A place that will not run, or may not.

    Attributes:
      line: its line, from 1.
      what: what it is, as it is written there where it is a name.
      remedy: what to write, or what `tfmini run` does about it.
      kind: "tensorflow", "signature", "python 2", "python", "package" or "syntax".
      level: `STOPS`, `MENDED` by `tfmini run`, or `MAYBE`: it depends on values.
      fixer: the fixer of fissix that rewrites it; "": none does.
    """

    line: int
    what: str
    remedy: str
    kind: str
    level: str = STOPS
    fixer: str = field(default="", compare=False)


@dataclass(frozen=True)
class Parsed:
    """A source that has been parsed.

    Attributes:
      tree: the tree; empty if it could not be parsed.
      findings: what Python 3 cannot parse.
      is_python_2: whether there is any such thing.
    """

    tree: ast.Module
    findings: tuple[Obstacle, ...] = ()
    is_python_2: bool = False


# Fixers of what Python 3 cannot parse: what it is, and the remedy.
_STATEMENTS = {
    "print": ("print statement", "write print(...)"),
    "except": ("'except X, e'", "write 'except X as e:'"),
    "raise": ("'raise X, message'", "write raise X(message)"),
    "exec": ("exec statement", "write exec(code, globals)"),
    "repr": ("backticks", "write repr(...)"),
    "ne": ("operator <>", "write !="),
    "numliterals": ("long or octal number", "leave out the L; write 0o..."),
    "tuple_params": ("parameters that unpack a tuple", "take one parameter and unpack it in the body"),
    "throw": ("'g.throw(X, message)'", "write g.throw(X(message))"),
    "paren": ("a tuple without parentheses in a list", "write [x for x in (a, b)]"),
    "unicode": ("string with the prefix ur", "write r'...'"),
}
# Those that change how a program is written, not whether it runs.
_OPINIONS = ("buffer", "idioms", "set_literal", "ws_comma", "import", "future", "asserts", "isinstance")
_TABS = Obstacle(0, "indentation that mixes tabs and blanks", "indent with blanks only (expand -t8 -i)", "python 2")
_ASYNC = re.compile(r"(?<![\w.'\"#])(async|await)(?=\s*(?:[=,)]|$))")


def parse(text: str) -> Parsed:
    """Parses a source, if need be after a translation of its Python 2 statements."""
    tree = _tree(text)
    if not isinstance(tree, SyntaxError):
        return Parsed(tree)
    findings = []
    blanks = _without_tabs(text)
    if isinstance(tree, TabError) or (blanks != text and not isinstance(_tree(blanks), SyntaxError)):
        findings.append(Obstacle(tree.lineno or 1, _TABS.what, _TABS.remedy, _TABS.kind, fixer="tabs"))
    found, translated = _translated(blanks)
    tree = _tree(translated)
    if isinstance(tree, SyntaxError) and _ASYNC.search(tree.text or ""):
        words = _ASYNC.sub(r"\1_", translated)
        findings += _keywords(translated, words)
        tree = _tree(words)
    if isinstance(tree, SyntaxError):
        remedy = "neither Python 3 nor Python 2 can parse this"
        broken = Obstacle(tree.lineno or 1, tree.msg or "invalid syntax", remedy, "syntax")
        return Parsed(ast.Module([], []), (*findings, broken))
    return Parsed(tree, tuple(sorted({*findings, *found})), True)


def _tree(text: str) -> ast.Module | SyntaxError:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as those about escapes, which are no errors
            return ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError) as error:  # null bytes; a table that nests too deep
        return SyntaxError(str(error))


def _without_tabs(text: str) -> str:
    """The text with leading tabs as Python 2 counts them: up to the next multiple of 8."""
    return re.sub(r"^[ \t]+", lambda found: found[0].expandtabs(8), text, flags=re.MULTILINE)


def _keywords(before: str, after: str) -> list[Obstacle]:
    """Lines where a name has become a keyword since."""
    pairs = enumerate(zip(before.split("\n"), after.split("\n")), 1)
    remedy = "use another name: async and await are keywords since Python 3.7"
    return [Obstacle(line, "async or await as a name", remedy, "python") for line, (a, b) in pairs if a != b]


def _translated(text: str) -> tuple[list[Obstacle], str]:
    """The text with the statements of Python 2 rewritten, and each of them."""
    for has_print in (False, True):  # both kinds of print occur, and one source may have both
        found: list[Obstacle] = []

        def note(name: str, line: int, before: str, found: list[Obstacle] = found) -> None:
            if name != "unicode" or before[:2].lower() == "ur":  # u'' is fine, and names are looked at in the tree
                found.append(Obstacle(line, *_STATEMENTS[name], "python 2", fixer=name))

        translated = _refactored(_watched(_tool(list(_STATEMENTS), has_print), note), text)
        if translated is not None:
            return found, translated
    return [], text


def rewritten(text: str, findings: Sequence[Obstacle]) -> str | None:
    """The text for Python 3, by the fixers of its findings; None if they cannot parse it.

    A source that Python 3 cannot parse gets all that fissix has, as it is certain to be of Python 2.
    """
    is_python_3 = not isinstance(_tree(text), SyntaxError)
    text = text if is_python_3 else _without_tabs(text)
    fixers = sorted({finding.fixer for finding in findings} - {"", "tabs", DIVISION}) if is_python_3 else None
    made = (_refactored(_tool(fixers, has_print), text) for has_print in ((True,) if is_python_3 else (False, True)))
    return next((each for each in made if each is not None and not isinstance(_tree(each), SyntaxError)), None)


def floored(text: str, quotients: Sequence[ast.BinOp]) -> str:
    """The text with ``//`` in the place of the ``/`` of some nodes of its tree."""
    data = text.encode()
    starts = [0, *(found.end() for found in re.finditer(b"\n", data))]
    for node in sorted(quotients, key=lambda each: (each.right.lineno, each.right.col_offset), reverse=True):
        left_line, left_column = node.left.end_lineno or 1, node.left.end_col_offset or 0
        left, right = starts[left_line - 1] + left_column, starts[node.right.lineno - 1] + node.right.col_offset
        if data[left:right].count(b"/") == 1:  # no comment with another one
            data = data[:left] + data[left:right].replace(b"/", b"//") + data[right:]
    return data.decode()


def _tool(fixers: Sequence[str] | None, has_print: bool) -> Any:
    """A RefactoringTool with some fixers, or with all; ``has_print``: print is a function already."""
    from fissix.refactor import RefactoringTool, get_fixers_from_package  # takes 0.2 s

    package = "fissix.fixes"
    if fixers is None:
        opinions = {f"{package}.fix_{name}" for name in _OPINIONS}
        chosen = [name for name in get_fixers_from_package(package) if name not in opinions]
    else:
        chosen = [f"{package}.fix_{name}" for name in fixers]
    return RefactoringTool(chosen, {"print_function": has_print})


def _watched(tool: Any, note: Callable[[str, int, str], None]) -> Any:
    """The tool, which calls ``note`` with a fixer, the line and the text before whenever something is rewritten."""

    def watched(name: str, transform: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def watch(node: Any, results: Any) -> Any:
            line, before = node.get_lineno(), _lines(node)
            made = transform(node, results)
            after = _lines(node if made is None else made)
            changed = [i for i, pair in enumerate(zip(before, after)) if pair[0] != pair[1]]
            for i in changed or [0] * (before != after):
                note(name, line + i, before[i].strip())
            return made

        return watch

    for fixer in (*tool.pre_order, *tool.post_order):
        fixer.transform = watched(type(fixer).__module__.rpartition(".fix_")[2], fixer.transform)
    return tool


def _lines(node: Any) -> list[str]:
    return str(node)[len(node.prefix) :].split("\n")


def _refactored(tool: Any, text: str) -> str | None:
    """The text that a tool makes of another; None if it cannot parse it."""
    from fissix.pgen2.parse import ParseError
    from fissix.pgen2.tokenize import TokenError

    logging.getLogger("RefactoringTool").setLevel(logging.CRITICAL)  # it logs what it cannot parse, and each warning
    try:
        tree = tool.refactor_string(text if text.endswith("\n") else text + "\n", "source")
    except (ParseError, TokenError, SyntaxError, ValueError, AssertionError, RecursionError):
        return None  # ValueError, AssertionError: a fixer that has met a form of today
    return str(tree)
