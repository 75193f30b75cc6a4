"""What tfmini does on a GPU: all lowered samples, and the steps of five models beside plain JAX and tfmini's CPU.

    python -m benchmarks.gpu_check --out gpu-check.txt            # on a machine with a GPU; needs no network
    TFMINI_FAKE_GPUS=1 python -m benchmarks.gpu_check --small     # by XLA on the CPU: whether the script works

A model is one function of a *net*, which builds it with tfmini's ops or with JAX's. A time is that of a training step
(plain gradient descent) without a fetch, the mean over as many steps as fit into the time; the first step, which
compiles, stands beside it. Ends within eight minutes: what no time is left for is listed as such.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tfmini as tf

BUDGET_S = 460.0
RATE = 0.01
_start = time.monotonic()


def left_s() -> float:
    """Seconds of the budget that are left."""
    return BUDGET_S - (time.monotonic() - _start)


# ---- the models, written once --------------------------------------------------------------------------------------


def mlp(net: Any, x: Any) -> Any:
    for _ in range(2):
        x = net.relu(net.dense(x, 1024))
    return net.dense(x, 10)


def cnn(net: Any, x: Any) -> Any:
    for depth in (32, 64):
        x = net.pool(net.relu(net.conv(x, depth, 5, 1)), 2, 2)
    return net.dense(net.relu(net.dense(net.flat(x), 512)), 10)


def resnet50(net: Any, x: Any) -> Any:
    x = net.pool(net.relu(net.norm(net.conv(x, 64, 7, 2))), 3, 2)
    for stage, (depth, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = net.norm(net.conv(x, 4 * depth, 1, stride)) if not block else x
            y = net.relu(net.norm(net.conv(x, depth, 1, 1)))
            y = net.relu(net.norm(net.conv(y, depth, 3, stride)))
            x = net.relu(net.norm(net.conv(y, 4 * depth, 1, 1)) + short)
    return net.dense(net.mean(x), 1000)


def lstm(net: Any, x: Any) -> Any:
    units = 256
    weights, h, c = net.weights([x.shape[2] + units, 4 * units]), None, None
    for t in range(int(x.shape[1])):
        now = x[:, t]
        h = now[:, :1] * 0 + np.zeros(units, np.float32) if h is None else h
        i, j, f, o = net.split(net.matmul(net.join([now, h]), weights), 4)
        c = net.sigmoid(i) * net.tanh(j) + (net.sigmoid(f + 1.0) * c if c is not None else 0.0)
        h = net.tanh(c) * net.sigmoid(o)
    return net.dense(h, 10)


def embedding(net: Any, ids: Any) -> Any:
    return net.dense(net.bag(net.weights([100_000, 64]), ids), 2)


class Case:
    """A model with the shape of its batch and the number of its classes."""

    def __init__(self, model: Callable[..., Any], batch: list[int], classes: int, of_ids: int = 0) -> None:
        self.model, self.batch, self.classes, self.of_ids = model, batch, classes, of_ids

    def data(self) -> tuple[Any, Any]:
        rng = np.random.RandomState(0)
        x = rng.randint(0, self.of_ids, self.batch, np.int32) if self.of_ids else rng.rand(*self.batch).astype("f")
        return x, rng.randint(0, self.classes, self.batch[0], np.int32)


def cases(small: bool) -> dict[str, Case]:
    image = [2, 32, 32, 3] if small else [64, 224, 224, 3]
    return {
        "MLP-1024": Case(mlp, [100, 784], 10),
        "CNN": Case(cnn, [4 if small else 128, 28, 28, 1], 10),
        "embedding": Case(embedding, [64 if small else 4096, 8], 2, of_ids=100_000),
        "LSTM": Case(lstm, [4 if small else 64, 3 if small else 20, 128], 10),
        "ResNet-50": Case(resnet50, image, 1000),
    }


# ---- the two nets --------------------------------------------------------------------------------------------------


class TfNet:
    """Builds a model of tfmini's ops."""

    relu, sigmoid, tanh, matmul = (staticmethod(f) for f in (tf.nn.relu, tf.sigmoid, tf.tanh, tf.matmul))

    def weights(self, shape: list[Any]) -> Any:
        sizes = [int(n) for n in shape]
        scale = 1 / math.sqrt(max(math.prod(sizes[:-1]), 1))
        name = f"w{len(tf.global_variables())}"
        return tf.get_variable(name, sizes, initializer=tf.random_normal_initializer(stddev=scale, seed=1))

    def dense(self, x: Any, units: int) -> Any:
        return tf.matmul(x, self.weights([x.shape[1], units])) + self.weights([units])

    def conv(self, x: Any, depth: int, size: int, stride: int) -> Any:
        return tf.nn.conv2d(x, self.weights([size, size, x.shape[3], depth]), [1, stride, stride, 1], "SAME")

    def norm(self, x: Any) -> Any:
        return tf.nn.fused_batch_norm(x, self.weights([x.shape[3]]), self.weights([x.shape[3]]))[0]

    def pool(self, x: Any, size: int, stride: int) -> Any:
        return tf.nn.max_pool(x, [1, size, size, 1], [1, stride, stride, 1], "SAME")

    def flat(self, x: Any) -> Any:
        return tf.reshape(x, [int(x.shape[0]), -1])

    def mean(self, x: Any) -> Any:
        return tf.reduce_mean(x, [1, 2])

    def split(self, x: Any, count: int) -> Any:
        return tf.split(x, count, 1)

    def join(self, parts: list[Any]) -> Any:
        return tf.concat(parts, 1)

    def bag(self, table: Any, ids: Any) -> Any:
        return tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)


