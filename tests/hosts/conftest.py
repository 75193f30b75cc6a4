"""One network of four hosts for all tests of this folder; each test gets it mended, with no process running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.network import Network, why_not


@pytest.fixture(scope="session")
def hosts() -> Iterator[Network]:
    if why_not():
        pytest.skip(why_not())
    with Network(4) as network:
        yield network


@pytest.fixture
def network(hosts: Network) -> Iterator[Network]:
    yield hosts
    hosts.end()
