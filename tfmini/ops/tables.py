"""Lookup tables: ``tf.lookup`` and ``tf.contrib.lookup``, and ``tf.tables_initializer``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import add_to_collection, colocate_with, device, get_collection, init_scope, name_scope
from tfmini.ops import table_ops
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import group, no_op
from tfmini.ops.table_state import LINE_NUMBER, WHOLE_LINE
from tfmini.shapes import TensorShape

# ---- Initializers of lookup tables: from tensors of keys and values, or from text files ----------------------------


def outside_control_flow() -> AbstractContextManager[Any]:
    """While it lasts, ops are made outside of branches and loops, for tables that are made inside."""
    inside = get_default_graph()._get_control_flow_context() is not None
    return init_scope() if inside else nullcontext()


class KeyValueTypes:
    """Base of tables and initializers: the types of keys and values."""

    def __init__(self, key_dtype: DTypeLike, value_dtype: DTypeLike) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)

    @property
    def key_dtype(self) -> dtypes.DType:
        """The type of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        """The type of the values."""
        return self._value_dtype

    def _trackable_children(self) -> list[tuple[str, Any]]:
        """What checkpoints of objects find in it, by name."""
        return []


@export("tf.contrib.lookup.TableInitializerBase")
class TableInitializerBase(KeyValueTypes):
    """Fills a table once."""

    @property
    def _shared_name(self) -> str:
        """The name under which tables with the same content may be shared; empty: none."""
        return ""

    def initialize(self, table: InitializableLookupTableBase) -> Operation:
        """Adds the operation that fills ``table`` to the graph and to its table initialisers."""
        raise NotImplementedError

    def _check_types(self, table: InitializableLookupTableBase) -> None:
        if self._key_dtype.base_dtype is not table.key_dtype:
            raise TypeError(f"Invalid key dtype, expected {table.key_dtype!r} but got {self._key_dtype!r}.")
        if self._value_dtype.base_dtype is not table.value_dtype:
            raise TypeError(f"Invalid value dtype, expected {table.value_dtype!r} but got {self._value_dtype!r}.")


