"""The timelines of the steps that were traced last, each as a page and as a file for Perfetto."""

from __future__ import annotations

import collections
import secrets
from dataclasses import dataclass

from tfmini import protos
from tfmini.inspection.step_trace import StepTrace
from tfmini.inspection.trace_events import timeline, trace_page

_KEPT = 8


@dataclass(frozen=True)
class TracedTimeline:
    """``page``: HTML that loads nothing; ``events``: JSON in Chrome's trace format; ``about``: a line on the step."""

    page: str
    events: str
    about: str


class Timelines:
    """The timelines that were added last, by a random name. `add` takes long for many ops; it may run in a thread."""

    def __init__(self) -> None:
        self._kept: collections.OrderedDict[str, TracedTimeline] = collections.OrderedDict()

    def add(self, stats: bytes) -> str:
        """Keeps the timeline of a serialized StepStats; returns its name."""
        trace = StepTrace.of(protos.StepStats.FromString(stats))
        about = f"{trace.duration / 1000:.2f} ms, {len(trace.spans):,} spans"
        name = secrets.token_urlsafe(8)
        self._kept[name] = TracedTimeline(trace_page(trace), timeline(trace), about)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> TracedTimeline | None:
        """The timeline of that name, if it is kept."""
        return self._kept.get(name)
