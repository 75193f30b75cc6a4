"""`tf.ParameterStore` beside other parameter servers for numpy arrays: pull, push and both of one array.

    python benchmarks/parameter_stores.py [--python PYTHON] [--rounds 5] [--sizes 4096 1048576 67108864]

Beside the store, in turn: the graph's own pull and push, which the store is made of; bare sockets, a server of thirty
lines that does nothing else; and, where ``--python`` names a Python that has them, a Ray actor and PyTorch's RPC. Each
holds one float32 array in another process of this machine and adds what is pushed. Prints microseconds, the medians of
the rounds' medians.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Actions = dict[str, Callable[[], object]]
SECONDS = 1.0  # for each action in each round


@contextmanager
def store(size: int) -> Iterator[Actions]:
    from clusters import cluster_of

    with cluster_of("tfmini", 1, 1) as (tf, server, _), tf.ParameterStore(server) as found:
        found.declare("w", [size // 4])
        delta = np.ones(size // 4, np.float32)
        yield {
            "pull": lambda: found.pull("w"),
            "push": lambda: found.push({"w": delta}),
            "push_pull": lambda: found.push_pull({"w": delta}),
        }


@contextmanager
def graph(size: int) -> Iterator[Actions]:
    from clusters import cluster_of

    with cluster_of("tfmini", 1, 1) as (tf, server, _):
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", [size // 4], initializer=tf.zeros_initializer())
            fed = tf.placeholder(tf.float32, [size // 4])
            add = tf.assign_add(w, fed, use_locking=True)
            with tf.control_dependencies([add]):
                after = tf.identity(w)
        delta = np.ones(size // 4, np.float32)
        with tf.Session(server.target) as session:
            session.run(w.initializer)
            push = session.make_callable(add.op, [fed])
            both = session.make_callable(after, [fed])
            yield {"pull": session.make_callable(w), "push": lambda: push(delta), "push_pull": lambda: both(delta)}


# ---- bare sockets: a request is one byte that says what, and the array; an answer is the array ----------------------


def _read_into(connection: socket.socket, target: memoryview) -> None:
    done = 0
    while done < len(target):
        got = connection.recv_into(target[done:])
        if not got:
            raise EOFError
        done += got


def serve_sockets(size: int) -> None:
    array, pushed = np.zeros(size // 4, np.float32), np.empty(size // 4, np.float32)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    what = bytearray(1)
    try:
        while True:
            _read_into(connection, memoryview(what))
            if what[0] & 2:
                _read_into(connection, memoryview(pushed).cast("B"))
                np.add(array, pushed, out=array)
            connection.sendall(memoryview(array).cast("B") if what[0] & 1 else b"!")
    except EOFError:
        return


@contextmanager
def sockets(size: int) -> Iterator[Actions]:
    command = [sys.executable, __file__, "--serve-sockets", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        connection = socket.create_connection(("127.0.0.1", int(server.stdout.readline())))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        delta = np.ones(size // 4, np.float32)

        def call(what: int) -> Any:
            connection.sendmsg([struct.pack("B", what)]) if not what & 2 else _send(connection, what, delta)
            answer = np.empty(size // 4, np.float32) if what & 1 else np.empty(1, np.uint8)
            _read_into(connection, memoryview(answer).cast("B"))
            return answer

        yield {"pull": lambda: call(1), "push": lambda: call(2), "push_pull": lambda: call(3)}
        connection.close()


def _send(connection: socket.socket, what: int, array: np.ndarray) -> None:
    head, body = struct.pack("B", what), memoryview(array).cast("B")
    sent = connection.sendmsg([head, body])
    connection.sendall(body[sent - 1 :])


# ---- other libraries ----------------------------------------------------------------------------------------------


@contextmanager
def ray(size: int) -> Iterator[Actions]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")

    @ray.remote
    class Server:
        def __init__(self, count: int) -> None:
            self.array = np.zeros(count, np.float32)

        def pull(self) -> np.ndarray:
            return self.array

        def push(self, delta: np.ndarray) -> None:
            self.array += delta

        def push_pull(self, delta: np.ndarray) -> np.ndarray:
            self.array += delta
            return self.array

    server = Server.remote(size // 4)  # type: ignore[attr-defined]
    delta = np.ones(size // 4, np.float32)
    try:
        yield {
            "pull": lambda: ray.get(server.pull.remote()),
            "push": lambda: ray.get(server.push.remote(delta)),
            "push_pull": lambda: ray.get(server.push_pull.remote(delta)),
        }
    finally:
        ray.shutdown()


ARRAY: Any = None  # of the server of PyTorch's RPC


def torch_make(count: int) -> None:
    global ARRAY
    import torch

    ARRAY = torch.zeros(count)


def torch_pull() -> Any:
    return ARRAY


def torch_push(delta: Any) -> None:
    ARRAY.add_(delta)


def torch_push_pull(delta: Any) -> Any:
    return ARRAY.add_(delta)


def _torch_rpc(name: str, rank: int, port: int) -> Any:
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=2)
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)
    return rpc


def serve_torch(port: int) -> None:
    _torch_rpc("server", 1, port).shutdown()  # it serves until the client shuts down, too


@contextmanager
def torch(size: int) -> Iterator[Actions]:
    import torch
    from clusters import free_addresses

    port = int(free_addresses(1)[0].rsplit(":", 1)[1])
    with subprocess.Popen([sys.executable, __file__, "--serve-torch", str(port)]):
        rpc = _torch_rpc("client", 0, port)
        module = sys.modules["__main__"]
        module.__name__ = "parameter_stores"  # the server finds the functions there
        rpc.rpc_sync("server", torch_make, (size // 4,))
        delta = torch.ones(size // 4)
        try:
            yield {
                "pull": lambda: rpc.rpc_sync("server", torch_pull).numpy(),
                "push": lambda: rpc.rpc_sync("server", torch_push, (delta,)),
                "push_pull": lambda: rpc.rpc_sync("server", torch_push_pull, (delta,)).numpy(),
            }
        finally:
            rpc.shutdown()


TARGETS: dict[str, Callable[[int], Any]] = {
    "store": store, "graph": graph, "sockets": sockets, "ray": ray, "torch": torch
}  # fmt: skip
OTHERS = ("ray", "torch")


def measured(target: str, size: int) -> dict[str, float]:
    """The median microseconds of each action."""
    found = {}
    with TARGETS[target](size) as actions:
        for name, action in actions.items():
            times = []
            for _ in range(5):
                action()
            until = time.perf_counter() + SECONDS
            while time.perf_counter() < until or len(times) < 5:
                begin = time.perf_counter()
                action()
                times.append(time.perf_counter() - begin)
            found[name] = statistics.median(times) * 1e6
    return found


def compare(size: int, targets: list[str], pythons: dict[str, str], rounds: int) -> None:
    """Prints the rows of one size."""
    found: dict[str, list[dict[str, float]]] = {target: [] for target in targets}
    for number in range(rounds):
        for target in targets if number % 2 else reversed(targets):
            command = [pythons.get(target, sys.executable), __file__, "--one", target, str(size)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{target} failed:\n{done.stderr[-2000:]}")
            found[target].append(json.loads(done.stdout.strip().splitlines()[-1]))
    for action in ("pull", "push", "push_pull"):
        medians = {target: statistics.median(each[action] for each in found[target]) for target in targets}
        others = [medians[target] for target in targets if target in ("sockets", *OTHERS)]
        cells = " | ".join(f"{medians[target]:,.0f}" for target in targets)
        ratio = medians["store"] / min(others)
        print(
            f"| {action} of {size:,} bytes | {cells} | {ratio:.2f} | {medians['store'] / medians['graph']:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="a Python with ray and torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 1 << 20, 64 << 20])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve-sockets", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve-torch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_sockets is not None:
        serve_sockets(args.serve_sockets)
    elif args.serve_torch is not None:
        serve_torch(args.serve_torch)
    elif args.one is not None:
        print(json.dumps(measured(args.one[0], int(args.one[1]))), flush=True)
    else:
        others = list(OTHERS) if args.python else []
        targets = ["store", "graph", "sockets", *others]
        print(f"| | {' | '.join(targets)} | to the best other | to the graph |\n|---{'|---:' * (len(targets) + 2)}|")
        for size in args.sizes:
            compare(size, targets, {target: str(Path(args.python)) for target in others}, args.rounds)


if __name__ == "__main__":
    main()
