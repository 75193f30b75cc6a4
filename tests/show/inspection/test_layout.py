"""Lines at right angles that pass behind no box, and labels that meet no other."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tfmini.show.inspection.layout import Frame, Key, Label, Line, Rect, Scene, laid_out, packed


def tasks(ps: int, workers: int, across: int = 10) -> list[Frame]:
    """Closed tasks: ``ps/0`` and so on, in rows of ``across``."""
    frames = [Frame(f"ps/{i}", i // across, 150, 60) for i in range(ps)]
    below = -(-ps // across)
    return frames + [Frame(f"worker/{i}", below + i // across, 150, 60 + i % 3) for i in range(workers)]


def exchange(ps: int, workers: int, differs: bool) -> list[Line]:
    """A link each way between every ps and every worker, each with another label or all with the same."""
    down = [(f"ps/{i}", f"worker/{j}") for i in range(ps) for j in range(workers)]
    ways = enumerate(down + [(b, a) for a, b in down])
    return [Line(a, b, f"{(17 * n if differs else 17) + 900} kB/s") for n, (a, b) in ways]


def ring(workers: int) -> list[Line]:
    return [Line(f"worker/{i}", f"worker/{(i + 1) % workers}", f"{i} MB") for i in range(workers)]


def opened(ps: int, workers: int, seed: int) -> tuple[list[Frame], list[Line]]:
    """Tasks with random columns of boxes, and random links inside them and between them."""
    draw = random.Random(seed)
    frames = []
    for frame in tasks(ps, workers, 4):
        columns = tuple(tuple((frame.key, c, r) for r in range(draw.randint(1, 4))) for c in range(draw.randint(0, 4)))
        frames.append(Frame(frame.key, frame.row, 150, 60, columns))
    links = []
    for frame in frames:
        own = [box for column in frame.columns for box in column]
        links += [Line(a, b, kind="data") for a, b in itertools.permutations(own, 2) if draw.random() < 0.15]
    ends = [box for frame in frames for column in (*frame.columns, (frame.key,)) for box in column]
    owner = {box: frame.key for frame in frames for column in (*frame.columns, (frame.key,)) for box in column}
    for _ in range(3 * len(frames)):
        a, b = draw.sample(ends, 2)
        if owner[a] != owner[b]:
            links.append(Line(a, b, f"{draw.randint(1, 10**9):,} B", draw.choice(["wire", "order"])))
    return frames, links


def strips(points: tuple[tuple[float, float], ...], thick: float = 0.2) -> list[Rect]:
    """The segments of a line as thin rectangles, without the very ends."""
    found = []
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        assert x0 == x1 or y0 == y1, "not at a right angle"
        x, y = min(x0, x1), min(y0, y1)
        found.append(
            Rect(x + thick, y + thick, max(x0, x1) - x - 2 * thick or thick, max(y0, y1) - y - 2 * thick or thick)
        )
    return [strip for strip in found if strip.w > 0 and strip.h > 0]


def check(frames: list[Frame], links: list[Line]) -> Scene:
    found = laid_out(frames, links)
    is_open = {frame.key for frame in frames if frame.columns}
    keys = list(found.boxes)
    table = np.array([corners(found.boxes[key]) for key in keys])
    owner = {box: frame.key for frame in frames for column in (*frame.columns, (frame.key,)) for box in column}
    for link, line in zip(links, found.lines, strict=True):
        through = {keys[i] for strip in strips(line) for i in np.flatnonzero(meeting(table, strip))}
        # It may pass the frames of its own ends, and runs through no box: not even through those that it touches.
        assert through <= {owner[link.source], owner[link.target]} & is_open, (link, through)
        for end, key in ((line[0], link.source), (line[-1], link.target)):
            assert touches(found.boxes[key], end), (link, key)
    labels_are_apart(found, frames)
    return found


def corners(box: Rect) -> tuple[float, float, float, float]:
    return box.x, box.y, box.x + box.w, box.y + box.h


def meeting(table: np.ndarray, box: Rect) -> np.ndarray:
    x0, y0, x1, y1 = corners(box)
    return (table[:, 0] < x1) & (x0 < table[:, 2]) & (table[:, 1] < y1) & (y0 < table[:, 3])


def touches(box: Rect, point: tuple[float, float]) -> bool:
    near = Rect(box.x - 0.1, box.y - 0.1, box.w + 0.2, box.h + 0.2)
    return near.meets(Rect(point[0] - 0.05, point[1] - 0.05, 0.1, 0.1))


def labels_are_apart(found: Scene, frames: list[Frame]) -> None:
    boxes = [found.boxes[frame.key] for frame in frames]
    taken = np.array([corners(box) for box in (*boxes, *(label.place for label in found.labels))])
    for box in (*boxes, *(label.place for label in found.labels)):
        assert meeting(taken, box).sum() == 1, box  # itself
    assert (taken[:, :2] >= 0).all() and (taken[:, 2] <= found.width).all() and (taken[:, 3] <= found.height).all()


SHAPES = [(1, 1), (2, 2), (4, 4), (8, 8), (2, 14), (50, 50)]


@pytest.mark.parametrize(("ps", "workers"), SHAPES)
@pytest.mark.parametrize("differs", [False, True])
def test_tasks_that_exchange_with_all_others(ps: int, workers: int, differs: bool) -> None:
    links = exchange(ps, workers, differs)
    found = check(tasks(ps, workers), links)
    assert len(found.labels) == (ps + workers if not differs and min(ps, workers) > 1 else found_labels(links))


def found_labels(links: list[Line]) -> int:
    """Of a trunk with equal labels one, else all."""
    by_source: dict[Key, list[str]] = {}
    for link in links:
        by_source.setdefault(link.source, []).append(link.label)
    return sum(1 if len(set(texts)) == 1 else len(texts) for texts in by_source.values())


@pytest.mark.parametrize("workers", [2, 3, 8, 16, 50])
def test_a_ring(workers: int) -> None:
    found = check(tasks(0, workers), ring(workers))
    assert len(found.labels) == workers


@pytest.mark.parametrize("seed", range(40))
def test_open_tasks_with_random_links(seed: int) -> None:
    check(*opened(1 + seed % 4, 1 + seed % 5, seed))


def test_a_box_of_equal_tasks_sends_to_itself() -> None:
    frames = [Frame("ps ×8", 0, 150, 60), Frame("worker ×8", 1, 150, 60)]
    links = [
        Line("worker ×8", "worker ×8", "3 MB each"),
        Line("worker ×8", "ps ×8", "1 MB"),
        Line("ps ×8", "worker ×8"),
    ]
    found = check(frames, links)
    assert sorted(label.text for label in found.labels) == ["1 MB", "3 MB each"]


def test_one_label_for_each_direction_beside_its_own_line() -> None:
    found = check(tasks(1, 1), [Line("ps/0", "worker/0", "down"), Line("worker/0", "ps/0", "up")])
    assert [label.text for label in found.labels] == ["down", "up"]
    for label, line in zip(found.labels, found.lines):
        assert min(abs(label.place.x - x) for x, _ in line) <= 5


def test_lines_of_different_boxes_share_no_track() -> None:
    links = exchange(4, 4, True)
    found = laid_out(tasks(4, 4), links)
    level: dict[Key, set[float]] = {}
    for link, line in zip(links, found.lines):
        level.setdefault(link.source, set()).update(y0 for (_, y0), (_, y1) in itertools.pairwise(line) if y0 == y1)
    for one, two in itertools.combinations(level.values(), 2):
        assert not one & two


@pytest.mark.parametrize(("ps", "workers"), SHAPES[:-1])
def test_lines_from_above_and_below_do_not_run_in_one(ps: int, workers: int) -> None:
    links = exchange(ps, workers, True)
    upright: dict[tuple[Key, float], tuple[float, float]] = {}
    for link, line in zip(links, laid_out(tasks(ps, workers), links).lines):
        for (x, y0), (x1, y1) in itertools.pairwise(line):
            if x == x1:
                low, high = upright.get((link.source, x), (y0, y0))
                upright[link.source, x] = min(low, y0, y1), max(high, y0, y1)
    for ((a, x), one), ((b, other), two) in itertools.combinations(upright.items(), 2):
        assert a == b or abs(x - other) > 2 or one[1] < two[0] or two[1] < one[0], (a, b, x)


def test_spans_that_touch_have_tracks_of_their_own() -> None:
    assert packed([(0, 10), (20, 30), (5, 25)]) == [0, 0, 1]
    assert packed([]) == []


def test_a_picture_does_not_depend_on_chance() -> None:
    frames, links = opened(3, 3, 5)
    assert laid_out(frames, links) == laid_out(frames, links)
    assert isinstance(laid_out(frames, links).labels[0], Label)


def test_a_link_to_no_box_is_refused() -> None:
    with pytest.raises(KeyError, match="nobody"):
        laid_out(tasks(1, 1), [Line("ps/0", "nobody")])
