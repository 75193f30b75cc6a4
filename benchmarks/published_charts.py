"""Charts of published and simulated values, as small SVG files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 380, 60, 150, 30, 40
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def line_chart(title: str, x_label: str, lines: Mapping[str, Points], marks: Mapping[str, Points], log_y: bool) -> str:
    """The text of an SVG file.

    Args:
      lines: name -> simulated points, joined by a line.
      marks: name of a line -> published points, as circles of its colour.
      log_y: whether y has a logarithmic axis; x always has one.
    """
    every = [point for points in [*lines.values(), *marks.values()] for point in points]
    xs, ys = [math.log(x) for x, _ in every], [math.log(y) if log_y else y for _, y in every]
    low, high = (min(ys), max(ys)) if log_y else (0.0, max(ys))

    def place(x: float, y: float) -> str:
        across = (math.log(x) - min(xs)) / (max(xs) - min(xs))
        up = ((math.log(y) if log_y else y) - low) / (high - low)
        left, top = _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)
        return f"{left:.0f},{top:.0f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-weight="bold">{title}</text>',
        f'<text x="{_WIDTH // 2 - _LEFT}" y="{_HEIGHT - 6}">{x_label}</text>',
    ]
    left = min(x for x, _ in every)
    for y in _ticks(low, high, log_y):
        right = place(max(x for x, _ in every), y)
        parts.append(f'<polyline points="{place(left, y)} {right}" stroke="#ddd"/>')
        at = place(left, y).split(",")[1]
        parts.append(f'<text x="{_LEFT - 6}" y="{at}" text-anchor="end">{y:g}</text>')
    for x in sorted({x for points in lines.values() for x, _ in points}):
        at = place(x, math.exp(low) if log_y else low).split(",")[0]
        parts.append(f'<text x="{at}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    for colour, (number, (name, points)) in zip(_COLOURS, enumerate(lines.items())):
        path = " ".join(place(x, y) for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in marks.get(name, ()):
            cx, cy = place(x, y).split(",")
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="5" fill="none" stroke="{colour}" stroke-width="2"/>')
        y_text = _TOP + 16 + 18 * number
        parts.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{y_text}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ticks(low: float, high: float, log_y: bool) -> list[float]:
    if log_y:
        first, last = math.ceil(low / math.log(10)), math.floor(high / math.log(10))
        return [10.0**exponent for exponent in range(first, last + 1)]
    return [high * i / 4 for i in range(5)]
