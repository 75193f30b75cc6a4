"""Places boxes in rows and leads lines between them at right angles, so that no line passes behind a box. Pure.

Frames stand in rows. A frame is one box, or it holds columns of boxes. Between two rows is a *channel*, and beside each
column a *lane* that reaches from the upper to the lower edge of its frame. Lines run in channels and lanes alone, each
on a track of its own; so they cross each other, but no box. The lines of one kind from one box share a trunk. A row has
its lines on the side of its channel: the first row below, the others above.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

Key = Hashable
Point = tuple[float, float]

LETTER = 7.0  # the width of a letter of a label of 11 px; fonts differ, so it is rather too much
LINE = 13.0  # the height of a label
_TRACK = 11.0  # from one track to the next
_PORT = 13.0  # from one line at the edge of a box to the next
_ARROW = 14.0  # the room for an arrowhead
_GAP, _PAD, _HEAD, _MARGIN = 34.0, 12.0, 22.0, 16.0
_WIDEST = 200.0  # of labels side by side at a box; wider ones stand upright
_ROWS = 10.0  # between two boxes of a column


@dataclass(frozen=True)
class Rect:
    """A rectangle by its upper left corner."""

    x: float
    y: float
    w: float
    h: float

    def moved(self, x: float, y: float) -> Rect:
        """The same size elsewhere."""
        return Rect(self.x + x, self.y + y, self.w, self.h)

    def meets(self, other: Rect) -> bool:
        """Whether the two have a part in common."""
        return self.x < other.x + other.w and other.x < self.x + self.w and (
            self.y < other.y + other.h and other.y < self.y + self.h
        )  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """A frame of the picture.

    Attributes:
      row: the number of its row, from the top.
      width, height: of the frame as one box; of columns they follow from the boxes.
      columns: the boxes inside, from left to right and from top to bottom.
      box: width and height of each of these.
    """

    key: Key
    row: int
    width: float = 0.0
    height: float = 0.0
    columns: tuple[tuple[Key, ...], ...] = ()
    box: tuple[float, float] = (132.0, 30.0)


@dataclass(frozen=True)
class Line:
    """A line from one box to another, or to itself. Links with the same source and kind share a trunk."""

    source: Key
    target: Key
    label: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Label:
    """A text beside a line; ``place`` is the room that it takes, which no other label meets."""

    text: str
    place: Rect
    is_upright: bool


@dataclass
class Scene:
    """The picture.

    Attributes:
      boxes: frames, and the boxes in them.
      lines: the corners of the line of each link, from its source to its target.
      labels: one for each link that has a label of its own, and one for each trunk whose labels are joined.
    """

    width: float
    height: float
    boxes: dict[Key, Rect]
    lines: list[tuple[Point, ...]]
    labels: list[Label]


def laid_out(frames: Sequence[Frame], links: Sequence[Line], joins_labels: bool = True) -> Scene:
    """Places frames, lines and labels.

    Args:
      joins_labels: whether a trunk whose links have the same label has it once.

    Raises:
      KeyError: a link names no box.
    """
    return _Drawing(frames, links, joins_labels).layout()


Trunk = tuple[Key, str]


@dataclass
class _Lane:
    """The tracks of a lane: which trunk runs on which, in which part of the frame's height, and its label."""

    spans: dict[tuple[Trunk, str], tuple[float, float]] = field(default_factory=dict)
    labels: dict[tuple[Trunk, str], str] = field(default_factory=dict)
    at: dict[tuple[Trunk, str], float] = field(default_factory=dict)
    width: float = 0.0

    def use(self, trunk: Trunk, role: str, low: float, high: float) -> None:
        before = self.spans.get((trunk, role), (low, high))
        self.spans[trunk, role] = min(low, before[0]), max(high, before[1])

    def arrange(self, pitch: float, is_upright: bool, shares: bool, last: str) -> None:
        """Gives each track its place, from the left edge of the lane; ``last``: the role of those at the right."""
        if not self.spans:
            return
        uses = list(self.spans) if shares else sorted(self.spans, key=lambda use: use[1] == last)
        rows = packed(self.spans.values()) if shares else list(range(len(uses)))
        room = dict.fromkeys(range(max(rows) + 1), 0.0)
        for row, use in zip(rows, uses):
            room[row] = max(room[row], _room(self.labels.get(use, ""), is_upright))
        left = list(itertools.accumulate((pitch + room[row] for row in sorted(room)), initial=pitch / 2))
        self.at = {use: left[row] for row, use in zip(rows, uses)}
        self.width = left[-1] - pitch / 2


