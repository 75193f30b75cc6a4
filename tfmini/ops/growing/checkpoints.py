"""The ops that save and restore growing tables: all rows, or those that changed since an earlier checkpoint.

A checkpoint holds, for a table ``NAME`` (of a part: ``NAME/part_0``), the tensors of a `Content` under the names of
`PARTS`. ``NAME-base`` is empty, or the name of another checkpoint in the same directory, to whose content this one's is
added. So an incremental checkpoint is a checkpoint like any other; who restores it reads its bases first. A later save
may replace the files of a base, so ``NAME-base_mark`` is the ``NAME-mark`` that the base had.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.checkpoint.reader import BundleReader
from tfmini.core_types import Array
from tfmini.dtypes import DType
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.growing.state import UNMARKED, Content, GrowingTableState
from tfmini.ops.io.checkpoint_ops import open_checkpoint
from tfmini.ops.waiting_line import state_op
from tfmini.shapes import RawShape

# The outputs of `dump` that a checkpoint holds: name -> suffix of the tensor. The first four are DeepRec's.
PARTS = {
    "keys": "keys", "values": "values", "freqs": "freqs", "versions": "versions", "slots": "slots",
    "slot_names": "slot_names", "slot_fills": "slot_fills", "removed": "removed", "filtered": "keys_filtered",
    "filtered_freqs": "freqs_filtered", "step": "step", "base": "base", "mark": "mark",
    "base_mark": "base_mark",
}  # fmt: skip


def _dump_shapes(_: object) -> list[RawShape]:
    row, vector = (None, None), (None,)
    return [vector, row, vector, vector, (None, None, None), vector, vector, vector, vector, vector, (), (), (2,), (2,)]


dump = state_op(
    "KvResourceDump(resource: resource, since: int64, base_name: string) -> keys: int64, values: dtype, freqs: int64,"
    " versions: int64, slots: dtype, slot_names: string, slot_fills: float, removed: int64, filtered: int64,"
    " filtered_freqs: int64, step: int64, base: string, mark: int64, base_mark: int64; dtype: {float, double}",
    _dump_shapes,
)
restore = state_op(
    """KvResourceRestore(resource: resource, prefix: string, default_values: dtype, unadmitted: dtype)
    dtype: {float, double}
    table_name: string
    part: int = 0
    parts: int = 1""",
    [], slow_io=True, checkpoint=True,
)  # fmt: skip


@dump.kernel("CPU")
def _dump(state: GrowingTableState, since: Array, base_name: Any, *, dtype: DType) -> tuple[Any, ...]:
    state.check_dtype(dtype)
    if np.shape(since) != (2,):
        refuse(f"a mark has two numbers, not shape {list(np.shape(since))}")
    found = state.dump(since)
    names = np.array([name.encode() for name in found.slot_names], object)
    return (
        found.keys, found.values, found.freqs, found.versions, found.slots, names, found.slot_fills, found.removed,
        found.filtered, found.filtered_freqs, found.step, base_name if found.is_change else b"", found.mark,
        since if found.is_change else UNMARKED,
    )  # fmt: skip


@restore.kernel("CPU")
def _restore(
    state: GrowingTableState, prefix: Any, default_values: Array, unadmitted: Array, *, dtype: DType, table_name: bytes,
    part: int, parts: int,
) -> tuple[()]:  # fmt: skip
    state.check_dtype(dtype)
    path = prefix.decode() if isinstance(prefix, bytes) else prefix.item().decode()
    stored = _stored_names(open_checkpoint(path), table_name.decode())
    is_same_cut = len(stored) == parts
    chains = [_chain(path, each) for each in (stored[part : part + 1] if is_same_cut else stored)]
    contents = [content if is_same_cut else _own(content, part, parts) for chain in chains for content in chain]
    last = [chain[-1] if is_same_cut else _own(chain[-1], part, parts) for chain in chains]
    filtered = [np.concatenate([getattr(content, field) for content in last]) for field in _COUNTED]
    state.load(contents, filtered[0], filtered[1], default_values, unadmitted)
    return ()


_COUNTED = ("filtered", "filtered_freqs")


def _stored_names(reader: BundleReader, name: str) -> list[str]:
    """The names of a table's parts in a checkpoint.

    Raises:
      NotFoundError: there is no such table.
    """
    if f"{name}-keys" in reader:
        return [name]
    found = []
    for part in count():
        if f"{name}/part_{part}-keys" not in reader:
            break
        found.append(f"{name}/part_{part}")
    if not found:
        raise errors.NotFoundError.of(f"Key {name}-keys not found in checkpoint {reader.prefix}")
    return found


def _chain(prefix: str, name: str) -> list[Content]:
    """The contents of a part: a whole one, then the changes up to a checkpoint, in order.

    Raises:
      DataLossError: a base has been replaced by another checkpoint of that name, or there is no first one.
    """
    found: list[Content] = []
    seen: set[str] = set()
    adds, wanted = "", UNMARKED
    while True:
        if prefix in seen:
            raise errors.DataLossError.of(f"The checkpoint {prefix} is its own base, by its tensor {name}-base.")
        seen.add(prefix)
        content, base, base_mark = _read(open_checkpoint(prefix), name)
        if adds and not np.array_equal(content.mark, wanted):
            raise errors.DataLossError.of(
                f"The checkpoint {adds} holds the changes of {name} since {prefix}, but {prefix} is not that checkpoint"
                " any more: a later save has replaced it. Restore another checkpoint, and give each a name of its own,"
                " as save(…, global_step=…) does."
            )
        found.append(content)
        if not base:
            return found[::-1]
        adds, wanted = prefix, base_mark
        prefix = os.path.join(os.path.dirname(prefix), base)


def _read(reader: BundleReader, name: str) -> tuple[Content, str, Array]:
    """What a checkpoint has of a part, the name of its base, and the base's mark."""
    values: dict[str, Any] = {field: reader.read(f"{name}-{suffix}") for field, suffix in PARTS.items()}
    base, base_mark = np.asarray(values.pop("base"), object).item().decode(), values.pop("base_mark")
    values["slot_names"] = [slot.decode() for slot in values["slot_names"].tolist()]
    rows = len(values["keys"])
    lengths = {len(values["values"]), len(values["slots"]), *(len(values[n]) or rows for n in ("freqs", "versions"))}
    if lengths != {rows} or values["slots"].shape[1:2] != (len(values["slot_names"]),):
        raise errors.DataLossError.of(f"{reader.prefix}: the tensors of {name} do not fit together.")
    return Content(**values, is_change=bool(base)), base, base_mark


