"""Where the time of one step of a cluster goes: stamps in each layer of all its processes.

    python benchmarks/step_budget.py [--steps 400] [--out FOLDER] [CASE …]

Cases: ``ps_step`` (a training step of 784-100-10, variables on one ps), ``remote_op`` (one op on the ps), ``pull`` and
``push`` (4 KB from the ps, or to it), ``sync_step`` (the training step with SyncReplicasOptimizer and a second worker).
The layers' functions are wrapped in all processes and note when they begin and end, on one clock. A layer's time is
that inside it and outside the layers that it calls. Only the middle half of the steps by their duration counts, and of
them the mean.

The tables: how long each layer takes in each process; who works while others sleep; what each step counts (sleeps,
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
    ASLEEP: [("rpc.reactor", "Reactor", "_wait"), ("rpc.reactor", "Reactor", "_follow")],
}
COLOURS = {
    KERNELS: "#2a7", "copy": "#c33", "session": "#15a", "master": "#37c", "worker": "#59d", "messages": "#86b",
    "encode": "#a7d", "decode": "#c9f", "lane": "#d82", WRITE: "#fb4", "loop": "#999", PREEMPTED: "#ccc",
    ASLEEP: "#eee",
}  # fmt: skip
TASKS = ("worker", "ps", "worker 1")
"""The processes; the first one measures."""
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
    """One step: its time, and what each process did in it."""

    begin: int
    end: int
    tasks: list[list[Interval]]


def cut(step: tuple[int, int], tasks: list[list[Interval]]) -> Step:
    """The parts of the intervals inside a step."""

    def inside(found: list[Interval]) -> list[Interval]:
        first = max(0, bisect.bisect(found, (step[0], 0, "")) - 1)
        last = bisect.bisect(found, (step[1], 0, ""))
        clipped = [(max(a, step[0]), min(b, step[1]), layer) for a, b, layer in found[first:last]]
        return [(a, b, layer) for a, b, layer in clipped if b > a]

    return Step(*step, [inside(found) for found in tasks])


def middle(steps: list[Step]) -> list[Step]:
    """The middle half of the steps by their duration."""
    ordered = sorted(steps, key=lambda step: step.end - step.begin)
    return ordered[len(ordered) // 4 : -(len(ordered) // 4) or None]


# ---- The processes -------------------------------------------------------------------------------------------------


def serve(case: str, spec: dict[str, list[str]], job: str, task: int, recorder: Recorder) -> None:
    """The whole of another task: "begin" and "end" on its standard input start and end a recording."""
    server = tf.train.Server(tf.train.ClusterSpec(spec), job_name=job, task_index=task)

    def obey() -> None:
        for line in sys.stdin:
            if line == "begin\n":
                recorder.events = []
            print(json.dumps([recorder.end() if line == "end\n" else [], sleeps()]), flush=True)

    threading.Thread(target=obey, daemon=True).start()
    print("ready", flush=True)
    if job == "worker":
        step = CASES[case](server)
        while True:
            step()
    server.join()


def sleeps() -> int:
    """How often threads of this process have gone to sleep."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


class Task:
    """Another process."""

    def __init__(self, case: str, spec: dict[str, list[str]], job: str, task: int) -> None:
        arguments = ["--case", case, "--serve", json.dumps([spec, job, task])]
        command = [sys.executable, os.path.abspath(__file__), *arguments]
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


