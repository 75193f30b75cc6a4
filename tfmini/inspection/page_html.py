"""An inspection as one self-contained HTML page: cytoscape draws it, and nothing is loaded from a network."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from tfmini.inspection.findings import Inspection
from tfmini.placement.wire_table import Transfer

_LIBRARIES = ("cytoscape.min.js", "dagre.min.js", "cytoscape-dagre.js")


def page(found: Inspection) -> str:
    """The page's text. It shows the ops that the step runs, by task and name scope."""
    data = json.dumps(_data(found)).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    parts = {
        "/*LIBRARIES*/": "\n".join(_file(name) for name in ("LICENSES.txt", *_LIBRARIES)),
        "/*DATA*/null": data,
        "/*SCRIPT*/": _file("page.js"),
    }
    text = _file("page.html")
    for mark, content in parts.items():
        before, _, after = text.partition(mark)
        text = before + content + after
    return text


def _file(name: str) -> str:
    text = resources.files("tfmini.inspection").joinpath("page", name).read_text()
    return f"/*\n{text}\n*/" if name.endswith(".txt") else text


def _data(found: Inspection) -> dict[str, Any]:
    index = {id(t): i for i, t in enumerate(found.transfers)}
    return {
        "devices": [d.device for d in found.devices],
        "ops": [
            {"name": op, "op": found.nodes[op].op, "device": d.device, "reasons": found.why(op)[1:],
             "inputs": sorted({source for source, _ in found.nodes[op].inputs})}
            for d in found.devices for op in d.ops
        ],
        "transfers": [_transfer(t) for t in found.transfers],
        "messages": [
            {"src": m.src, "dst": m.dst, "text": m.text, "bytes": m.bytes,
             "transfers": [index[id(t)] for t in m.transfers]}
            for m in found.messages()
        ],
    }  # fmt: skip


def _transfer(t: Transfer) -> dict[str, Any]:
    return {
        "tensor": t.tensor, "src": t.src, "dst": t.dst, "dtype": t.dtype.name, "bytes": t.bytes, "role": t.role,
        "shape": None if t.shape is None else list(t.shape), "control": t.control, "producer": t.producer,
        "consumers": list(t.consumers), "key": t.key, "send": t.send, "recv": t.recv,
    }  # fmt: skip