def _own(content: Content, part: int, parts: int) -> Content:
    """Those rows whose ids belong to a part."""
    is_own = content.keys % parts == part
    rows = {field: getattr(content, field) for field in ("keys", "values", "freqs", "versions", "slots")}
    chosen = {field: array[is_own] if len(array) else array for field, array in rows.items()}
    counted = {}
    if len(content.filtered):
        is_own = content.filtered % parts == part
        counted = {field: getattr(content, field)[is_own] for field in _COUNTED}
    return content._replace(**chosen, **counted)


def bases(prefix: str) -> Iterator[str]:
    """The checkpoints on which one depends, nearest first; none if it cannot be read."""
    seen = {prefix}
    pending = [prefix]
    while pending:
        here = pending.pop()
        try:
            names = _bases(open_checkpoint(here))
        except errors.OpError:
            continue
        for name in names:
            base = os.path.join(os.path.dirname(here), name)
            if base not in seen:
                seen.add(base)
                pending.append(base)
                yield base


def _bases(reader: BundleReader) -> set[str]:
    """The bases that the tables of a checkpoint name. A variable may be called ``…-base``, too."""
    tables = [name.removesuffix("-base") for name in reader.names() if name.endswith("-base")]
    values = [np.asarray(reader.read(f"{table}-base"), object) for table in tables if f"{table}-keys" in reader]
    found = [value.item() for value in values if value.size == 1]
    return {name.decode() for name in found if isinstance(name, bytes) and name}