def sync_step(server: Any) -> Callable[[], Any]:
    """The same with synchronous replicas; worker 0 makes the updates, too."""
    task = server.server_def.task_index
    with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device=f"/job:worker/task:{task}")):
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.AdagradOptimizer(0.01), 2, 2)
        x, y, _, train = mlp(tf, optimizer=optimizer)
    feed = dict(zip((x, y), batch(100)))
    hooks = [optimizer.make_session_run_hook(task == 0)]
    session = tf.train.MonitoredTrainingSession(server.target, task == 0, hooks=hooks)
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
    "sync_step": sync_step,
}
WORKERS = {"sync_step": 2}


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
    workers = WORKERS.get(case, 1)
    addresses = free_addresses(1 + workers)
    spec = {"ps": addresses[:1], "worker": addresses[1:]}
    others = [Task(case, spec, "ps", 0)]
    try:
        others += [Task(case, spec, "worker", i) for i in range(1, workers)]
        recorder.wrap_layers()
        server = tf.train.Server(tf.train.ClusterSpec(spec), job_name="worker", task_index=0)
        step = CASES[case](server)
        for _ in range(50):
            step()
        plain, counts = _counted(step, others, steps)
        with traced([os.getpid(), *(other.process.pid for other in others)]) as calls:
            for _ in range(steps):
                step()
        counts.update({f"system call {name}": count / steps for name, count in calls.items() if count >= steps // 4})
        return Budget(plain, _stamped(step, others, recorder, steps), counts)
    finally:
        for other in others:
            other.process.kill()
            other.process.wait()


def _counted(step: Callable[[], Any], others: list[Task], steps: int) -> tuple[float, dict[str, float]]:
    """The median microseconds, and what the processes count per step."""
    times = []
    slept = [sleeps(), *(other.ask("count")[1] for other in others)]
    sent = _traffic()
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    sums = [after - before for before, after in zip(sent, _traffic())]
    after = [sleeps(), *(other.ask("count")[1] for other in others)]
    counts = {f"sleeps of {name}": b - a for name, a, b in zip(TASKS, slept, after)}
    kinds = ("bytes from the worker", "bytes to the worker", "messages from the worker", "messages to the worker")
    counts.update(zip(kinds, sums))
    return statistics.median(times) / 1e3, {name: count / steps for name, count in counts.items()}


def _traffic() -> list[int]:
    """Bytes and messages that have left this process and come."""
    from tfmini.rpc.link import Link

    links = [found for found in _objects(Link) if not found.is_over]
    return [sum(numbers) for numbers in zip(*(link.traffic() for link in links))] or [0] * 4


def _objects(kind: type) -> list[Any]:
    import gc

    return [found for found in gc.get_objects() if type(found) is kind]


def _stamped(step: Callable[[], Any], others: list[Task], recorder: Recorder, steps: int) -> list[Step]:
    for other in others:
        other.ask("begin")
    recorder.events = []
    spans = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        spans.append((begin, time.perf_counter_ns()))
    stamps = [recorder.end(), *(other.ask("end")[0] for other in others)]
    tasks = [intervals(events) for events in stamps]
    return [cut(span, tasks) for span in spans]


# ---- What is found -------------------------------------------------------------------------------------------------


def by_layer(steps: list[Step]) -> dict[str, list[float]]:
    """The mean microseconds of each layer in each process."""
    sums = {layer: [0] * len(steps[0].tasks) for layer in COLOURS}
    for step in steps:
        for side, found in enumerate(step.tasks):
            for begin, end, layer in found:
                sums[layer][side] += end - begin
    return {layer: [each / len(steps) / 1e3 for each in sums[layer]] for layer in sums if any(sums[layer])}


def by_who_works(steps: list[Step]) -> dict[str, float]:
    """The mean microseconds during which these processes work and no others."""
    sums: collections.Counter[str] = collections.Counter()
    for step in steps:
        edges = [(step.end, 0)]
        for side, found in enumerate(step.tasks):
            edges += [(edge, 1 << side) for a, b, layer in found if layer != PREEMPTED for edge in (a, b)]
        at, working = step.begin, 0
        for when, side in sorted(edges):
            sums[" and ".join(name for i, name in enumerate(TASKS) if working >> i & 1) or "none"] += when - at
            at, working = when, working ^ side
    return {name: total / len(steps) / 1e3 for name, total in sums.most_common()}


def report(case: str, budget: Budget) -> Step:
    """Prints the tables; returns the step nearest to the median."""
    steps = middle(budget.steps)
    stamped = statistics.median(step.end - step.begin for step in budget.steps) / 1e3
    print(f"\n{case}: {budget.plain_us:.0f} us, {stamped:.0f} us with stamps\n")
    names = TASKS[: len(steps[0].tasks)]
    print(f"| layer | {' | '.join(f'{name} us' for name in names)} |\n|---|{'---:|' * len(names)}")
    layers = by_layer(steps)
    layers = dict(sorted(layers.items(), key=lambda item: -sum(item[1])))
    layers["together"] = [sum(column) for column in zip(*layers.values())]
    for layer, times in layers.items():
        print(f"| {layer} | {' | '.join(f'{each:.1f}' for each in times)} |")
    print("\n| who works | us |\n|---|---:|")
    for name, value in by_who_works(steps).items():
        print(f"| {name} | {value:.1f} |")
    print("\n| per step | count |\n|---|---:|")
    for name, value in budget.counts.items():
        print(f"| {name} | {value:,.1f} |")
    return min(steps, key=lambda step: abs(step.end - step.begin - 1e3 * stamped))


def picture(case: str, step: Step) -> str:
    """The processes in one step, as SVG."""
    width, left, height = 960, 60, 60
    bottom = 30 + len(step.tasks) * (height + 10)
    scale = (width - left - 10) / (step.end - step.begin)
    parts = []
    for row, (name, found) in enumerate(zip(TASKS, step.tasks)):
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
        x, end = left + 1e3 * scale * tick, bottom - 10
        parts.append(f'<path d="M{x:.1f} {end}v5" stroke="#333"/>')
        parts.append(f'<text x="{x:.1f}" y="{end + 17}" text-anchor="middle">{tick}</text>')
    for number, (layer, colour) in enumerate(COLOURS.items()):
        x = left + 74 * number
        parts.append(f'<rect x="{x}" y="{bottom + 20}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{bottom + 29}">{layer}</text>')
    parts.append(f'<text x="{left}" y="18">{case}: one step, microseconds</text>')
    frame = f'width="{width}" height="{bottom + 40}" font-family="sans-serif" font-size="11"'
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
        serve(args.case, *json.loads(args.serve), recorder)
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
