"""The wire format does not change unnoticed, and its page agrees with the code.

After a deliberate change: raise PROTOCOL_VERSION (tfmini/rpc/records.py), then::

    python -m tests.rpc.protocol_page --listing > tests/rpc/protocol.txt
    python -m tests.rpc.protocol_page > docs/reference/protocol.md
"""

from __future__ import annotations

import re
from pathlib import Path

import msgpack
import numpy as np
import pytest

from tests.rpc import protocol_page
from tests.rpc.protocol_page import protocol_table
from tfmini import dtypes
from tfmini.rpc import messages as connection
from tfmini.rpc import messages as m
from tfmini.rpc.codec import encode
from tfmini.rpc.records import PROTOCOL_VERSION, REGISTRY
from tfmini.shapes import TensorShape

PINNED = Path(__file__).with_name("protocol.txt")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
AGAIN = "see the first lines of tests/rpc/test_messages_page.py"


def test_the_wire_format_is_pinned() -> None:
    now, pinned = protocol_page.listing().splitlines(), PINNED.read_text().splitlines()
    changed = sorted(set(now) ^ set(pinned))
    if changed and now[0] == pinned[0]:
        pytest.fail(f"the wire format has changed: bump PROTOCOL_VERSION; {AGAIN}:\n" + "\n".join(changed))
    assert now == pinned, f"PROTOCOL_VERSION was bumped: write the listing anew; {AGAIN}"


def test_the_page_agrees_with_the_declarations() -> None:
    assert PAGE.read_text() == protocol_page.page(), f"docs/reference/protocol.md is stale: write it anew; {AGAIN}"


def test_every_kind_is_on_the_page() -> None:
    shown = re.findall(r"^\| \d+ \| \*\*(\w+)\*\*", protocol_page.page(), re.MULTILINE)
    assert sorted(shown) == sorted(row["name"] for row in protocol_page.protocol_table())


def test_hello_is_pinned() -> None:
    """A process of another version decodes it to report the mismatch: entries may be added, none may move."""
    version = PROTOCOL_VERSION
    (head,) = encode(connection.Hello(version, "/job:a", 7, "f:1", b"h", True, "/job:b", 3, 4), 9)
    assert msgpack.unpackb(head) == [version, 1, 9, version, "/job:a", 7, "f:1", b"h", True, "/job:b", 3, 4]


def test_goodbye_is_pinned_for_all_versions() -> None:
    (head,) = encode(connection.Goodbye("why"))
    assert head == b"\x94" + bytes([PROTOCOL_VERSION, 6, 0]) + b"\xa3why"


def test_tensors_are_pinned() -> None:
    """The layout inside the fields, which the listing does not show."""
    strings = np.array([b"s" * 3000, b""], object)
    values = (np.int32([5]), np.zeros(600, np.float32), strings)
    head, floats, texts = encode(m.SendTensors(1, "2.0", 3, b"\x04", values))
    inline = [3, b"\x05\x00\x00\x00", 1]
    assert msgpack.unpackb(head) == [PROTOCOL_VERSION, 96, 0, 1, "2.0", 3, b"\x04", [inline, [1, 1, 600], [7, 2, 2]]]
    assert (bytes(floats), bytes(texts)) == (bytes(2400), np.uint64([3000, 0]).tobytes() + b"s" * 3000)
    (head,) = encode(m.ListDevicesReply([np.int32(5), dtypes.float32, TensorShape([2, None])]), 1)
    extensions = [(1, b"\x92\x03\xc4\x04\x05\0\0\0"), (2, b"\x01"), (3, b"\x92\x02\xc0")]
    assert msgpack.unpackb(head) == [PROTOCOL_VERSION, 33, 1, [msgpack.ExtType(*e) for e in extensions]]


def test_protocol_table_lists_every_kind() -> None:
    rows = protocol_table()
    assert [row["kind"] for row in rows] == sorted(REGISTRY)
    run_graph = next(row for row in rows if row["name"] == "RunGraph")
    assert run_graph["reply"] == "RunGraphReply"
    assert run_graph["direction"] == "master->worker"
    assert ("feed_values", "tensors") in run_graph["fields"]
