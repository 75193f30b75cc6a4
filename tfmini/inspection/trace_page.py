"""Writes a traced step as one self-contained HTML page: its timeline, which loads nothing from a network."""

from __future__ import annotations

from typing import Any

from tfmini.inspection.clusters import short
from tfmini.inspection.measured import milliseconds
from tfmini.inspection.page_html import assembled
from tfmini.inspection.step_trace import EXCHANGE, WAIT, WIRE, StepTrace, covered
from tfmini.inspection.trace_events import events

_MOST_BARS = 20_000


def trace_page(trace: StepTrace) -> str:
    """Returns the page's text. Of a step with very many spans it shows the longest ones and says so."""
    return assembled("trace.html", _data(trace), ("timeline.js",))


def _data(trace: StepTrace) -> dict[str, Any]:
    found = events(trace)
    tracks: dict[tuple[int, int], dict[str, Any]] = {}
    tasks: list[dict[str, Any]] = [{"name": short(task), "tracks": []} for task in trace.tasks]
    for event in found:
        if event["ph"] == "M" and event["name"] == "thread_name":
            track = {"title": event["args"]["name"], "tid": event["tid"], "bars": []}
            tracks[event["pid"], event["tid"]] = track
            tasks[event["pid"]]["tracks"].append(track)
    bars = sorted((event for event in found if event["ph"] == "X"), key=lambda event: -event["dur"])
    for event in sorted(bars[:_MOST_BARS], key=lambda event: event["ts"]):
        tracks[event["pid"], event["tid"]]["bars"].append(_bar(event))
    hidden = max(0, len(bars) - _MOST_BARS)
    return {
        "duration": trace.duration,
        "tasks": tasks,
        "arrows": [] if hidden else _arrows(found),
        "sentences": [*sentences(trace), *([f"The {hidden:,} shortest spans are not shown."] if hidden else [])],
    }


def _bar(event: dict[str, Any]) -> dict[str, Any]:
    facts = {key: value for key, value in event["args"].items() if key != "device"}
    times = {"start": event["ts"], "duration": event["dur"]}
    return {"kind": event["cat"], "title": event["name"], "facts": facts} | times


def _arrows(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The way of each tensor, as places in time on tracks."""
    ways: dict[int, list[dict[str, Any]]] = {}
    for event in found:
        if event["ph"] in "stf":
            ways.setdefault(event["id"], []).append({"task": event["pid"], "tid": event["tid"], "time": event["ts"]})
    return list(ways.values())


def sentences(trace: StepTrace) -> list[str]:
    """What is worth knowing at first sight: the duration, the longest wait, what was sent."""
    found = [f"The step took {milliseconds(trace.duration)} ms; {trace.attributed():.1%} of it is attributed."]
    waits = {task: [s for s in trace.of_kind(WAIT) if s.task == task] for task in trace.tasks}
    for task, spans in sorted(waits.items()):
        if spans:
            longest = max(spans, key=lambda span: span.duration)
            total = milliseconds(covered(spans, trace.start, trace.end))
            what = f"longest for {longest.name} ({milliseconds(longest.duration)} ms)"
            found.append(f"{short(task)} waited {total} ms in all, {what}.")
    sent = sum(span.bytes for span in trace.of_kind(WIRE))
    if sent:
        found.append(f"Tensors between tasks: {sent:,} B.")
    exchanged = sum(span.bytes for span in trace.of_kind(EXCHANGE))
    if exchanged:
        found.append(f"Collectives: {exchanged:,} B sent to other ranks.")
    return found
