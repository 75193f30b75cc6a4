"""A slice of the attack; `tests.fuzz.attack` runs as many messages as wanted."""

from __future__ import annotations

import logging

import pytest

from tests.fuzz.attack import Attack


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3])
def test_a_server_survives_random_messages_and_serves_its_client(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "tfmini")
    attack = Attack(seed)
    attack.run(600)
    assert not any(attack.close().values())
