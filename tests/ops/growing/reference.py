"""A growing table beside a dictionary that does the same: random operations, after each of which both must agree.

A command runs any number of operations::

    python -m tests.ops.growing.reference --operations 100000 --seed 1

It prints the operations that led to a difference, and says how many it has run.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array
from tfmini.numerics import update_rules
from tfmini.numerics.philox import rows_of_ids
from tfmini.ops.growing.state import UNMARKED, Content, GrowingTableState, Settings

WIDTH, IDS = 3, 60
PLAIN = Settings(
    seed=5, distribution="normal", low=0.5, high=2.0, filter_freq=0, filter_size=0, false_positives=0.01,
    admit_probability=1.0, steps_to_live=0, l2_weight_threshold=0.0, capacity=0,
)  # fmt: skip
VARIANTS = (
    PLAIN,
    PLAIN._replace(filter_freq=3),
    PLAIN._replace(steps_to_live=4),
    PLAIN._replace(l2_weight_threshold=2.5),
    PLAIN._replace(capacity=20),
    PLAIN._replace(filter_freq=2, steps_to_live=6, capacity=25, distribution=""),
)


class Reference:
    """What a table does, one id at a time. Rows are in the order in which they came."""

    def __init__(self, settings: Settings, defaults: Array) -> None:
        self.settings, self.defaults = settings, defaults
        self.rows: dict[int, dict[str, Any]] = {}
        self.waiting: dict[int, int] = {}
        self.step = 0

    def initial(self, id_: int) -> Array:
        if self.settings.distribution:
            drawn = rows_of_ids(self.settings.seed, np.array([id_]), WIDTH, "normal")[0]
            return drawn * np.float32(self.settings.high) + np.float32(self.settings.low)
        return self.defaults[id_ % (1 << 64) % len(self.defaults)]

    def lookup(self, ids: list[int]) -> Array:
        known = {i for i in ids if i in self.rows}
        times = {i: ids.count(i) for i in ids}
        came = sorted(i for i in times if i not in known)
        before = {i: self.waiting.get(i, 0) for i in came}
        for i in came:
            self.waiting[i] = before[i] + times[i]
        admitted = [i for i in came if self.waiting[i] >= self.settings.filter_freq]
        for i in admitted:
            del self.waiting[i]
        for i in admitted[: self.make_room(len(admitted), known)]:
            fresh = {"values": self.initial(i).copy(), "freqs": before[i], "version": self.step}
            self.rows[i] = {**fresh, "accum": np.full(WIDTH, 0.1, np.float32)}
        for i in ids:
            if i in self.rows:
                self.rows[i]["freqs"] += 1
        none = np.full(WIDTH, -7, np.float32)
        return np.array([self.rows[i]["values"] if i in self.rows else none for i in ids])

    def make_room(self, wanted: int, keep: set[int]) -> int:
        capacity = self.settings.capacity
        excess = len(self.rows) + wanted - capacity
        if not capacity or excess <= 0:
            return wanted
        may_go = sorted((i for i in self.rows if i not in keep), key=lambda i: self.rows[i]["freqs"])
        for i in may_go[: max(excess, capacity // 16)]:
            del self.rows[i]
        return min(wanted, capacity - len(self.rows))

    def update(self, ids: list[int], grad: Array, rate: Array, step: int) -> None:
        self.step = max(self.step, step)
        for i, row in zip(ids, grad):
            if (found := self.rows.get(i)) is not None:
                found["version"] = step
                update_rules.adagrad(found["values"], found["accum"], row, np.empty_like(row), rate, update_slots=True)

    def evict(self) -> None:
        settings = self.settings
        for i, row in list(self.rows.items()):
            norm = np.sqrt(np.einsum("i,i->", row["values"], row["values"], dtype=np.float64))
            is_old = settings.steps_to_live and self.step - row["version"] > settings.steps_to_live
            if is_old or norm < settings.l2_weight_threshold:
                del self.rows[i]


class Comparison:
    """A table and a reference with the same settings; `run` does a random operation on both."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        defaults = self.random.standard_normal((7, WIDTH)).astype(np.float32)
        self.reference = Reference(settings, defaults)
        self.settings, self.defaults = settings, defaults
        self.table = self.new_table()
        self.table.initialize(defaults, np.float32(-7))
        self.saved: list[Content] = []
        self.mark = np.zeros(2, np.int64)
        self.log: list[str] = []

    def new_table(self) -> GrowingTableState:
        return GrowingTableState("t", "", dtypes.float32, WIDTH, self.settings)

    def ids(self) -> list[int]:
        some = self.random.zipf(1.3, self.random.integers(1, 9)) % IDS
        return [int(i) * (-1) ** int(i) * (1 << int(i) % 40) for i in some]  # of all sizes, and negative ones

    def run(self) -> None:
        name = self.random.choice(["look", "update", "evict", "save", "restore"], p=[0.45, 0.4, 0.05, 0.07, 0.03])
        self.log.append(str(name))
        getattr(self, str(name))()
        assert len(self.table) == len(self.reference.rows)

    def look(self) -> None:
        ids = self.ids()
        found = self.table.lookup(np.array(ids), insert=True)
        np.testing.assert_array_equal(found, self.reference.lookup(ids))

    def update(self) -> None:
        ids, step = self.ids(), self.reference.step + int(self.random.integers(0, 2))
        grad = self.random.standard_normal((len(ids), WIDTH)).astype(np.float32)
        rate = np.float32(0.1)

        def rule(*arrays: Any) -> None:
            update_rules.adagrad(*arrays, update_slots=True)

        self.table.update(rule, {"accum": 0.1}, np.array(ids), grad, [rate], step)
        self.reference.update(ids, grad, rate, step)

    def evict(self) -> None:
        self.table.evict()
        self.reference.evict()

    def save(self) -> None:
        """A dump, which may not reach the disk: then the next one adds to an earlier one."""
        since = self.mark if self.random.random() < 0.8 else np.zeros(2, np.int64)
        content = self.table.dump(since)
        self.reference.evict()
        if content.is_change:
            assert len(content.keys) <= len(self.reference.rows)
        if self.random.random() < 0.7:
            self.saved = [*self.saved, content] if content.is_change else [content]
            self.mark = content.mark
            self.check_restored(self.restored())

    def restored(self) -> GrowingTableState:
        table, last = self.new_table(), self.saved[-1]
        table.load(self.saved, last.filtered, last.filtered_freqs, self.defaults, np.float32(-7))
        return table

    def check_restored(self, table: GrowingTableState) -> None:
        """Both tables have the same rows, in whatever order, and count alike."""
        contents = [each._asdict() for each in (table.content(), self.table.content())]
        orders = [np.argsort(content["keys"]) for content in contents]
        for field in ("keys", "values", "freqs", "versions", "slots"):
            one, other = (np.asarray(c[field]) for c in contents)
            if len(one) == len(orders[0]):
                one, other = one[orders[0]], other[orders[1]]
            np.testing.assert_array_equal(one, other, err_msg=field)
        pairs = [dict(zip(c["filtered"].tolist(), c["filtered_freqs"].tolist())) for c in contents]
        assert pairs[0] == pairs[1] == self.reference.waiting

    def restore(self) -> None:
        """Goes on with a table that was saved whole and loaded."""
        whole = self.table.dump(UNMARKED)
        self.reference.evict()
        self.saved, self.mark = [whole], np.zeros(2, np.int64)
        self.table = self.restored()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    done = 0
    for turn in count():
        comparison = Comparison(VARIANTS[turn % len(VARIANTS)], given.seed + turn)
        for _ in range(min(500, given.operations - done)):
            try:
                comparison.run()
            except AssertionError as error:
                print(f"seed {given.seed + turn}, {VARIANTS[turn % len(VARIANTS)]}\n{comparison.log}\n{error}")
                return 1
            done += 1
        if done >= given.operations:
            break
    print(f"{done} operations; the tables and the references agree")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
