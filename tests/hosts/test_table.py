"""The examples on four hosts, as the table of `make bench-hosts` has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.cluster import keys_in, thorough
from tests.hosts.network import Network
from tests.hosts.table import EXAMPLES, train_example

pytestmark = [pytest.mark.cluster, thorough]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_train_on_four_hosts(network: Network, tmp_path: Path, name: str) -> None:
    found = train_example(network, keys_in(tmp_path), name)
    assert EXAMPLES[name].least <= found <= EXAMPLES[name].most
