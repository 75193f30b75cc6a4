"""What comes into an iteration together: the values that enter a loop that waits, and those that go round in it.

The iterations of such a loop overlap. A value goes to the next iteration as soon as the segment that computes it has
run, so those that the same segment computes form a *round*. The counter of a loop is usually a round by itself: it runs
ahead while the other variables wait. What enters the loop is split likewise into *entries*, where a value may have to
wait for the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tfmini.graph.node import Node, Nodes

Arrival = tuple[str, object]
Needs = frozenset[Arrival]
"""What must have come in an iteration: ("round", number), ("entry", number) or ("wait", the name of a node)."""


def split_entries(lateness: Sequence[frozenset[int]]) -> list[int]:
    """The number of the entry of each value that enters, for what may come late of the things that it needs.

    Number 0 is the entry that needs the least.
    """
    order = sorted(set(lateness), key=lambda late: (len(late), sorted(late)))
    return [order.index(late) for late in lateness]


def split_rounds(
    nodes: Nodes, variables: Mapping[str, tuple[int, str]], entries: Mapping[str, int], waits: Callable[[Node], bool],
    one_decides: bool,
) -> tuple[list[list[str]], bool]:  # fmt: skip
    """The coarsest division of the loop variables in which those of one round are computed by one segment.

    Args:
      nodes: of the loop, in topological order without regard to back edges.
      variables: the Merge of each loop variable -> (the entry with its first value, the NextIteration of the others).
      entries: other Enter -> the number of its entry.
      waits: whether what follows a node is in another segment than what it follows.
      one_decides: whether either all variables go on or none, so that one round can tell.

    Returns:
      The rounds, and whether the first is always there when another one is, and so may decide.
    """
    rounds = {name: entry for name, (entry, _) in variables.items()}
    while True:
        needs = _needs(nodes, rounds, entries, waits)
        numbers: dict[tuple[int, Needs], int] = {}
        refined = {
            name: numbers.setdefault((rounds[name], needs[later]), len(numbers))
            for name, (_, later) in variables.items()
        }
        if len(numbers) == len(set(rounds.values())):
            break
        rounds = refined
    groups: dict[int, list[str]] = {}
    for name, number in rounds.items():
        groups.setdefault(number, []).append(name)
    if len(groups) < 2:
        return list(groups.values()), bool(groups)
    of_group = {number: needs[variables[names[0]][1]] for number, names in groups.items()}
    first = min(groups, key=lambda number: len(of_group[number]))
    leads = one_decides and all(of_group[first] <= other for other in of_group.values())
    return [groups[first], *(names for number, names in groups.items() if number != first)], leads


def _needs(
    nodes: Nodes, rounds: Mapping[str, int], entries: Mapping[str, int], waits: Callable[[Node], bool]
) -> dict[str, Needs]:
    found: dict[str, Needs] = {}
    for name, node in nodes.items():
        if name in rounds:
            found[name] = frozenset({("round", rounds[name])})
            continue
        parts = [found[s] for s in (*(s for s, _ in node.inputs), *node.controls) if s in found]
        if name in entries:
            parts = [frozenset({("entry", entries[name])})]
        if waits(node):
            parts.append(frozenset({("wait", name)}))
        distinct = set(parts)
        found[name] = distinct.pop() if len(distinct) == 1 else frozenset().union(*distinct)
    return found