class JaxNet:
    """Builds a model of JAX's functions; the parameters are made in the first call, and come in this order later."""

    relu, sigmoid, tanh, matmul = (staticmethod(f) for f in (jax.nn.relu, jax.nn.sigmoid, jnp.tanh, jnp.matmul))

    def __init__(self, params: list[Any] | None = None) -> None:
        self.made: list[Any] = []
        self._given = None if params is None else iter(params)

    def weights(self, shape: list[int]) -> Any:
        if self._given is not None:
            return next(self._given)
        scale = 1 / math.sqrt(max(math.prod(shape[:-1]), 1))
        self.made.append(jnp.asarray(np.random.RandomState(1).randn(*shape).astype("f") * scale))
        return self.made[-1]

    def dense(self, x: Any, units: int) -> Any:
        return x @ self.weights([x.shape[1], units]) + self.weights([units])

    def conv(self, x: Any, depth: int, size: int, stride: int) -> Any:
        filters = self.weights([size, size, x.shape[3], depth])
        return jax.lax.conv_general_dilated(
            x, filters, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def norm(self, x: Any) -> Any:
        scale, offset = self.weights([x.shape[3]]), self.weights([x.shape[3]])
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * (scale * jax.lax.rsqrt(variance + 0.001)) + offset

    def pool(self, x: Any, size: int, stride: int) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, stride, stride, 1), "SAME")

    def flat(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)

    def mean(self, x: Any) -> Any:
        return x.mean((1, 2))

    def split(self, x: Any, count: int) -> Any:
        return jnp.split(x, count, 1)

    def join(self, parts: list[Any]) -> Any:
        return jnp.concatenate(parts, 1)

    def bag(self, table: Any, ids: Any) -> Any:
        rows = table if table.ndim > ids.ndim else table[ids]  # `update` gives the rows in the place of the table
        return rows.mean(1)


# ---- measurements --------------------------------------------------------------------------------------------------


def measure(
    first: Callable[[], Any], step: Callable[[], Any], finish: Callable[[], Any], seconds: float
) -> dict[str, float]:
    """Seconds of the first step, and of one of the others."""
    gc.collect()  # what was made before would else be looked through within the first step, or not, by chance
    start = time.monotonic()
    first()
    finish()
    compiled = time.monotonic() - start
    for _ in range(3):
        step()
    finish()
    count, start = 0, time.monotonic()
    while count < 3 or time.monotonic() - start < seconds and count < 300:
        step()
        count += 1
    finish()
    return {"first_s": compiled, "step_s": (time.monotonic() - start) / count}


def by_jax(case: Case, seconds: float) -> dict[str, float]:
    """Plain JAX on the same device."""
    x, y = case.data()
    device = jax.devices()[0]
    with jax.default_device(device), jax.default_matmul_precision("highest"):
        maker = JaxNet()
        case.model(maker, jnp.asarray(x))
        state = [maker.made]

        def loss(params: list[Any], x: Any, y: Any) -> Any:
            logs = jax.nn.log_softmax(case.model(JaxNet(params), x))
            return -jnp.take_along_axis(logs, y[:, None], 1).mean()

        def update(params: list[Any], x: Any, y: Any) -> list[Any]:
            if not case.of_ids:
                return [p - RATE * g for p, g in zip(params, jax.grad(loss)(params, x, y))]
            table, *others = params  # of which a step changes the rows that it reads, as tfmini's does
            rows, *grads = jax.grad(loss)([table[x], *others], x, y)
            return [table.at[x].add(-RATE * rows), *(p - RATE * g for p, g in zip(others, grads))]

        jitted = jax.jit(update, donate_argnums=0)

        def step() -> None:
            state[0] = jitted(state[0], x, y)

        return measure(step, step, lambda: jax.block_until_ready(state[0]), seconds)


