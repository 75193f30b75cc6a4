"""Mutable tables that are saved in checkpoints (``tf.contrib.lookup.MutableHashTable``, ``MutableDenseHashTable``)."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import add_to_collection, colocate_with, name_scope
from tfmini.ops.tables import functions as tables
from tfmini.ops.tables import table_ops
from tfmini.train.checkpointing.saveables import SaveableObject, SaveSpec


class _TableSaveable(SaveableObject):
    """The saveable of a table: its keys and values are saved as ``<name>-keys`` and ``<name>-values``."""

    def __init__(self, table: Any, name: str) -> None:
        keys, values = table.export()
        super().__init__(table, [SaveSpec(keys, "", f"{name}-keys"), SaveSpec(values, "", f"{name}-values")], name)

    def restore(self, restored_tensors: Any, restored_shapes: Any, name: str | None = None) -> Operation:
        """An operation that replaces the table's content."""
        with name_scope(name, f"{self.name}_table_restore"), colocate_with(self.op.resource_handle):
            return table_ops.import_(self.op.resource_handle, restored_tensors[0], restored_tensors[1])  # type: ignore[no-any-return]


@export("tf.contrib.lookup.MutableHashTable", "tf.lookup.experimental.MutableHashTable")
class MutableHashTable(tables.MutableHashTable):
    """`tables.MutableHashTable`, which Savers save if ``checkpoint``."""

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(key_dtype, value_dtype, default_value, name, checkpoint)
        if checkpoint:
            add_to_collection(GraphKeys.SAVEABLE_OBJECTS, _TableSaveable(self, name))


@export("tf.contrib.lookup.MutableDenseHashTable", "tf.lookup.experimental.DenseHashTable")
class DenseHashTable(tables.DenseHashTable):
    """`tables.DenseHashTable`, which Savers save if ``checkpoint``."""

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, empty_key: Any, deleted_key: Any,
        initial_num_buckets: int | None = None, name: str = "MutableDenseHashTable", checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets, name, checkpoint
        )
        if checkpoint:
            add_to_collection(GraphKeys.SAVEABLE_OBJECTS, _TableSaveable(self, name))
