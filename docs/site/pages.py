"""Turns the entries into pages for Sphinx, in reStructuredText: a page per namespace, and several for ``tf`` itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from docs.site.entries import Entry, entry, places

# The pages of the names directly in ``tf``: page -> (title, homes that begin so). The first that fits counts.
TOPICS = {
    "graphs": ("Graphs, scopes and types", ("graph.", "devices", "dtypes", "dimension", "shapes", "ops.composites")),
    "sessions": ("Sessions, messages and errors", ("runtime.", "protos", "launch.", "cluster", "errors")),
    "variables": ("Variables and initial values", ("ops.variables.",)),
    "arrays": ("Making and rearranging tensors", ("ops.array.",)),
    "mathematics": ("Mathematics", ("ops.math.", "ops.linalg", "ops.linear", "ops.decomp", "ops.fourier")),
    "random": ("Random numbers", ("ops.random",)),
    "control": ("Control flow, gradients and checks",
                ("ops.flow.", "ops.control", "ops.gradi", "ops.custom", "ops.checks", "ops.debug", "compat.py_")),
    "data": ("Queues, files, strings and sparse tensors",
             ("ops.queues.", "ops.io.", "ops.string", "ops.sparse.", "ops.image.")),
    "others": ("Other names", ("",)),
}  # fmt: skip


def page_of(name: str) -> str:
    """The page that has the entry of a public name, such as ``nn``, ``contrib-layers`` or ``tf-arrays``."""
    parts = name.split(".")[1:-1]
    if parts:
        return "-".join(parts[: 2 if parts[0] == "contrib" else 1])
    home = places()[name].home
    return "tf-" + next(page for page, (_, homes) in TOPICS.items() if home.startswith(homes))


def pages(names: Iterable[str]) -> dict[str, list[str]]:
    """Page -> its public names. The pages of ``tf`` come first, and that of the raw ops last."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(page_of(name), []).append(name)
    topics = [f"tf-{topic}" for topic in TOPICS]
    spaces = sorted(found.keys() - {*topics, "raw_ops"})
    return {page: found[page] for page in [*topics, *spaces, "raw_ops"]}


def title_of(page: str) -> str:
    """The heading of a page."""
    if page.startswith("tf-"):
        return f"tf: {TOPICS[page.removeprefix('tf-')][0]}"
    return f"tf.{page.replace('-', '.')}"


def page_text(page: str, names: list[str]) -> str:
    """The text of a page, with a section for each namespace if it has several."""
    title = title_of(page)
    lines = [title, "=" * len(title), ""]
    spaces = {name.rpartition(".")[0] for name in names}
    for space, group in groupby(
        sorted(names, key=lambda n: (n.rpartition(".")[0], n.lower(), n)), lambda n: n.rpartition(".")[0]
    ):
        if len(spaces) > 1 and space != title:
            lines += [space, "-" * len(space), ""]
        for name in group:
            lines += _directive(entry(name))
    return "\n".join(lines) + "\n"


def index_text(found: dict[str, list[str]]) -> str:
    """The first page of the reference: how to read it, and a table of the pages."""
    total = sum(map(len, found.values()))
    rows = [f"   * - :doc:`{title_of(page)} <{page}>`\n     - {len(names)}" for page, names in found.items()]
    return INDEX.format(total=total, rows="\n".join(rows), pages="\n".join(f"   {page}" for page in found))


INDEX = """API reference
=============

All {total:,} public names of tfmini, from their docstrings. A name that is public in several namespaces is described
once; its other entries lead there. ``tf`` stands for ``import tfmini as tf``; what is in ``tf`` is in ``tf.compat.v1``,
too.

Where tfmini differs from TensorFlow 1.15 on purpose, the entry has a box *Differs from TensorFlow*. Without a box the
name does what TensorFlow's does, as far as :doc:`TensorFlow's own tests </reference/conformance>` tell.

Arguments that stand for a tensor (``TensorLike``) take a tensor, a variable, a numpy array, a number, a string, or
nested lists of these. ``DTypeLike`` is a ``tf.DType``, a numpy type or a name such as ``"float32"``; ``ShapeLike`` is a
``tf.TensorShape``, or a list of sizes with ``None`` for an unknown one. An argument ``name`` names the op that a
function adds to the graph.

.. list-table::
   :header-rows: 1

   * - page
     - names
{rows}

.. toctree::
   :hidden:

{pages}
"""


def _directive(item: Entry, indent: str = "") -> list[str]:
    """An entry as a directive of the Python domain, with its members."""
    kind, options = item.kind, ["   :no-index:"] if item.kind == "module" else []
    if kind in ("staticmethod", "classmethod"):
        kind, options = "method", [f"   :{kind}:"]
    name = item.name if not indent else item.name.rpartition(".")[2]
    body = [f".. py:{kind}:: {name}{item.signature}", *options, ""]
    for part in (_same_as(item), _differs(item), _described(item), _inherited(item)):
        body += [f"   {line}".rstrip() for line in part]
    for member in item.members:
        body += _directive(member, "   ")
    return [f"{indent}{line}".rstrip() for line in body]


def _same_as(item: Entry) -> list[str]:
    return [f"The same as `{item.same_as}`.", ""] if item.same_as else []


def _differs(item: Entry) -> list[str]:
    if not item.differs:
        return []
    told = [f"   Here: {_from_markdown(here)}. The reason: {_from_markdown(why)}." for here, why in item.differs]
    return [
        ".. admonition:: Differs from TensorFlow",
        "   :class: warning",
        "",
        *[line for t in told for line in (t, "")],
    ]


def _described(item: Entry) -> list[str]:
    from sphinx.ext.napoleon import Config, GoogleDocstring  # all else here works without Sphinx

    config = Config(napoleon_use_ivar=True, napoleon_use_rtype=False)
    return [*GoogleDocstring(prepared(item.text), config).lines(), ""] if item.text else []


_SECTION = re.compile(r"^(?:Args|Arguments|Attributes|Raises):\n((?:(?:  .*)?(?:\n|$))*)", re.MULTILINE)
_NAMES = re.compile(r"  [*\w., ]+:( |$)")


def prepared(text: str) -> str:
    """A docstring in a form in which Napoleon understands all of it.

    Each argument and each error of a section gets one line, and what is no argument stands before the section. A plural
    (``several `Tensor`s``) is told apart from its name.
    """
    text = re.sub(r"(?<=\w`)(?=\w)", r"\\ ", text)
    return _SECTION.sub(_section, text)


def _section(section: re.Match[str]) -> str:
    items = re.split(r"\n(?=  \S)", section[1].rstrip())
    lines = [re.sub(r"\n +", " ", item) for item in items]
    fields = [line for line in lines if _NAMES.match(line)]
    others = " ".join(line.strip() for line in lines if line not in fields)
    head = section[0].partition("\n")[0]
    named = "\n".join([head, *fields]) if fields else ""
    return "\n\n".join(filter(None, [others, named])) + "\n\n"


def _inherited(item: Entry) -> list[str]:
    lines = []
    for base, names in item.inherited:
        listed = ", ".join(f"`{name} <{base}.{name}>`" for name in names)
        lines += [f"From `{base}`: {listed}.", ""]
    return lines


def _from_markdown(text: str) -> str:
    """A cell of a table, as text of reStructuredText without links."""
    return re.sub(r"`([^`]+)`", r"``\1``", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)).rstrip(".")
