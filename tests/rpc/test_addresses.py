"""Addresses have one spelling; malformed ones are named."""

from __future__ import annotations

import pytest

from tfmini import errors
from tfmini.rpc.addresses import parse_address


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("localhost:2222", "tcp://localhost:2222"),
        ("grpc://ps0.example.com:1", "tcp://ps0.example.com:1"),
        ("zmq://10.0.0.1:0", "tcp://10.0.0.1:0"),
        ("tcp://[::1]:65535", "tcp://[::1]:65535"),
        ("ipc:///tmp/x", "ipc:///tmp/x"),
    ],
)
def test_addresses_have_one_canonical_form(text: str, parsed: str) -> None:
    assert str(parse_address(text)) == parsed
    assert parse_address(parsed) == parse_address(text)


@pytest.mark.parametrize(
    "text", ["", "x", ":1", "x:", "x:-1", "x:65536", "x:1:2", "a b:1", "ftp://x:1", "ipc://", "x:٣"]
)
def test_malformed_addresses_are_named(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Could not interpret the address") as caught:
        parse_address(text)
    assert repr(text) in caught.value.message
