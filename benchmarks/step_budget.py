"""Where the time of one step between a worker and a ps goes: stamps in each layer of both processes.

    python benchmarks/step_budget.py [--steps 400] [--out FOLDER] [CASE …]

Cases: ``ps_step`` (a training step of 784-100-10, variables on one ps), ``remote_op`` (one op on the ps), ``pull`` and
``push`` (4 KB from the ps, or to it). The layers' functions are wrapped in both processes and note when they begin and
end, on one clock. A layer's time is that inside it and outside the layers that it calls. Only the middle half of the
steps by their duration counts, and of them the mean.

The tables: how long each layer takes in each process; who works while the other sleeps; what each step counts (sleeps,
messages, bytes; with strace also system calls). With ``--out`` the step nearest to the median is drawn
(``step-CASE.svg``). The stamps themselves take a part of the time: the first table has the step without them.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from _thread import get_ident
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from clusters import free_addresses
from models import batch, mlp

import tfmini as tf

ASLEEP, KERNELS, WRITE = "asleep", "kernels", "write"
PREEMPTED = "preempted"
"""A thread that has written, and whose processor the peer has got that it has woken."""
# layer -> (module of tfmini, class or "", function) whose time it is; a layer that is drawn darker calls the others
LAYERS = {
    "session": [("runtime.client.session", "BaseSession", "run")],
    "master": [("runtime.master.step", "Step", "start"), ("runtime.master.step", "Step", "_event")],
    "worker": [
        ("runtime.worker.worker", "Worker", "run_graph"),
        ("runtime.worker.worker", "Worker", "receive"),
        ("runtime.worker.worker", "Worker", "send_group"),
        ("runtime.executor.dataflow_run", "Activation", "run_segment"),
    ],
    "messages": [("rpc.link", "Link", "_on_parts"), ("rpc.peer", "Peer", "call"), ("rpc.peer", "Peer", "send")],
    "encode": [("rpc.peer", "", "encode"), ("rpc.link", "", "encode")],
    "decode": [("rpc.link", "", "decode")],
    "copy": [("rpc.lane_memory", "LaneMemory", "share")],
    "lane": [("rpc.lane_connection", "LaneConnection", "send"), ("rpc.lane_connection", "LaneConnection", "_on_ready")],
    WRITE: [("rpc.send_queue", "SendQueue", "write")],
    "loop": [("rpc.reactor", "Reactor", "_dispatch")],
    ASLEEP: [("rpc.reactor", "Reactor", "_wait")],
}
COLOURS = {
    KERNELS: "#2a7", "copy": "#c33", "session": "#15a", "master": "#37c", "worker": "#59d", "messages": "#86b",
    "encode": "#a7d", "decode": "#c9f", "lane": "#d82", WRITE: "#fb4", "loop": "#999", PREEMPTED: "#ccc",
    ASLEEP: "#eee",
}  # fmt: skip
Event = tuple[int, int, str]
"""When (ns), in which thread, and the layer that begins; "" where one ends."""
Interval = tuple[int, int, str]


# ---- Stamps --------------------------------------------------------------------------------------------------------


class Recorder:
    """The stamps of a process, while it records."""

    def __init__(self) -> None:
        self.events: list[Event] | None = None

    def timed(self, layer: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a stamp at its begin and its end."""
        now = time.perf_counter_ns
        if layer == WRITE:
            return self._timed_write(function)

        def wrapper(*args: Any, **options: Any) -> Any:
            events = self.events
            if events is None:
                return function(*args, **options)
            events.append((now(), get_ident(), layer))
            try:
                return function(*args, **options)
            finally:
                events.append((now(), get_ident(), ""))

        return wrapper

    def _timed_write(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same; what the write took of the processor came first, and wakes the peer at its end."""
        now, own = time.perf_counter_ns, time.thread_time_ns

        def wrapper(*args: Any) -> Any:
            events = self.events
            if events is None:
                return function(*args)
            begin, used = now(), own()
            try:
                return function(*args)
            finally:
                end, thread = now(), get_ident()
                middle = min(end, begin + own() - used)
                events += [(begin, thread, WRITE), (middle, thread, ""), (middle, thread, PREEMPTED), (end, thread, "")]

        return wrapper

    def wrap_layers(self) -> None:
        """Puts stamps into all layers of this process."""
        for layer, places in LAYERS.items():
            for module, owner, name in places:
                __import__(f"tfmini.{module}")
                place: Any = sys.modules[f"tfmini.{module}"]
                place = getattr(place, owner) if owner else place
                setattr(place, name, self.timed(layer, getattr(place, name)))
        from tfmini.runtime.compiler.levels import Segment

        def made(segment: Any, *args: Any, **options: Any) -> None:
            make(segment, *args, **options)
            segment.run = self.timed(KERNELS, segment.run)

        make, Segment.__init__ = Segment.__init__, made  # type: ignore[method-assign]

    def end(self) -> list[Event]:
        """Stops; returns the stamps."""
        events, self.events = self.events or [], None
        return events


def intervals(events: list[Event]) -> list[Interval]:
    """When which layer was at work in a process, without sleeps and without overlaps, in order."""
    stacks: dict[int, list[str]] = collections.defaultdict(list)
    since: dict[int, int] = {}
    found: list[Interval] = []
    for when, thread, layer in events:
        stack = stacks[thread]
        if stack and stack[-1] != ASLEEP:
            found.append((since[thread], when, stack[-1]))
        if layer:
            stack.append(layer)
        elif stack:  # else it began before the recording
            stack.pop()
        since[thread] = when
    found.sort()
    ordered: list[Interval] = []
    for begin, end, layer in found:  # of two threads at work the first one counts
        begin = max(begin, ordered[-1][1] if ordered else 0)
        if end > begin:
            ordered.append((begin, end, layer))
    return ordered


class Step(NamedTuple):
    """One step: its time, and what both processes did in it."""

    begin: int
    end: int
    worker: list[Interval]
    ps: list[Interval]


def cut(step: tuple[int, int], worker: list[Interval], ps: list[Interval]) -> Step:
    """The parts of the intervals inside a step."""

    def inside(found: list[Interval]) -> list[Interval]:
        first = max(0, bisect.bisect(found, (step[0], 0, "")) - 1)
        last = bisect.bisect(found, (step[1], 0, ""))
        clipped = [(max(a, step[0]), min(b, step[1]), layer) for a, b, layer in found[first:last]]
        return [(a, b, layer) for a, b, layer in clipped if b > a]

    return Step(*step, inside(worker), inside(ps))


def middle(steps: list[Step]) -> list[Step]:
    """The middle half of the steps by their duration."""
    ordered = sorted(steps, key=lambda step: step.end - step.begin)
    return ordered[len(ordered) // 4 : -(len(ordered) // 4) or None]


# ---- The two processes ---------------------------------------------------------------------------------------------


def serve(spec: dict[str, list[str]], recorder: Recorder) -> None:
    """The whole of the ps: "begin" and "end" on its standard input start and end a recording."""
    server = tf.train.Server(tf.train.ClusterSpec(spec), job_name="ps", task_index=0)

    def obey() -> None:
        for line in sys.stdin:
            if line == "begin\n":
                recorder.events = []
            print(json.dumps([recorder.end() if line == "end\n" else [], sleeps()]), flush=True)

    threading.Thread(target=obey, daemon=True).start()
    print("ready", flush=True)
    server.join()


def sleeps() -> int:
    """How often threads of this process have gone to sleep."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


class Ps:
    """The other process."""

    def __init__(self, spec: dict[str, list[str]]) -> None:
        command = [sys.executable, os.path.abspath(__file__), "--serve", json.dumps(spec)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def ask(self, what: str) -> tuple[list[Event], int]:
        """Its stamps, and how often it has slept."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        events, count = json.loads(self.process.stdout.readline())
        return events, count


def ps_step(server: Any) -> Callable[[], Any]:
    """A training step of 784-100-10."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        x, y, _, train = mlp(tf)
    feed = dict(zip((x, y), batch(100)))
    session = tf.Session(server.target)
    session.run(tf.global_variables_initializer())
    return lambda: session.run(train, feed)


def remote_op(server: Any) -> Callable[[], Any]:
    """One op on the ps, with a fed and a fetched number."""
    x = tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        y = x + 1.0
    session = tf.Session(server.target)
    return lambda: session.run(y, {x: 1.0})


def _of_4_kb(server: Any, is_push: bool) -> Callable[[], Any]:
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(tf.zeros([1024]))
    with tf.device("/job:worker/task:0"):
        pulled, made = tf.identity(v), tf.fill([1024], tf.placeholder_with_default(1.0, []))
    with tf.device("/job:ps/task:0"):
        pushed = tf.assign(v, made)
    session = tf.Session(server.target)
    session.run(v.initializer)
    op = pushed.op if is_push else pulled.op
    return lambda: session.run(op)


CASES = {
    "ps_step": ps_step,
    "remote_op": remote_op,
    "pull": lambda server: _of_4_kb(server, is_push=False),
    "push": lambda server: _of_4_kb(server, is_push=True),
}


@contextlib.contextmanager
def traced(pids: list[int]) -> Iterator[dict[str, int]]:
    """Counts the system calls of processes inside the block; of none where strace is not there or may not trace."""
    counts: dict[str, int] = {}
    if not shutil.which("strace"):
        yield counts
        return
    command = ["strace", "-f", "-c", "-U", "calls,name", *(word for pid in pids for word in ("-p", str(pid)))]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    for _ in pids:
        tracer.stderr.readline()  # "Process … attached"
    yield counts
    tracer.send_signal(signal.SIGINT)
    for line in tracer.communicate()[1].splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdigit() and words[1] != "total":
            counts[words[1]] = int(words[0])


class Budget(NamedTuple):
    """What a measurement has found.

    Attributes:
      plain_us: the median step without stamps.
      counts: per step.
    """

    plain_us: float
    steps: list[Step]
    counts: dict[str, float]


def measure(case: str, steps: int) -> Budget:
    """Runs the steps of a case, with the worker in this process: counted, with strace, and with stamps."""
    recorder = Recorder()
    addresses = free_addresses(2)
    spec = {"ps": addresses[:1], "worker": addresses[1:]}
    ps = Ps(spec)
    try:
        recorder.wrap_layers()
        server = tf.train.Server(tf.train.ClusterSpec(spec), job_name="worker", task_index=0)
        step = CASES[case](server)
        for _ in range(50):
            step()
        plain, counts = _counted(step, ps, steps)
        with traced([os.getpid(), ps.process.pid]) as calls:
            for _ in range(steps):
                step()
        counts.update({f"system call {name}": count / steps for name, count in calls.items() if count >= steps // 4})
        return Budget(plain, _stamped(step, ps, recorder, steps), counts)
    finally:
        ps.process.kill()
        ps.process.wait()


def _counted(step: Callable[[], Any], ps: Ps, steps: int) -> tuple[float, dict[str, float]]:
    """The median microseconds, and what both processes count per step."""
    times = []
    own, others = sleeps(), ps.ask("count")[1]
    sent = _traffic()
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    sums = [after - before for before, after in zip(sent, _traffic())]
    counts = {"sleeps of the worker": sleeps() - own, "sleeps of the ps": ps.ask("count")[1] - others}
    names = ("bytes from the worker", "bytes to the worker", "messages from the worker", "messages to the worker")
    counts.update(zip(names, sums))
    return statistics.median(times) / 1e3, {name: count / steps for name, count in counts.items()}


def _traffic() -> list[int]:
    """Bytes and messages that have left this process and come."""
    from tfmini.rpc.link import Link

    links = [found for found in _objects(Link) if not found.is_over]
    return [sum(numbers) for numbers in zip(*(link.traffic() for link in links))] or [0] * 4


def _objects(kind: type) -> list[Any]:
    import gc

    return [found for found in gc.get_objects() if type(found) is kind]


def _stamped(step: Callable[[], Any], ps: Ps, recorder: Recorder, steps: int) -> list[Step]:
    ps.ask("begin")
    recorder.events = []
    spans = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        spans.append((begin, time.perf_counter_ns()))
    own, others = recorder.end(), ps.ask("end")[0]
    worker, other = intervals(own), intervals(others)
    return [cut(span, worker, other) for span in spans]


# ---- What is found -------------------------------------------------------------------------------------------------


def by_layer(steps: list[Step]) -> dict[str, tuple[float, float]]:
    """The mean microseconds of each layer in the worker and in the ps."""
    sums = {layer: [0, 0] for layer in COLOURS}
    for step in steps:
        for side, found in enumerate((step.worker, step.ps)):
            for begin, end, layer in found:
                sums[layer][side] += end - begin
    return {layer: (a / len(steps) / 1e3, b / len(steps) / 1e3) for layer, (a, b) in sums.items() if a or b}


def by_worker_and_ps(steps: list[Step]) -> dict[str, float]:
    """The mean microseconds during which both processes work, one of them does, or neither."""
    sums: collections.Counter[str] = collections.Counter()
    for step in steps:
        ours, theirs = ([(a, b) for a, b, layer in found if layer != PREEMPTED] for found in (step.worker, step.ps))
        worker, ps = sum(b - a for a, b in ours), sum(b - a for a, b in theirs)
        both = sum(max(0, min(b, d) - max(a, c)) for a, b in ours for c, d in theirs)
        sums["only the worker works"] += worker - both
        sums["only the ps works"] += ps - both
        sums["both work"] += both
        sums["neither: messages and wake-ups"] += step.end - step.begin - worker - ps + both
    return {name: total / len(steps) / 1e3 for name, total in sums.items()}


def report(case: str, budget: Budget) -> Step:
    """Prints the tables; returns the step nearest to the median."""
    steps = middle(budget.steps)
    stamped = statistics.median(step.end - step.begin for step in budget.steps) / 1e3
    print(f"\n{case}: {budget.plain_us:.0f} us, {stamped:.0f} us with stamps\n")
    print("| layer | worker us | ps us |\n|---|---:|---:|")
    layers = by_layer(steps)
    for layer, (worker, ps) in sorted(layers.items(), key=lambda item: -sum(item[1])):
        print(f"| {layer} | {worker:.1f} | {ps:.1f} |")
    print(f"| together | {sum(a for a, _ in layers.values()):.1f} | {sum(b for _, b in layers.values()):.1f} |")
    print("\n| who works | us |\n|---|---:|")
    for name, value in by_worker_and_ps(steps).items():
        print(f"| {name} | {value:.1f} |")
    print("\n| per step | count |\n|---|---:|")
    for name, value in budget.counts.items():
        print(f"| {name} | {value:,.1f} |")
    return min(steps, key=lambda step: abs(step.end - step.begin - 1e3 * stamped))


def picture(case: str, step: Step) -> str:
    """The two processes in one step, as SVG."""
    width, left, height = 960, 60, 60
    scale = (width - left - 10) / (step.end - step.begin)
    parts = []
    for row, (name, found) in enumerate((("worker", step.worker), ("ps", step.ps))):
        y = 30 + row * (height + 10)
        parts.append(f'<text x="{left - 8}" y="{y + height / 2 + 4}" text-anchor="end">{name}</text>')
        whole = f'x="{left}" y="{y}" width="{width - left - 10}" height="{height}"'
        parts.append(f'<rect {whole} fill="{COLOURS[ASLEEP]}"/>')
        for begin, end, layer in found:
            x, across = left + scale * (begin - step.begin), scale * (end - begin)
            title = f"<title>{layer} {(end - begin) / 1e3:.1f} us</title>"
            place = f'x="{x:.1f}" y="{y}" width="{across:.1f}" height="{height}"'
            parts.append(f'<rect {place} fill="{COLOURS[layer]}">{title}</rect>')
    total = (step.end - step.begin) / 1e3
    for tick in range(0, int(total) + 1, 100 if total > 300 else 20):
        x, end = left + 1e3 * scale * tick, 30 + 2 * height + 10
        parts.append(f'<path d="M{x:.1f} {end}v5" stroke="#333"/>')
        parts.append(f'<text x="{x:.1f}" y="{end + 17}" text-anchor="middle">{tick}</text>')
    for number, (layer, colour) in enumerate(COLOURS.items()):
        x = left + 74 * number
        parts.append(f'<rect x="{x}" y="190" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="199">{layer}</text>')
    parts.append(f'<text x="{left}" y="18">{case}: one step, microseconds</text>')
    frame = f'width="{width}" height="210" font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{"".join(parts)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    args = parser.parse_intermixed_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join(CASES)}")
    if args.serve:
        recorder = Recorder()
        recorder.wrap_layers()
        serve(json.loads(args.serve), recorder)
    if args.case:
        median = report(args.case, measure(args.case, args.steps))
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"step-{args.case.replace('_', '-')}.svg").write_text(picture(args.case, median))
        os._exit(0)
    out = ["--out", str(args.out)] if args.out is not None else []
    for case in args.cases or CASES:  # each in a process of its own
        command = [sys.executable, os.path.abspath(__file__), "--case", case, "--steps", str(args.steps), *out]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