@export("tf.lookup.KeyValueTensorInitializer", "tf.contrib.lookup.KeyValueTensorInitializer")
class KeyValueTensorInitializer(TableInitializerBase):
    """Fills a table from tensors (``tf.lookup.KeyValueTensorInitializer``).

    Args:
      keys, values: [n].
      key_dtype, value_dtype: default: those of the tensors.
      name: of the name scope.
    """

    def __init__(
        self, keys: TensorLike, values: TensorLike, key_dtype: DTypeLike | None = None,
        value_dtype: DTypeLike | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        with outside_control_flow():
            self._keys = convert_to_tensor(keys, dtype=key_dtype, name="keys")
            self._values = convert_to_tensor(values, dtype=value_dtype, name="values")
        self._name = name or "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: InitializableLookupTableBase) -> Operation:
        self._check_types(table)
        with name_scope(self._name, values=[table.resource_handle, self._keys, self._values]):
            operation: Operation = table_ops.import_(table.resource_handle, self._keys, self._values)
        add_to_collection(GraphKeys.TABLE_INITIALIZERS, operation)
        return operation


@export("tf.lookup.TextFileIndex", "tf.contrib.lookup.TextFileIndex")
class TextFileIndex:
    """The whole line and the line number, in place of a column of a text file (``tf.lookup.TextFileIndex``)."""

    WHOLE_LINE = WHOLE_LINE
    LINE_NUMBER = LINE_NUMBER


@export("tensorflow.python.training.tracking.tracking.TrackableAsset")
class TrackableAsset:
    """The path of a file that a graph reads, a string tensor; checkpoints of objects save nothing of it."""

    def __init__(self, path: TensorLike) -> None:
        with init_scope(), device("CPU"):
            self.asset_path = convert_to_tensor(path, dtypes.string, name="asset_path")

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return []


@export("tf.lookup.TextFileInitializer", "tf.contrib.lookup.TextFileInitializer")
class TextFileInitializer(TableInitializerBase):
    """Fills a table from the lines of a text file (``tf.lookup.TextFileInitializer``).

    Args:
      filename: of the file, on the machine of the table.
      key_dtype, value_dtype: of keys and values.
      key_index, value_index: column, from 0, or one of `TextFileIndex`.
      vocab_size: the number of lines to read; None: all.
      delimiter: the character between columns.
      name: of the name scope.

    Raises:
      ValueError: when a column cannot have that type.
    """

    def __init__(
        self, filename: TensorLike, key_dtype: DTypeLike, key_index: int, value_dtype: DTypeLike, value_index: int,
        vocab_size: int | None = None, delimiter: str = "\t", name: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(filename, Tensor) and not filename:
            raise ValueError(f"Filename required for {name}.")
        super().__init__(key_dtype, value_dtype)
        _check_column("key", key_index, self._key_dtype, "Keys", integers_by_line=True)
        _check_column("value", value_index, self._value_dtype, "Values", integers_by_line=False)
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"Invalid vocab_size {vocab_size}.")
        self._filename_arg = filename
        self._filename = TrackableAsset(filename)
        self._key_index = key_index
        self._value_index = value_index
        self._vocab_size = vocab_size
        self._delimiter = delimiter
        self._name = name

    @property
    def _shared_name(self) -> str:
        parts = [self._filename_arg, self._vocab_size, self._key_index, self._value_index]
        return "hash_table_" + "_".join(str(p) for p in parts if p is not None)

    def initialize(self, table: InitializableLookupTableBase) -> Operation:
        self._check_types(table)
        with name_scope(self._name, "text_file_init", [table.resource_handle]):
            filename = self._filename.asset_path
            operation: Operation = table_ops.initialize_from_file(
                table.resource_handle, filename, key_index=self._key_index, value_index=self._value_index,
                vocab_size=self._vocab_size or -1, delimiter=self._delimiter,
            )  # fmt: skip
        add_to_collection(GraphKeys.TABLE_INITIALIZERS, operation)
        if filename.op.type == "Const":
            add_to_collection(GraphKeys.ASSET_FILEPATHS, filename)
        return operation

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return [("_filename", self._filename)]


def _check_column(what: str, index: int, dtype: dtypes.DType, plural: str, integers_by_line: bool) -> None:
    if index < WHOLE_LINE:
        raise ValueError(f"Invalid {what} index {index}.")
    wanted = None
    if index == LINE_NUMBER and dtype is not dtypes.int64:
        wanted = dtypes.int64
    elif index == WHOLE_LINE and dtype is not dtypes.string:
        if integers_by_line and not dtype.is_integer:
            raise ValueError(f"Signature mismatch. {plural} must be integer or string, got {dtype!r}.")
        wanted = None if integers_by_line else dtypes.string
    if wanted is not None:
        raise ValueError(f"Signature mismatch. {plural} must be dtype {wanted!r}, got {dtype!r}.")


@export("tf.contrib.lookup.TextFileStringTableInitializer")
class TextFileStringTableInitializer(TextFileInitializer):
    """Fills a table from ids (default: line numbers) to strings (default: lines)."""

    def __init__(
        self, filename: TensorLike, key_column_index: int = LINE_NUMBER, value_column_index: int = WHOLE_LINE,
        vocab_size: int | None = None, delimiter: str = "\t", name: str = "text_file_string_table_init",
    ) -> None:  # fmt: skip
        super().__init__(
            filename, dtypes.int64, key_column_index, dtypes.string, value_column_index, vocab_size, delimiter, name
        )


@export("tf.contrib.lookup.TextFileIdTableInitializer")
class TextFileIdTableInitializer(TextFileInitializer):
    """Fills a table from strings (default: lines) to ids (default: line numbers)."""

    def __init__(
        self, filename: TensorLike, key_column_index: int = WHOLE_LINE, value_column_index: int = LINE_NUMBER,
        vocab_size: int | None = None, delimiter: str = "\t", name: str = "text_file_id_table_init",
        key_dtype: DTypeLike = dtypes.string,
    ) -> None:  # fmt: skip
        super().__init__(
            filename, key_dtype, key_column_index, dtypes.int64, value_column_index, vocab_size, delimiter, name
        )


# ---- functions ------------------------------------------------------------


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

    def __init__(self, key_dtype: DTypeLike, value_dtype: DTypeLike) -> None:
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

    def __init__(self, default_value: TensorLike, initializer: TableInitializerBase) -> None:
        super().__init__(initializer.key_dtype, initializer.value_dtype)
        self._initializer = initializer
        self._default_value = convert_to_tensor(default_value, dtype=self._value_dtype)
        self._default_value.shape.merge_with(TensorShape([]))
        with outside_control_flow():
            self._resource_handle = self._create_resource()
            self._init_op = initializer.initialize(self)

    def _create_resource(self) -> Tensor:
        raise NotImplementedError

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return [("_initializer", self._initializer)]

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

    def __init__(self, initializer: TableInitializerBase, default_value: TensorLike, name: str | None = None) -> None:
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
        self, initializer: TableInitializerBase, default_value: TensorLike, shared_name: str | None = None,
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

    def remove(self, keys: TensorLike, name: str | None = None) -> Operation:
        """Removes entries; absent keys are ignored.

        Raises:
          TypeError: for keys of another type.
        """
        self._check_key_dtype(keys)
        with name_scope(name, f"{self.name}_lookup_table_remove", [self._resource_handle, keys]):
            done: Operation = table_ops.remove(self._resource_handle, keys)
            return done

    def lookup(self, keys: TensorLike, name: str | None = None) -> Tensor:
        """The values of ``keys``, the default for absent ones."""
        with name_scope(name, f"{self.name}_lookup_table_find", [self._resource_handle, keys]):
            tensor = convert_to_tensor(keys, dtype=self._key_dtype, name="keys")
            with colocate_with(self._resource_handle):
                return table_ops.find(self._resource_handle, tensor, self._default_value)  # type: ignore[no-any-return]

    def insert(self, keys: TensorLike, values: TensorLike, name: str | None = None) -> Operation:
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
        self, key_dtype: DTypeLike, value_dtype: DTypeLike, default_value: TensorLike, name: str = "MutableHashTable",
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
        self, key_dtype: DTypeLike, value_dtype: DTypeLike, default_value: TensorLike, empty_key: object,
        deleted_key: object, initial_num_buckets: int | None = None, name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
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

    def insert_or_assign(self, keys: TensorLike, values: TensorLike, name: str | None = None) -> Operation:
        """Same as `insert`."""
        return self.insert(keys, values, name)

    def erase(self, keys: TensorLike, name: str | None = None) -> Operation:
        """Same as `remove`."""
        return self.remove(keys, name)
