"""Finds Python 2 code in old scripts and suggests the fix for Python 3. No I/O.

`in_source` lists every Python 2 form in a text that Python 3 cannot parse; `of_error` recognises names
that only Python 2 has (``xrange``, ``urllib2``, ``dict.iteritems``) from an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Python2Form:
    """One Python 2 form.

    Attributes:
      line: its line, from 1; 0 if unknown.
      form: the Python 2 form.
      fix: the replacement in Python 3.
    """

    line: int
    form: str
    fix: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.form}; {self.fix}"


# Statements, searched in lines without strings and comments.
_FORMS: list[tuple[str, str, str]] = [
    (r"^\s*(?:.*[:;]\s*)?print\s*>>", "print to a file", "write print(..., file=f)"),
    (r"^\s*(?:.*[:;]\s*)?print(?:\s+[^\s=(.,>)\]]|\s*$)", "print statement", "write print(...)"),
    (r"^\s*except\s+[^:]+?,\s*\w+\s*:", "'except X, e'", "write 'except X as e:'"),
    (r"^\s*(?:.*[:;]\s*)?raise\s+[\w.]+\s*,", "'raise X, message'", "write raise X(message)"),
    (r"^\s*(?:.*[:;]\s*)?exec\s+[^\s(=]", "exec statement", "write exec(code, globals)"),
    (r"`[^`]+`", "backticks", "write repr(...)"),
    (r"<>", "operator <>", "write !="),
    (r"(?<![\w.])0[0-7]+(?![\w.])", "octal number with a leading 0", "write 0o..."),
    (r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+)[lL]\b", "long number", "leave out the L"),
    (r"\blambda\s*\(|^\s*def\s+\w+\s*\([^)]*\([\w\s,]+\)", "parameters that unpack a tuple",
     "take one parameter and unpack it in the body"),
    (r"\b[uU][rR]$", "string with the prefix ur", "write r'...'"),
]  # fmt: skip
_COMPILED = [(re.compile(pattern), form, fix) for pattern, form, fix in _FORMS]

NAMES = {
    "xrange": "write range",
    "raw_input": "write input",
    "unicode": "write str",
    "basestring": "write str",
    "long": "write int",
    "unichr": "write chr",
    "reduce": "add 'from functools import reduce'",
    "reload": "add 'from importlib import reload'",
    "execfile": "write exec(open(path).read())",
    "file": "write open",
    "cmp": "write (a > b) - (a < b)",
    "izip": "write zip",
}
ATTRIBUTES = {
    "iteritems": "write items()",
    "itervalues": "write values()",
    "iterkeys": "write keys()",
    "viewitems": "write items()",
    "viewvalues": "write values()",
    "viewkeys": "write keys()",
    "has_key": "write 'key in d'",
    "next": "write next(iterator)",
    "maxint": "write sys.maxsize",
    "izip": "write zip",
    "imap": "write map",
    "ifilter": "write filter",
    "getcwdu": "write os.getcwd()",
    "letters": "write string.ascii_letters",
    "maketrans": "write str.maketrans",
    "setdefaultencoding": "leave it out; text is Unicode",
    "urlretrieve": "import urllib.request and write urllib.request.urlretrieve",
    "urlopen": "import urllib.request and write urllib.request.urlopen",
    "urlencode": "import urllib.parse and write urllib.parse.urlencode",
    "func_name": "write __name__",
}
MODULES = {
    "urllib2": "import urllib.request",
    "urlparse": "import urllib.parse",
    "cPickle": "import pickle",
    "ConfigParser": "import configparser",
    "Queue": "import queue",
    "StringIO": "write 'from io import StringIO'",
    "cStringIO": "write 'from io import StringIO'",
    "commands": "import subprocess",
    "httplib": "import http.client",
    "BaseHTTPServer": "import http.server",
    "SimpleHTTPServer": "import http.server",
    "SocketServer": "import socketserver",
    "Tkinter": "import tkinter",
    "HTMLParser": "import html.parser",
    "cookielib": "import http.cookiejar",
    "thread": "import _thread or threading",
    "__builtin__": "import builtins",
    "copy_reg": "import copyreg",
    "exceptions": "leave it out; exceptions are built in",
}
_MIXED_TABS = "indentation that mixes tabs and blanks"
_FIX_TABS = "indent with blanks only; a tab counts as 8 (expand -t8 -i)"


def in_source(source: str) -> list[Python2Form]:
    """The Python 2 forms of a text that Python 3 cannot parse, by line. (In other texts it may be wrong.)"""
    return sorted({*_forms(source), *_tabs(source)}, key=lambda finding: finding.line)


def _forms(source: str) -> Iterator[Python2Form]:
    for number, line in enumerate(_without_strings(source).split("\n"), 1):
        for pattern, form, fix in _COMPILED:
            if pattern.search(line):
                yield Python2Form(number, form, fix)
        yield from _words(line, number)


def _words(line: str, number: int) -> Iterator[Python2Form]:
    for name in re.findall(r"(?<![\w.])(?:xrange|raw_input|unicode|basestring|unichr|execfile)(?=\()", line):
        yield Python2Form(number, name, NAMES[name])
    for name in re.findall(r"\.(iteritems|itervalues|iterkeys|has_key|maxint)\b", line):
        yield Python2Form(number, f".{name}", ATTRIBUTES[name])
    for name in re.findall(r"^\s*(?:import|from)\s+(\w+)", line):
        if name in MODULES:
            yield Python2Form(number, f"module {name}", MODULES[name])


_STRING_OR_COMMENT = re.compile(
    r'(?P<text>[rRbBuU]{0,2}(?:"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\''
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'))|(?P<comment>#[^\n]*)',
    re.DOTALL,
)


def _without_strings(source: str) -> str:
    """The source without comments, with S in place of every string (and its newlines)."""

    def blank(found: re.Match[str]) -> str:
        if found["comment"] is not None:
            return ""
        prefix = "ur" if found["text"][:2].lower() == "ur" else "S"
        return prefix + "\n" * found["text"].count("\n")

    return _STRING_OR_COMMENT.sub(blank, source)


def _tabs(source: str) -> Iterator[Python2Form]:
    try:
        compile(source, "<script>", "exec", dont_inherit=True)
    except TabError as error:
        yield Python2Form(error.lineno or 0, _MIXED_TABS, _FIX_TABS)
    except SyntaxError:
        yield from _mixed_blocks(source)
    except ValueError:  # null bytes
        return


def _mixed_blocks(source: str) -> Iterator[Python2Form]:
    """The first line whose indentation begins with the other character than the first indented line."""
    indented = [(number, line[0]) for number, line in enumerate(source.split("\n"), 1) if line[:1] in (" ", "\t")]
    other = next((number for number, mark in indented if mark != indented[0][1]), None)
    if other is not None:
        yield Python2Form(other, _MIXED_TABS, _FIX_TABS)


def of_error(error: BaseException, line: int) -> Python2Form | None:
    """Finds the Python 2 name or behaviour that caused an error; None if there is none.

    Args:
      error: the error of the script.
      line: its line, for the finding.
    """
    name = getattr(error, "name", None) or ""
    if isinstance(error, ModuleNotFoundError) and name in MODULES:
        return Python2Form(line, f"module {name} exists only in Python 2", MODULES[name])
    if isinstance(error, NameError) and name in NAMES:
        return Python2Form(line, f"{name} exists only in Python 2", NAMES[name])
    if isinstance(error, AttributeError) and name in ATTRIBUTES and not _is_of_tfmini(error):
        return Python2Form(line, f".{name} exists only in Python 2", ATTRIBUTES[name])
    if isinstance(error, ImportError) and "'izip'" in str(error):
        return Python2Form(line, "itertools.izip exists only in Python 2", "write zip")
    return _of_message(str(error), line) if isinstance(error, TypeError) else None


def _is_of_tfmini(error: AttributeError) -> bool:
    return type(error.obj).__module__.partition(".")[0] == "tfmini" or "tfmini" in str(error)


_MESSAGES = {
    "a bytes-like object is required, not 'str'": (
        "text written to a binary file or socket",
        "open the file with 'w' instead of 'wb', or encode the text",
    ),
    "'dict_keys' object is not subscriptable": ("indexing d.keys()", "write list(d.keys())[i]"),
    "'dict_values' object is not subscriptable": ("indexing d.values()", "write list(d.values())[i]"),
    "'dict_items' object is not subscriptable": ("indexing d.items()", "write list(d.items())[i]"),
    "'map' object is not subscriptable": ("indexing map(...)", "write list(map(...))[i]"),
    "'zip' object is not subscriptable": ("indexing zip(...)", "write list(zip(...))[i]"),
    "'filter' object is not subscriptable": ("indexing filter(...)", "write list(filter(...))[i]"),
    "object of type 'map' has no len()": ("len(map(...))", "write list(map(...))"),
    "object of type 'zip' has no len()": ("len(zip(...))", "write list(zip(...))"),
    "object of type 'filter' has no len()": ("len(filter(...))", "write list(filter(...))"),
    "'float' object cannot be interpreted as an integer": ("/ between integers gives a float", "write //"),
    "slice indices must be integers": ("/ between integers gives a float", "write //"),
}


def _of_message(message: str, line: int) -> Python2Form | None:
    return next((Python2Form(line, *found) for start, found in _MESSAGES.items() if message.startswith(start)), None)
