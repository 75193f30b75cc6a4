"""Fixtures of the tests with task processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rpc.task_processes import Task
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor


@pytest.fixture
def tasks() -> Iterator[Any]:
    made: list[Task] = []

    def make(*args: Any, **options: Any) -> Task:
        made.append(Task(*args, **options))
        return made[-1]

    yield make
    for task in made:
        task.end()
        task.free()


@pytest.fixture
def client() -> Iterator[Endpoint]:
    endpoint = Endpoint(get_reactor(), "", 7)
    yield endpoint
    endpoint.close()
