"""Marks what users see: ``@export("tf.nn.max_pool")`` stands at the definition of ``tf.nn.max_pool``.

The marks do nothing at run time. ``make names`` reads them from the sources, without an import, and writes from them

- the table in `tfmini.public_names`, by which `tfmini.namespace` imports a name at its first use;
- the stubs (``*.pyi``) of the public namespaces, by which editors and type checkers see the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import cleandoc
from itertools import groupby
from typing import Any, TypeVar

_Definition = TypeVar("_Definition")

# Public namespaces that have the names of another one as well.
ALIASES = {
    "app.flags": "flags",
    "contrib.slim.losses": "contrib.losses",
    "contrib.slim.metrics": "contrib.metrics",
    "contrib.slim.utils": "contrib.layers.utils",
}


def export(*names: str) -> Callable[[_Definition], _Definition]:
    """Makes the decorated function or class public under these names (``"tf.nn.relu"``), and returns it as it is.

    A name of a private module of TensorFlow that old scripts import begins with ``tensorflow.python.`` instead
    (`tfmini.compat.internals` serves it). Both forms are also those of `export_names`.
    """
    return _unchanged


def export_names(namespaces: str, names: str) -> None:
    """Makes variables of the calling module public in each of these namespaces (``"tf tf.dtypes"``).

    Args:
      namespaces: the full names of public namespaces, separated by blanks.
      names: the variables, separated by blanks; ``public=variable`` for one whose public name is another.
    """


def _unchanged(definition: _Definition) -> _Definition:
    return definition


# ---- Arguments of public functions that have a deprecated name beside the current one ------------------------------


def either(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """Returns the value of an argument that also has a deprecated name.

    Raises:
      ValueError: when both names are used.
    """
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'")
    return old


# ---- Arguments in the docstrings of functions that are made from a class, or share the arguments of one --------------

_ARGUMENT = re.compile(r"  (\w+(?:,\s+\w+)*): ")
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:  .*\n?)+)", re.MULTILINE)


def documented_arguments(doc: str | None) -> dict[str, str]:
    """The text of each argument in the section ``Args`` (or ``Attributes``) of a docstring."""
    section = _SECTION.search(cleandoc(doc or ""))
    found = {}
    for line in re.split(r"\n(?=  \S)", section[1].rstrip() if section else ""):
        if _ARGUMENT.match(line):
            names, _, text = line.partition(": ")
            found.update(dict.fromkeys(re.split(r",\s+", names.strip()), " ".join(text.split())))
    return found


def with_arguments(doc: str, arguments: Mapping[str, str]) -> str:
    """A docstring with these arguments in place of its own; names that follow each other with one text share a line."""
    rows = [(text, ", ".join(names)) for text, names in groupby(arguments, lambda name: arguments[name])]
    section = "".join(["Args:\n", *(f"  {names}: {text}\n" for text, names in rows)]) if rows else ""
    plain = cleandoc(doc)
    if _SECTION.search(plain):
        return _SECTION.sub(lambda _: section, plain, count=1)
    summary, sections, rest = re.split(r"(^(?=Returns:|Raises:)|\Z)", plain, maxsplit=1, flags=re.MULTILINE)
    return "\n\n".join(filter(None, [summary.rstrip(), section.rstrip(), f"{sections}{rest}".rstrip()]))