def _room(label: str, is_upright: bool) -> float:
    return 0.0 if not label else 8.0 if is_upright else LETTER * len(label) + 5


def packed(spans: Iterable[tuple[float, float]]) -> list[int]:
    """The track of each span, such that spans on one track do not touch: the first free one, by their starts."""
    rows, ends = {}, list[float]()
    ordered = sorted(enumerate(spans), key=lambda item: (item[1], item[0]))
    for number, (low, high) in ordered:
        row = next((row for row, end in enumerate(ends) if end + 6 < low), len(ends))
        ends[row:row + 1] = [high]  # fmt: skip
        rows[number] = row
    return [rows[number] for number in range(len(rows))]


class _Drawing:
    """The steps of `laid_out`: lanes, the widths that follow from them, channels, the heights, lines, labels."""

    def __init__(self, frames: Sequence[Frame], links: Sequence[Line], joins_labels: bool) -> None:
        self.frames = {frame.key: frame for frame in frames}
        self.links = list(links)
        self.rows = [[f for f in frames if f.row == row] for row in range(1 + max((f.row for f in frames), default=0))]
        # box -> its frame, the number of its column and its upper edge in the frame
        self.inside: dict[Key, tuple[Frame, int, float]] = {}
        for frame in frames:
            self.inside[frame.key] = frame, -1, 0.0
            for column, boxes in enumerate(frame.columns):
                for i, box in enumerate(boxes):
                    self.inside[box] = frame, column, i * (frame.box[1] + _ROWS)
        self.kinds = {kind: i for i, kind in enumerate(dict.fromkeys(link.kind for link in links))}
        self.lanes = {f.key: [_Lane() for _ in range(len(f.columns) + 1)] for f in frames}
        self.back: dict[Key, dict[Trunk, list[float]]] = {f.key: {} for f in frames}
        self.labels: dict[tuple[Key, int, Trunk, str], str] = {}
        self.channels: list[dict[Trunk, list[float]]] = [{} for _ in range(max(1, len(self.rows) - 1))]
        self.risers: dict[Trunk, int] = {}
        self.lefts: dict[Key, float] = {}
        self.nudges: dict[Key, float] = {}
        self.tops: dict[Key, float] = {}
        self.tracks: list[dict[Trunk, float]] = []
        self.bottom = _MARGIN
        self.rects: dict[Key, Rect] = {}
        self.behind: dict[Key, tuple[dict[Trunk, float], float]] = {}
        self._use_lanes()
        self._set_labels(joins_labels)

    # ---- who runs where

    def _channel(self, frame: Frame) -> int:
        return max(0, frame.row - 1)

    def _is_inner(self, link: Line) -> bool:
        frame = self.inside[link.source][0]
        return (
            frame is self.inside[link.target][0] and bool(frame.columns) and frame.key not in (link.source, link.target)
        )

    def _out(self, box: Key) -> tuple[Frame, int, str]:
        """The frame, the lane and the role of lines that leave a box."""
        frame, column, _ = self.inside[box]
        return (frame, 0, "out") if column < 0 else (frame, column + 1, "")

    def _into(self, box: Key) -> tuple[Frame, int, str]:
        frame, column, _ = self.inside[box]
        return (frame, 0, "in") if column < 0 else (frame, column, "")

    def _is_short(self, link: Line) -> bool:
        """Whether the lane behind the source is that before the target."""
        return self._out(link.source)[1] == self._into(link.target)[1]

    def _y(self, box: Key, kind: str, goes_out: bool) -> float:
        """Where a line meets a box, from the upper edge of the boxes of its frame."""
        frame, column, top = self.inside[box]
        if column < 0:
            return 0.0
        part = (0.15 if goes_out else 0.55) + 0.3 * self.kinds[kind] / len(self.kinds)
        return top + part * frame.box[1]

    def _use_lanes(self) -> None:
        for link in self.links:
            trunk, (frame, lane, role) = (link.source, link.kind), self._out(link.source)
            other, other_lane, other_role = self._into(link.target)
            start, end = self._y(link.source, link.kind, True), self._y(link.target, link.kind, False)
            if self._is_inner(link) and self._is_short(link):
                self.lanes[frame.key][lane].use(trunk, role, min(start, end), max(start, end))
                continue
            # Inner lines that go further turn at the edge that is not the channel's.
            far = math.inf if frame.row == 0 else -math.inf
            far, other_far = (-far, -far) if self._is_inner(link) else (far, math.inf if other.row == 0 else -math.inf)
            self.lanes[frame.key][lane].use(trunk, role, min(start, far), max(start, far))
            self.lanes[other.key][other_lane].use(trunk, other_role, min(end, other_far), max(end, other_far))

    # ---- labels

    def _set_labels(self, joins: bool) -> None:
        trunks: dict[Trunk, list[Line]] = {}
        for link in self.links:
            if not self._is_inner(link):
                trunks.setdefault((link.source, link.kind), []).append(link)
        for trunk, members in trunks.items():
            texts = {link.label for link in members}
            if joins and len(texts) == 1 and len(members) > 1:
                frame, lane, role = self._out(trunk[0])
                text = texts.pop()
                self.labels[frame.key, lane, trunk, role] = f"{text} each" if text else ""
                continue
            for link in members:
                frame, lane, role = self._into(link.target)
                place = frame.key, lane, trunk, role
                self.labels[place] = self.labels.get(place) or link.label
        for (key, lane, trunk, role), text in self.labels.items():
            if text:
                self.lanes[key][lane].labels[trunk, role] = text

    def _is_upright(self, frame: Frame) -> bool:
        return max(sum(_room(text, False) for text in lane.labels.values()) for lane in self.lanes[frame.key]) > _WIDEST

    def _depth(self, frame: Frame) -> float:
        """The height that the labels of a frame need in its channel."""
        texts = [text for lane in self.lanes[frame.key] for text in lane.labels.values()]
        longest = max(map(len, texts), default=0)
        return _ARROW + (LETTER * longest if self._is_upright(frame) else LINE if texts else 0.0)

    # ---- widths

    def _arrange_lanes(self) -> None:
        for key, lanes in self.lanes.items():
            for lane in lanes:
                frame = self.frames[key]
                is_open, last = bool(frame.columns), "in" if frame.row else "out"  # so that two boxes need no crossing
                lane.arrange(_TRACK if is_open else _PORT, self._is_upright(frame), is_open, last)

    def _lefts(self, frame: Frame) -> tuple[list[float], float]:
        """The left edges of the lanes, from that of the frame; and the width of the frame."""
        lanes = self.lanes[frame.key]
        if not frame.columns:
            width = max(frame.width, lanes[0].width + _PAD)
            return [(width - lanes[0].width) / 2], width
        lefts, x = [], _PAD / 2
        for lane in lanes:
            lefts.append(x + _PAD / 2)
            x += lane.width + _PAD + _ARROW + frame.box[0]
        return lefts, x - frame.box[0] - _ARROW / 2

    def _place_across(self, left: float) -> dict[Key, float]:
        """The left edge of each frame; rows are centred."""
        widths = {key: self._lefts(frame)[1] for key, frame in self.frames.items()}
        rows = [sum(widths[f.key] for f in row) + _GAP * (len(row) - 1) for row in self.rows]
        found = {}
        for row, width in zip(self.rows, rows):
            x = left + (max(rows) - width) / 2
            for frame in row:
                found[frame.key] = x + self.nudges.get(frame.key, 0.0)
                x += widths[frame.key] + _GAP
        return found

    def _x(self, end: tuple[Frame, int, str], trunk: Trunk) -> float:
        frame, lane, role = end
        return self.lefts[frame.key] + self._lefts(frame)[0][lane] + self.lanes[frame.key][lane].at[trunk, role]

    def _best_nudges(self) -> dict[Key, float]:
        """How far frames of the second row go to the right, so that lines from above and below do not run in one."""
        xs: dict[Key, set[tuple[float, Trunk]]] = {}
        for link in self.links:
            for end in () if self._is_inner(link) else (self._out(link.source), self._into(link.target)):
                trunk = link.source, link.kind
                xs.setdefault(end[0].key, set()).add((self._x(end, trunk), trunk))
        above = sorted((end for frame in self.rows[0] for end in xs.get(frame.key, ())), key=itemgetter(0))

        def nearest(own: set[tuple[float, Trunk]], shift: float) -> float:
            found = _PORT / 2
            for x, trunk in own:
                at = bisect.bisect(above, x + shift, key=itemgetter(0))
                near = above[max(0, at - 2):at + 2]  # fmt: skip
                found = min([found, *(abs(x + shift - other) for other, its in near if its != trunk)])
            return found

        shifts = [float(shift) for shift in range(int(_GAP / 2))]
        below = [frame.key for row in self.rows[1:2] for frame in row]
        return {key: max(shifts, key=partial(nearest, xs.get(key, set()))) for key in below}

    # ---- tracks of channels, and behind the boxes of a frame

    def _use_channels(self) -> None:
        for link in self.links:
            trunk, out, into = (link.source, link.kind), self._out(link.source), self._into(link.target)
            ends = [(self._channel(frame), self._x((frame, lane, role), trunk)) for frame, lane, role in (out, into)]
            if self._is_inner(link):
                if not self._is_short(link):
                    self.back[out[0].key].setdefault(trunk, []).extend(x for _, x in ends)
                continue
            for channel, x in ends:
                # A trunk with several channels reaches the left margin in all of them.
                self.channels[channel].setdefault(trunk, []).append(x)
                if ends[0][0] != ends[1][0]:
                    self.risers.setdefault(trunk, len(self.risers))
                    self.channels[channel][trunk].append(0.0)

    @staticmethod
    def _tracks(uses: dict[Trunk, list[float]]) -> tuple[dict[Trunk, float], float]:
        """trunk -> the place of its track, and the height of all."""
        rows = packed((min(xs), max(xs)) for xs in uses.values())
        return {trunk: _TRACK * (row + 0.5) for trunk, row in zip(uses, rows)}, _TRACK * (max(rows, default=-1) + 1)

    # ---- the whole

    def layout(self) -> Scene:
        self._arrange_lanes()
        self.lefts = self._place_across(_MARGIN)
        self.nudges = self._best_nudges()
        self.lefts = self._place_across(_MARGIN)
        self._use_channels()
        shift = _MARGIN + _TRACK * len(self.risers)
        self.lefts = self._place_across(shift)
        self.channels = [
            {trunk: [x and x + shift - _MARGIN for x in xs] for trunk, xs in c.items()} for c in self.channels
        ]
        self.behind = {key: self._tracks(uses) for key, uses in self.back.items()}
        self._place_down()
        boxes = self._rectangles()
        right = max(box.x + box.w for box in boxes.values())
        return Scene(right + _MARGIN, self.bottom + _MARGIN, boxes, [*map(self._line, self.links)], self._labels(boxes))

    def _height(self, frame: Frame) -> float:
        if not frame.columns:
            return frame.height
        tallest = max(len(boxes) for boxes in frame.columns)
        return _HEAD + self.behind[frame.key][1] + tallest * (frame.box[1] + _ROWS) + _PAD

    def _place_down(self) -> None:
        y = _MARGIN
        for number, row in enumerate(self.rows):
            if number:
                y += max((self._depth(f) for f in row), default=0.0)
            tallest = max((self._height(f) for f in row), default=0.0)
            for frame in row:  # at the side of the channel
                self.tops[frame.key] = y + (tallest - self._height(frame) if not number else 0.0)
            y += tallest
            if number < len(self.channels):
                if not number:
                    y += max((self._depth(f) for f in row), default=0.0)
                else:
                    y += _GAP
                tracks, height = self._tracks(self.channels[number])
                self.tracks.append({trunk: y + at for trunk, at in tracks.items()})
                y += height
        self.bottom = y

    def _inner_top(self, frame: Frame) -> float:
        """The upper edge of the boxes of a frame. Its title is at the side that is not the channel's."""
        top = self.tops[frame.key]
        return top + _PAD if frame.row else top + _HEAD + self.behind[frame.key][1]

    def _back_y(self, frame: Frame, trunk: Trunk) -> float:
        at, height = self.behind[frame.key]
        if frame.row:
            return self.tops[frame.key] + self._height(frame) - _HEAD - height + at[trunk]
        return self.tops[frame.key] + _HEAD - 4 + at[trunk]

    def _rectangles(self) -> dict[Key, Rect]:
        found: dict[Key, Rect] = {}
        for key, frame in self.frames.items():
            lefts, width = self._lefts(frame)
            found[key] = Rect(self.lefts[key], self.tops[key], width, self._height(frame))
            for column, boxes in enumerate(frame.columns):
                x = self.lefts[key] + lefts[column] + self.lanes[key][column].width + _ARROW + _PAD / 2 - 4
                for box in boxes:
                    found[box] = Rect(x, self._inner_top(frame) + self.inside[box][2], *frame.box)
        self.rects = found
        return found

    def _line(self, link: Line) -> tuple[Point, ...]:
        trunk, out, into = (link.source, link.kind), self._out(link.source), self._into(link.target)
        x, to = self._x(out, trunk), self._x(into, trunk)
        start, end = self._stub(link.source, link.kind, x, True), self._stub(link.target, link.kind, to, False)
        if self._is_inner(link):
            if self._is_short(link):
                return _joined(*start, *reversed(end))
            y = self._back_y(out[0], trunk)
            return _joined(*start, (x, y), (to, y), *reversed(end))
        one, two = (self.tracks[self._channel(frame)][trunk] for frame in (out[0], into[0]))
        rise = [] if one == two else [(riser := _MARGIN / 2 + _TRACK * self.risers[trunk], one), (riser, two)]
        return _joined(*start, (x, one), *rise, (to, two), *reversed(end))

    def _stub(self, box: Key, kind: str, x: float, goes_out: bool) -> tuple[Point, Point]:
        """The end of a line at a box, and where it meets its track."""
        rect, frame = self.rects[box], self.inside[box][0]
        if box == frame.key:
            edge = rect.y if frame.row else rect.y + rect.h
            return (x, edge), (x, edge)
        y = self._inner_top(frame) + self._y(box, kind, goes_out)
        return (rect.x + rect.w if goes_out else rect.x, y), (x, y)

    def _labels(self, boxes: dict[Key, Rect]) -> list[Label]:
        found = []
        for (key, lane, trunk, role), text in self.labels.items():
            if not text:
                continue
            frame, rect = self.frames[key], boxes[key]
            is_upright, x = self._is_upright(frame), self._x((frame, lane, role), trunk)
            long = LETTER * len(text)
            w, h = (LINE - 1, long) if is_upright else (long, LINE)
            y = rect.y - _ARROW - h if frame.row else rect.y + rect.h + _ARROW
            found.append(Label(text, Rect(x + 5, y, w, h), is_upright))
        return found


def _joined(*points: Point) -> tuple[Point, ...]:
    """Without corners that are none."""
    found: list[Point] = []
    for point in points:
        while len(found) > 1 and (found[-2][0] == found[-1][0] == point[0] or found[-2][1] == found[-1][1] == point[1]):
            found.pop()
        if not found or found[-1] != point:
            found.append(point)
    return tuple(found)
