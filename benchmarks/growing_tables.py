"""How large a table that grows is, and how long its lookups take beside a variable's with the same rows.

``python benchmarks/growing_tables.py [--rows 1000000] [--width 16]``. The lookups of both alternate in one process, so
that each finds the caches as the other has left them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tfmini as tf
from tfmini.numerics.id_rows import IdRows

BATCH = 4096


def bytes_per_row(rows: int, width: int) -> float:
    """The memory of a table, per row."""
    table = IdRows()
    table.add_column("values", (width,), np.float32)
    random = np.random.default_rng(1)
    while len(table) < rows:
        table.add(random.integers(-(2**63), 2**63 - 1, min(BATCH, rows - len(table))))
    return table.nbytes / rows


def seconds(call: Callable[..., Any], feed: Any) -> float:
    start = time.perf_counter()
    call(feed)
    return time.perf_counter() - start


def lookups(rows: int, width: int, times: int) -> tuple[float, float]:
    """The median seconds of a lookup in a table and in a variable."""
    random = np.random.default_rng(0)
    keys = random.integers(-(2**62), 2**62, rows)
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_embedding_variable("table", width)
        variable = tf.get_variable("variable", [rows, width], use_resource=True)
        ids = tf.placeholder(tf.int64, [None])
        calls = [session.make_callable(tf.nn.embedding_lookup(t, ids), [ids]) for t in (table, variable)]
        session.run(tf.global_variables_initializer())
        for start in range(0, rows, BATCH):
            calls[0](keys[start : start + BATCH])
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(times):
            chosen = random.integers(0, rows, BATCH)
            found[0].append(seconds(calls[0], keys[chosen]))
            found[1].append(seconds(calls[1], chosen))
    return float(np.median(found[0])), float(np.median(found[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--times", type=int, default=300)
    given = parser.parse_args()
    own, size = bytes_per_row(given.rows, given.width), 4 * given.width
    table, variable = lookups(given.rows, given.width, given.times)
    print(f"{given.rows:,} rows of {given.width} float32: {own:.1f} bytes per row, {own / size:.2f} of its numbers")
    print(
        f"lookup of {BATCH:,} ids: {table * 1e6:.0f} us; of a variable: {variable * 1e6:.0f} us;"
        f" ratio {table / variable:.2f}"
    )


if __name__ == "__main__":
    main()
