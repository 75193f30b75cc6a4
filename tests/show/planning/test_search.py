"""The search against all arrangements, on small random problems."""

from __future__ import annotations

import random

import pytest

from tfmini.show.planning import search as construction
from tfmini.show.planning.models import Arrangement, Cost, Item, NoRoom, Problem
from tfmini.show.planning.search import arrangements, count, exhaustive, neighbours, search

INF = float("inf")
MOVES = ("gather", "one_hot")


def a_problem(rng: random.Random) -> Problem:
    """Three or four items on two or three ps, some of which may be cut, with limits or without."""
    items = []
    for i in range(rng.choice((3, 4, 4))):
        load = rng.choice((0.1, 1.0, 3.0, 10.0)) * rng.uniform(0.5, 1.5)
        items.append(Item(f"v{i}", int(1e6 * rng.uniform(0.5, 4)), load, rng.choice((1, 1, 2))))
    tasks = rng.choice((2, 3))
    room = INF if rng.random() < 0.5 else max(1.6 * sum(item.nbytes for item in items) / tasks, 4.1e6)
    return Problem(tuple(items), (room,) * tasks, MOVES[: rng.randrange(3)])


def a_cost(problem: Problem, rng: random.Random) -> Cost:
    """A step that the estimate of the search does not see whole: pairs that delay each other, a price per piece,
    gains by moves that depend on where the first item is, and some noise that is always the same."""
    pairs = {(i, j): rng.uniform(0, 2) for i in range(len(problem.items)) for j in range(i)}
    piece, gains = rng.uniform(0.05, 0.8), {op: rng.uniform(-0.5, 1.0) for op in problem.moves}
    noise = rng.random()

    def cost(arrangement: Arrangement) -> float:
        loads = problem.loads(arrangement)
        delayed = sum(s for (i, j), s in pairs.items() if set(arrangement.tasks[i]) & set(arrangement.tasks[j]))
        moved = sum(gains[op] / len(arrangement.tasks[0]) for op in arrangement.moved)
        jitter = random.Random(f"{arrangement.tasks}{sorted(arrangement.moved)}{noise}").uniform(0.99, 1.01)
        return (1 + max(loads) + delayed + piece * arrangement.cuts - moved) * jitter

    return cost


@pytest.mark.parametrize("seed", range(40))
def test_it_comes_near_the_optimum_with_fewer_trials(seed: int) -> None:
    rng = random.Random(seed)
    problem = a_problem(rng)
    cost = a_cost(problem, rng)
    optimum = exhaustive(problem, cost)
    found = search(problem, cost, trials=max(12, optimum.trials // 3), seed=seed)
    assert problem.fits(found.best)
    assert found.cost == cost(found.best) <= 1.1 * optimum.cost


def test_the_same_seed_gives_the_same_result() -> None:
    rng = random.Random(7)
    items = tuple(Item(f"v{i}", i + 1, rng.uniform(0, 5), 3) for i in range(12))
    problem = Problem(items, (INF,) * 4)
    cost = a_cost(problem, rng)
    assert search(problem, cost, trials=80, seed=3) == search(problem, cost, trials=80, seed=3)


def test_it_keeps_to_its_trials() -> None:
    problem = Problem(tuple(Item(f"v{i}", 1, 1.0, 2) for i in range(10)), (INF,) * 3, MOVES)
    asked = []

    def cost(arrangement: Arrangement) -> float:
        asked.append(arrangement)
        return max(problem.loads(arrangement))

    assert search(problem, cost, trials=30).trials == len(asked) == len(set(asked)) <= 40


def test_an_impossible_cut_is_avoided() -> None:
    problem = Problem((Item("a", 1, 5.0, 2), Item("b", 1, 1.0)), (INF, INF))
    found = search(problem, lambda a: INF if a.cuts else max(problem.loads(a)))
    assert found.best.cuts == 0 and found.cost == 5.0


def test_cuts_and_moves_without_a_gain_are_undone() -> None:
    problem = Problem((Item("a", 1, 5.0, 2), Item("b", 1, 1.0)), (INF, INF), MOVES)
    found = search(problem, lambda a: 1.0)
    assert (found.best.cuts, found.best.moved) == (0, frozenset())


def test_all_arrangements_are_counted_once() -> None:
    problem = Problem((Item("a", 1, 1.0, 2), Item("b", 1, 1.0)), (INF, INF))
    found = list(arrangements(problem))
    assert found == [
        Arrangement(((0,), (0,))), Arrangement(((0,), (1,))),
        Arrangement(((0, 0), (0,))), Arrangement(((0, 0), (1,))),
        Arrangement(((0, 1), (0,))), Arrangement(((0, 1), (1,))),
    ]  # fmt: skip
    assert count(problem) == 10


def test_neighbours_fit() -> None:
    problem = Problem((Item("a", 4, 1.0, 2), Item("b", 4, 1.0)), (6.0, 6.0))
    start = Arrangement(((0,), (1,)))
    assert {n.tasks for n in neighbours(problem, start)} == {((1,), (0,)), ((0, 0), (1,)), ((0, 1), (1,))}


# ---------------------------------------------------------------- construction


def test_a_large_item_is_cut_and_the_rest_spread() -> None:
    items = (Item("big", 1, 10.0, 4), Item("x", 1, 3.0), Item("y", 1, 2.0), Item("z", 1, 1.0))
    problem = Problem(items, (INF,) * 4)
    found = construction.by_load(problem, cut=True)
    assert len(found.tasks[0]) == 3 and max(problem.loads(found)) < 6
    assert max(problem.loads(construction.by_load(problem, cut=False))) == 10


def test_the_baselines_are_those_of_device_setters() -> None:
    problem = Problem(tuple(Item(n, 0, 0.0) for n in "abcd"), (INF, INF))
    assert construction.round_robin(problem).tasks == ((0,), (1,), (0,), (1,))
    assert construction.greedy_by_bytes(problem, [4, 1, 1, 3]).tasks == ((0,), (1,), (1,), (1,))


def test_memory_comes_before_load() -> None:
    items = (Item("a", 6, 0.1), Item("b", 5, 0.1), Item("c", 5, 9.0), Item("d", 4, 9.0))
    problem = Problem(items, (10.0, 10.0))
    found = construction.by_load(problem, cut=True)
    assert problem.memory(found) == [10, 10]


def test_an_item_is_cut_to_fit() -> None:
    problem = Problem((Item("a", 12, 1.0, 3), Item("b", 5, 1.0)), (9.0, 9.0))
    assert problem.fits(construction.by_load(problem, cut=False))


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([Item("emb", 3_000_000_000, 1.0, 1, "it is a tf.Variable")], "emb has 3 GB .* hold 2 GB, and it cannot"),
        ([Item("emb", 9_000_000_000, 1.0, 2)], "emb has 9 GB .* is cut into 2 pieces at most"),
        ([Item("a", 1_900_000_000, 1.0), Item("b", 1_500_000_000, 1.0), Item("c", 1_000_000_000, 1.0)],
         "4.4 GB of state .* hold 4 GB together. The largest are a .1.9 GB., b"),
        ([Item(name, 1_300_000_000, 1.0) for name in "abc"], "No placement was found .*variables are a .1.3 GB"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(items: list[Item], error: str) -> None:
    problem = Problem(tuple(items), (2e9, 2e9))
    with pytest.raises(NoRoom, match=error):
        search(problem, lambda a: 1.0)
