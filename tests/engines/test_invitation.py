"""Invitations of launchers to agents."""

from __future__ import annotations

import base64

import pytest

from tfmini.cluster import parse_address
from tfmini.engines.invitation import Invitation, parse_invitation


def test_a_word_stands_for_its_invitation() -> None:
    made = Invitation((parse_address("a:1"), parse_address("[::1]:2")), b"secret")
    assert parse_invitation(made.to_word()) == made


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"at": 3, "secret": ""}', b'{"at": [], "secret": 3}',
                                     b'{"at": ["a"], "secret": ""}', b"[" * 3000, b"\xff"])  # fmt: skip
def test_another_word_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="does not hold the invitation of a launcher"):
        parse_invitation(base64.urlsafe_b64encode(content).decode())
    with pytest.raises(ValueError, match="does not hold the invitation of a launcher"):
        parse_invitation("é")
