"""Self-contained HTML pages, which load nothing from a network; and that of an inspection, drawn by cytoscape."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from tfmini.inspection.clusters import short
from tfmini.inspection.findings import Inspection
from tfmini.inspection.overview import Overview, fold_label, overview
from tfmini.inspection.text import headline
from tfmini.placement.wire_table import Transfer
from tfmini.progress import work

_LIBRARIES = ("LICENSES.txt", "cytoscape.min.js", "dagre.min.js")
HEIGHT_PX = 560
_SCRIPTS = ("units.js", "model.js", "layout.js", "view.js", "heat.js", "page.js")


def page(found: Inspection) -> str:
    """Returns the page's text. It shows the ops that the step runs, by task and name scope."""
    with work("drawing the page"):
        return assembled("page.html", _SCRIPTS, _LIBRARIES, data=_data(found))


def assembled(
    frame: str, scripts: Sequence[str], libraries: Sequence[str] = (), styles: Sequence[str] = (), data: Any = None
) -> str:
    """One page: the file ``frame`` with the data, the scripts, the libraries and the styles in it.

    Files are those of this package, or of another one: ``dashboard:page.js``.
    """
    parts = {
        "/*STYLES*/": "\n".join(map(_file, styles)),
        "/*LIBRARIES*/": "\n".join(map(_file, libraries)),
        "/*DATA*/": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "/*SCRIPT*/": "\n".join(map(_file, scripts)),
    }
    # In one pass: the data may contain what looks like a mark.
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], _file(frame))


def framed(page: str, title: str) -> str:
    """HTML for ``_repr_html_`` with a whole page in it.

    The page is the ``srcdoc`` of a sandboxed iframe. So its styles and scripts do not meet those of the notebook, it
    cannot read the notebook's origin, and it loads nothing. It also runs inside JupyterLab's own sandbox, which allows
    scripts alone.
    """
    return (
        f'<iframe title="{escape(title)}" sandbox="allow-scripts" srcdoc="{escape(page)}"'
        f' style="width: 100%; height: {HEIGHT_PX}px; border: 1px solid #ccc" loading="lazy"></iframe>'
    )


def _file(name: str) -> str:
    package, _, name = name.rpartition(":")
    text = resources.files(f"tfmini.{package or 'inspection'}").joinpath("page", name).read_text()
    return f"/*\n{text}\n*/" if name.endswith(".txt") else text


class _Numbered(dict[str, int]):
    """Numbers texts, since a page with thousands of ops repeats few of them."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _data(found: Inspection) -> dict[str, Any]:
    index = {id(t): i for i, t in enumerate(found.transfers)}
    types, texts = _Numbered(), _Numbered()
    return _overview(overview(found)) | {
        "about": headline(found),
        "devices": [d.device for d in found.devices],
        "short": [short(d.device) for d in found.devices],
        "ops": _ops(found, types, texts),
        "types": list(types),
        "texts": list(texts),
        "transfers": [_transfer(t) for t in found.transfers],
        "messages": [
            {"from": short(m.src), "to": short(m.dst), "text": m.text, "bytes": m.bytes,
             "transfers": [index[id(t)] for t in m.transfers]}
            for m in found.messages()
        ],
        "warnings": [str(w) for w in found.warnings],
    }  # fmt: skip


def _overview(seen: Overview) -> dict[str, Any]:
    number = {load.device: i for i, load in enumerate(seen.loads)}
    return {
        "sentences": seen.sentences(),
        "loads": [
            {"ops": d.ops, "sends": d.sends, "receives": d.receives, "state": d.state_bytes, "idle": d.is_idle}
            for d in seen.loads
        ],
        "links": [[number[src], number[dst], nbytes] for (src, dst), nbytes in seen.links.items()],
        "overloaded": {number[load.device]: factor for load, factor in seen.overloaded},
        "folds": [
            {"label": fold_label(fold), "devices": [number[load.device] for load in fold]} for fold in seen.folds()
        ],
    }


def _ops(found: Inspection, types: _Numbered, texts: _Numbered) -> list[list[Any]]:
    """Rows of name, type, device, reasons, and the inputs and control inputs on the same device."""
    numbers = {op: i for i, op in enumerate(op for d in found.devices for op in d.ops)}
    rows = []
    for device, summary in enumerate(found.devices):
        own = set(summary.ops)
        for op in summary.ops:
            node = found.nodes[op]
            inputs = sorted({numbers[source] for source, _ in node.inputs if source in own})
            controls = sorted({numbers[source] for source in node.controls if source in own})
            reasons = [texts[text] for text in found.why(op)[1:]]
            rows.append([op, types[node.op], device, reasons, inputs, controls])
    return rows


def _transfer(t: Transfer) -> dict[str, Any]:
    return {
        "tensor": t.tensor, "src": t.src, "dst": t.dst, "dtype": t.dtype.name, "bytes": t.bytes, "role": t.role,
        "shape": None if t.shape is None else list(t.shape), "control": t.control, "producer": t.producer,
        "consumers": list(t.consumers), "key": t.key, "send": t.send, "recv": t.recv,
    }  # fmt: skip
