"""What an elastic group's hook asks of the collectives of its task: who waits to join, and to begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfmini import errors

if TYPE_CHECKING:
    from tfmini.runtime.collectives.executor import CollectiveExecutor


def newcomers(executor: CollectiveExecutor, group_key: int) -> list[str]:
    """The devices that wait to join a group which is at work; none if this task is not the group's leader."""
    return executor.leader.present(group_key)


def end_group(executor: CollectiveExecutor, group_key: int, why: str) -> None:
    """Ends a group on all its members: their calls fail with AbortedError, and they begin anew with their hooks."""
    members = [member for (key, _), member in list(executor.members.items()) if key == group_key]
    for member in members:
        executor.fail(member, errors.AbortedError.of(f"Collective group {group_key} forms anew: {why}."), tell=True)
