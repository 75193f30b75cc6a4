"""Lookup tables: ``tf.lookup`` and ``tf.contrib.lookup``, and ``tf.tables_initializer``."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import colocate_with, get_collection, name_scope
from tfmini.ops.control import group, no_op
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.ops.tables import table_ops
from tfmini.ops.tables.initializers import KeyValueTypes, TableInitializerBase, outside_control_flow
from tfmini.shapes import TensorShape


@export("tf.initialize_all_tables")
def initialize_all_tables(name: str = "init_all_tables") -> Operation:
    """The old name of `tables_initializer` (``tf.initialize_all_tables``)."""
    return tables_initializer(name)


@export("tf.tables_initializer", "tf.initializers.tables", "tf.initializers.tables_initializer")
def tables_initializer(name: str = "init_all_tables") -> Operation:
    """Runs the initialisers of all tables of the graph (``tf.tables_initializer``)."""
    initializers = get_collection(GraphKeys.TABLE_INITIALIZERS)
    return group(*initializers, name=name) if initializers else no_op(name=name)


@export("tf.contrib.lookup.LookupInterface")
class LookupInterface(KeyValueTypes):
    """A table from keys to values."""

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        super().__init__(key_dtype, value_dtype)
        self._resource_handle: Any = None

    @property
    def resource_handle(self) -> Any:
        """The handle."""
        return self._resource_handle

    @property
    def name(self) -> str:
        """The last part of the handle's name."""
        return str(self._resource_handle.op.name.split("/")[-1])

    def _check_key_dtype(self, keys: Any) -> None:
        if keys.dtype.base_dtype is not self._key_dtype:
            raise TypeError(
                f"Signature mismatch. Keys must be dtype {self._key_dtype!r}, got {keys.dtype.base_dtype!r}."
            )


@export("tf.contrib.lookup.InitializableLookupTableBase")
class InitializableLookupTableBase(LookupInterface):
    """A table that an initialiser fills once.

    Args:
      default_value: the value of absent keys, a scalar.
      initializer: a `TableInitializerBase`.
    """

    def __init__(self, default_value: Any, initializer: TableInitializerBase) -> None:
        super().__init__(initializer.key_dtype, initializer.value_dtype)
        self._initializer = initializer
        self._default_value = convert_to_tensor(default_value, dtype=self._value_dtype)
        self._default_value.shape.merge_with(TensorShape([]))
        with outside_control_flow():
            self._resource_handle = self._create_resource()
            self._init_op = initializer.initialize(self)

    def _create_resource(self) -> Tensor:
        raise NotImplementedError

    @property
    def default_value(self) -> Tensor:
        """The value of absent keys."""
        return self._default_value

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        return self._init_op

    @property
    def init(self) -> Operation:
        """The old name of `initializer`."""
        return self._init_op

    def size(self, name: str | None = None) -> Tensor:
        """The number of entries, an int64 scalar."""
        with name_scope(name, f"{self.name}_Size", [self._resource_handle]):
            return table_ops.size(self._resource_handle)  # type: ignore[no-any-return]

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of ``keys`` (a tensor or sparse tensor), of the same shape.

        Raises:
          TypeError: for keys of another type.
        """
        self._check_key_dtype(keys)
        flat = keys.values if isinstance(keys, SparseTensor) else keys
        with name_scope(name, f"{self.name}_Lookup", [self._resource_handle, flat, self._default_value]):
            values = table_ops.find(self._resource_handle, flat, self._default_value)
        values.set_shape(flat.shape)
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, values, keys.dense_shape)
        return values

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """All keys and values."""
        with name_scope(name, f"{self.name}_Export", [self._resource_handle]):
            keys, values = table_ops.export(self._resource_handle, Tkeys=self._key_dtype, Tvalues=self._value_dtype)
        return keys, values


@export("tf.lookup.StaticHashTable")
class StaticHashTable(InitializableLookupTableBase):
    """A table that does not change after its initialisation (``tf.lookup.StaticHashTable``)."""

    def __init__(self, initializer: TableInitializerBase, default_value: Any, name: str | None = None) -> None:
        import uuid  # Imported here to save some ms in `import tfmini`.

        # Tables of one file are shared by name; other tables need unique names.
        self._shared_name = initializer._shared_name or f"hash_table_{uuid.uuid4()}"
        self._table_name = name or "hash_table"
        super().__init__(default_value, initializer)

    def _create_resource(self) -> Tensor:
        return table_ops.hash_table(  # type: ignore[no-any-return]
            shared_name=self._shared_name, key_dtype=self._key_dtype, value_dtype=self._value_dtype,
            name=self._table_name,
        )  # fmt: skip


@export("tf.contrib.lookup.HashTable")
class HashTable(StaticHashTable):
    """``tf.contrib.lookup.HashTable``: a static table, shared under a given name."""

    def __init__(
        self, initializer: TableInitializerBase, default_value: Any, shared_name: str | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self._given_name = shared_name or ""
        super().__init__(initializer, default_value, name)

    def _create_resource(self) -> Tensor:
        self._shared_name = self._given_name
        return super()._create_resource()


class _MutableTable(LookupInterface):
    """Base of the mutable tables."""

    _default_value: Tensor

    def size(self, name: str | None = None) -> Tensor:
        """The number of entries, an int64 scalar."""
        with name_scope(name, f"{self.name}_Size", [self._resource_handle]), colocate_with(self._resource_handle):
            return table_ops.size(self._resource_handle)  # type: ignore[no-any-return]

    def remove(self, keys: Any, name: str | None = None) -> Operation:
        """Removes entries; absent keys are ignored.

        Raises:
          TypeError: for keys of another type.
        """
        self._check_key_dtype(keys)
        with name_scope(name, f"{self.name}_lookup_table_remove", [self._resource_handle, keys]):
            done: Operation = table_ops.remove(self._resource_handle, keys)
            return done

    def lookup(self, keys: Any, name: str | None = None) -> Tensor:
        """The values of ``keys``, the default for absent ones."""
        with name_scope(name, f"{self.name}_lookup_table_find", [self._resource_handle, keys]):
            tensor = convert_to_tensor(keys, dtype=self._key_dtype, name="keys")
            with colocate_with(self._resource_handle):
                return table_ops.find(self._resource_handle, tensor, self._default_value)  # type: ignore[no-any-return]

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Adds or replaces entries."""
        with name_scope(name, f"{self.name}_lookup_table_insert", [self._resource_handle, keys, values]):
            key_tensor = convert_to_tensor(keys, self._key_dtype, name="keys")
            value_tensor = convert_to_tensor(values, self._value_dtype, name="values")
            with colocate_with(self._resource_handle):
                return table_ops.insert(self._resource_handle, key_tensor, value_tensor)  # type: ignore[no-any-return]

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """All keys and values, in no particular order."""
        scope = name_scope(name, f"{self.name}_lookup_table_export_values", [self._resource_handle])
        with scope, colocate_with(self._resource_handle):
            keys, values = table_ops.export(self._resource_handle, Tkeys=self._key_dtype, Tvalues=self._value_dtype)
        return keys, values


