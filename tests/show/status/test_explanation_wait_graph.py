"""Deadlocks in wait-for graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.show.status.explanation import ALL, ANY, Graph, cycles, deadlocked, edges_of, paths_to_ends

graphs = st.integers(1, 7).flatmap(
    lambda n: st.fixed_dictionaries(
        {i: st.tuples(st.sampled_from([ALL, ANY]), st.lists(st.integers(0, n), max_size=3)) for i in range(n)}
    )
)


def survivors(graph: Graph[int]) -> set[int]:
    """Ends nodes one by one, as the cluster would, until none can end; returns those that are left."""
    left = set(graph)
    while True:
        for node in sorted(left):
            mode, successors = graph[node]
            waits = [successor in left for successor in successors]
            if not (any(waits) if mode == ALL else waits and all(waits)):
                left.remove(node)
                break
        else:
            return left


@settings(max_examples=300, deadline=None)
@given(graphs)
def test_exactly_those_are_deadlocked_that_nothing_can_end(graph: Graph[int]) -> None:
    assert deadlocked(graph) == survivors(graph)


@settings(max_examples=300, deadline=None)
@given(graphs)
def test_every_deadlock_has_a_cycle_and_every_cycle_is_one(graph: Graph[int]) -> None:
    stuck = deadlocked(graph)
    found = cycles(edges_of(graph), sorted(stuck))
    assert bool(found) == bool(stuck)
    for cycle in found:
        assert len(set(cycle)) == len(cycle) and set(cycle) <= stuck
        for node, successor in zip(cycle, [*cycle[1:], cycle[0]]):
            assert successor in graph[node][1]
    assert sum(map(len, found)) == len({node for cycle in found for node in cycle})


@settings(max_examples=100, deadline=None)
@given(graphs)
def test_paths_follow_edges_to_nodes_that_wait_for_nothing(graph: Graph[int]) -> None:
    for end, path in paths_to_ends(edges_of(graph), 0).items():
        assert path[0] == 0 and path[-1] == end and not graph.get(end, (ALL, ()))[1]
        for node, successor in zip(path, path[1:]):
            assert successor in graph[node][1]


def test_a_cycle_that_another_step_can_end_is_no_deadlock() -> None:
    graph: Graph[str] = {"a": (ANY, ["b", "c"]), "b": (ANY, ["a"]), "c": (ALL, [])}
    assert deadlocked(graph) == set()
    assert deadlocked({**graph, "c": (ALL, ["b"])}) == {"a", "b", "c"}


def test_the_cycle_is_the_shortest() -> None:
    graph: Graph[str] = {"a": (ALL, ["b", "c"]), "b": (ALL, ["c"]), "c": (ALL, ["a"])}
    assert cycles(edges_of(graph), ["a", "b", "c"]) == [["a", "c"]]