def by_tfmini(case: Case, device: Any, seconds: float, target: str = "", config: Any = None) -> dict[str, float]:
    """tfmini on a device, or by a device function."""
    x, y = case.data()
    with tf.Graph().as_default(), ExitStack() as stack:
        stack.enter_context(tf.device(device))
        inputs, labels = tf.placeholder(x.dtype, x.shape), tf.placeholder(tf.int32, y.shape)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, case.model(TfNet(), inputs))
        train = tf.train.GradientDescentOptimizer(RATE).minimize(loss)
        one = tf.global_variables()[-1]
        with tf.Session(target, config=config or tf.ConfigProto(allow_soft_placement=True)) as session:
            session.run(tf.global_variables_initializer())
            run = session.make_callable(train, [inputs, labels])
            step = lambda: run(x, y)  # noqa: E731
            return measure(step, step, lambda: session.run(one), seconds)


@contextmanager
def parameter_server() -> Any:
    """A ps in a process of its own, and a worker here: the cluster and its server."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    ps = subprocess.Popen([sys.executable, "-m", "benchmarks.gpu_check", "--ps", json.dumps(cluster)])
    try:
        yield cluster, tf.train.Server(cluster, job_name="worker", task_index=0)
    finally:
        ps.kill()
        ps.wait(20)


def with_a_ps(case: Case, seconds: float) -> dict[str, float]:
    """tfmini with the variables on a ps's CPU and the work on the GPU of a worker."""
    with parameter_server() as (cluster, server):
        place = tf.train.replica_device_setter(
            worker_device="/job:worker/task:0/gpu:0", cluster=tf.train.ClusterSpec(cluster)
        )
        return by_tfmini(case, place, seconds, server.target)


def samples() -> str:
    """All lowered samples on the GPU."""
    from tests.xla.lowered_samples import difference, groups

    right, wrong, skipped = 0, [], 0
    for rows in groups().values():
        for row in rows:
            if left_s() < 0.55 * BUDGET_S:
                skipped += 1
                continue
            try:
                text = difference(row)
            except Exception as error:  # noqa: BLE001 - the next sample is to be seen, too
                text = f"{type(error).__name__}: {error}".splitlines()[0]
            right += not text
            wrong += [f"  {row.text}: {text}"] if text else []
    return "\n".join(
        [f"samples: {right} as TensorFlow, {len(wrong)} not, {skipped} for which no time was left", *wrong]
    )


def table(small: bool, only: str) -> str:
    """The lines of the models."""
    lines = ["| model | by | first step s | step ms | to plain JAX |", "|---|---|---:|---:|---:|"]
    for name, case in cases(small).items():
        if only and only != name:
            continue
        ways: dict[str, Callable[[float], dict[str, float]]] = {
            "plain JAX": lambda s, c=case: by_jax(c, s),
            "tfmini, GPU": lambda s, c=case: by_tfmini(c, "/gpu:0", s),
            "tfmini, 1 ps (CPU) and 1 GPU": lambda s, c=case: with_a_ps(c, s),
            "tfmini, CPU": lambda s, c=case: by_tfmini(c, "/cpu:0", s),
        }
        plain = math.nan
        for way, run in ways.items():
            if left_s() < 20:
                lines.append(f"| {name} | {way} | no time was left | | |")
                continue
            found = run(0.2 if small else 3.0)
            plain = found["step_s"] if way == "plain JAX" else plain
            times = f"{found['first_s']:.2f} | {1e3 * found['step_s']:.3f} | {found['step_s'] / plain:.2f}"
            lines.append(f"| {name} | {way} | {times} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--only", default="", help="the name of one model; no samples then")
    parser.add_argument("--out", default="", help="the file to write")
    parser.add_argument("--ps", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ps:
        tf.train.Server(json.loads(args.ps), job_name="ps", task_index=0).join()
    if not tf.test.is_gpu_available():
        from tfmini.graph.device_types import why_missing

        raise SystemExit(f"This process has no GPU: {why_missing('GPU')}")
    device = jax.devices()[0]
    head = f"{device.device_kind}, JAX {jax.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    checked = "" if args.only else samples()  # first: they get at most 45 % of the time
    print(checked, flush=True)
    parts = [head, table(args.small, args.only), checked]
    text = "\n\n".join(parts) + f"\n\n{time.monotonic() - _start:.0f} s\n"
    print(text)
    if args.out:
        with open(args.out, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