class MutableHashTable(_MutableTable):
    """A table that can be changed (``tf.contrib.lookup.MutableHashTable``).

    Args:
      key_dtype, value_dtype: of keys and values.
      default_value: the value of absent keys; a scalar or a vector; all values have its shape.
      name: of the handle; with ``checkpoint``, also the name under which the table is shared.
      checkpoint: whether the table is shared under its node name, which `Saver` needs.
    """

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(key_dtype, value_dtype)
        self._default_value = convert_to_tensor(default_value, dtype=self._value_dtype)
        attrs: dict[str, Any] = {
            "use_node_name_sharing": checkpoint,
            "key_dtype": self._key_dtype,
            "value_dtype": self._value_dtype,
            "name": name,
        }
        if self._default_value.shape.ndims == 0:
            self._resource_handle = table_ops.mutable_hash_table(**attrs)
        else:
            self._resource_handle = table_ops.table_of_tensors(value_shape=self._default_value.shape, **attrs)


class DenseHashTable(_MutableTable):
    """A mutable table whose keys may be vectors (``tf.contrib.lookup.MutableDenseHashTable``).

    Args:
      empty_key, deleted_key: two reserved keys.
      initial_num_buckets: a power of 2; default 131072.
    """

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, empty_key: Any, deleted_key: Any,
        initial_num_buckets: int | None = None, name: str = "MutableDenseHashTable", checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(key_dtype, value_dtype)
        self._default_value = convert_to_tensor(default_value, dtype=self._value_dtype, name="default_value")
        self._resource_handle = table_ops.dense_table(
            convert_to_tensor(empty_key, dtype=self._key_dtype, name="empty_key"),
            convert_to_tensor(deleted_key, dtype=self._key_dtype, name="deleted_key"),
            use_node_name_sharing=checkpoint,
            value_dtype=self._value_dtype,
            value_shape=self._default_value.shape,
            initial_num_buckets=initial_num_buckets,
            name=name,
        )

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Same as `insert`."""
        return self.insert(keys, values, name)

    def erase(self, keys: Any, name: str | None = None) -> Operation:
        """Same as `remove`."""
        return self.remove(keys, name)
