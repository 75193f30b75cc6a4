"""The protocol as a page for people (``docs/protocol.md``) and as a list that a test pins.

Both are made of the declarations in `messages` alone::

    python -m tfmini.rpc.protocol_page > docs/protocol.md
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from tfmini.rpc import codec, messages
from tfmini.rpc.connection_messages import CONNECTION, HANDSHAKE
from tfmini.rpc.records import PROTOCOL_VERSION, REGISTRY

_TITLES = {
    CONNECTION: "On every connection",
    messages.MASTER: "Client to master",
    messages.WORKER: "Master to worker",
    messages.PEER: "Worker to worker",
}
_INTRODUCTION = f"""\
<!-- Made by `python -m tfmini.rpc.protocol_page`; edit tfmini/rpc/messages.py instead. -->
# The protocol, version {PROTOCOL_VERSION}

A message is a list of frames. Frame 0 is msgpack `[version, kind, request id, field, …]`, the fields in
the order of the tables below; the other frames are large tensors. A request carries a number of its
sender's; its reply, or a Status in its place, carries the same. One-way messages carry 0.

| type | in frame 0 |
|---|---|
| bool, int, float, str, bytes | itself |
| strings | a list of str |
| tensors | a list of `[type, payload, size, size, …]`: TensorFlow's number of the type; the payload; the shape |
| structure | any nest of lists, maps and scalars; extension 1 is a tensor as above, 2 a type, 3 a shape |

A payload is bytes (the elements, little-endian, row by row, up to {codec.INLINE_LIMIT} bytes), a list of bytes (few
and short strings), or the number of the frame that holds the elements; such a frame of strings is a
uint64 length per element and then the elements.

The side that connects says Hello; until then at most {codec.HANDSHAKE_LIMIT >> 10} KiB are read, and nothing but
{{handshake}}. A peer of another version is refused with a Goodbye that says so. No message is larger than
{codec.MESSAGE_LIMIT >> 30} GiB; frame 0 is no larger than the last column says. *Retry*: a `safe` request may be sent
again when its fate is unknown; one that is `never` sent again is refused the second time.
"""


def protocol_table() -> list[dict[str, Any]]:
    """One row per kind, by number: kind, name, direction, fields, reply, retry, header_limit (bytes), text."""
    return [
        {
            "kind": row.kind,
            "name": row.name,
            "direction": row.direction,
            "fields": [(f.name, f.describe()) for f in row.fields],
            "reply": row.reply.__name__ if row.reply else "",
            "retry": "" if row.is_reply else row.retry.value,
            "header_limit": cls.header_limit,
            "text": inspect.cleandoc(cls.__doc__ or ""),
        }
        for _, cls in sorted(REGISTRY.items())
        for row in (cls.row,)
    ]


def page() -> str:
    """The page as Markdown."""
    handshake = ", ".join(sorted(cls.__name__ for cls in HANDSHAKE))
    parts = [_INTRODUCTION.replace("{handshake}", handshake)]
    rows = protocol_table()
    for direction, title in _TITLES.items():
        parts.append(f"\n## {title}\n\n| kind | message | reply | retry | frame 0 |\n|---|---|---|---|---|\n")
        mine = [row for row in rows if row["direction"] == direction]
        parts.extend(_line(row) for row in mine)
        parts.extend(f"\n**{row['name']}**: {' '.join(row['text'].split())}\n" for row in mine if _says_more(row))
    return "".join(parts)


def _says_more(row: dict[str, Any]) -> bool:
    return not row["text"].startswith(f"{row['direction']}, kind")


def _line(row: dict[str, Any]) -> str:
    fields = ", ".join(f"{name}: {kind}" for name, kind in row["fields"])
    reply = row["reply"] or ("(a reply)" if row["retry"] == "" else "")
    limit = f"{row['header_limit'] >> 20} MiB"
    return f"| {row['kind']} | **{row['name']}**({fields}) | {reply} | {row['retry']} | {limit} |\n"


def listing() -> str:
    """The wire format, a line per kind and nothing that does not matter to the other side."""
    lines = [f"version {PROTOCOL_VERSION}"]
    for row in protocol_table():
        fields = ", ".join(f"{name}: {kind}" for name, kind in row["fields"])
        tail = (f" -> {row['reply']}" if row["reply"] else "") + (f" {row['retry']}" if row["retry"] else "")
        lines.append(f"{row['kind']} {row['direction']} {row['name']}({fields}){tail}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(listing() if "--listing" in sys.argv else page())
