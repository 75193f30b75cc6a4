"""Initializers of lookup tables: from tensors of keys and values, or from text files."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import add_to_collection, init_scope, name_scope
from tfmini.ops.tables import table_ops
from tfmini.ops.tables.table_state import LINE_NUMBER, WHOLE_LINE


def outside_control_flow() -> AbstractContextManager[Any]:
    """While it lasts, ops are made outside of branches and loops, for tables that are made inside."""
    inside = get_default_graph()._get_control_flow_context() is not None
    return init_scope() if inside else nullcontext()


class KeyValueTypes:
    """Base of tables and initializers: the types of keys and values."""

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
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


@export("tf.contrib.lookup.TableInitializerBase")
class TableInitializerBase(KeyValueTypes):
    """Fills a table once."""

    @property
    def _shared_name(self) -> str:
        """The name under which tables with the same content may be shared; empty: none."""
        return ""

    def initialize(self, table: Any) -> Operation:
        """Adds the operation that fills ``table`` to the graph and to its table initialisers."""
        raise NotImplementedError

    def _check_types(self, table: Any) -> None:
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
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: str | None = None
    ) -> None:
        with outside_control_flow():
            self._keys = convert_to_tensor(keys, dtype=key_dtype, name="keys")
            self._values = convert_to_tensor(values, dtype=value_dtype, name="values")
        self._name = name or "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: Any) -> Operation:
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
        self, filename: Any, key_dtype: Any, key_index: int, value_dtype: Any, value_index: int,
        vocab_size: int | None = None, delimiter: str = "\t", name: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(filename, Tensor) and not filename:
            raise ValueError(f"Filename required for {name}.")
        super().__init__(key_dtype, value_dtype)
        _check_column("key", key_index, self._key_dtype, "Keys", integers_by_line=True)
        _check_column("value", value_index, self._value_dtype, "Values", integers_by_line=False)
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"Invalid vocab_size {vocab_size}.")
        self._filename = filename
        self._key_index = key_index
        self._value_index = value_index
        self._vocab_size = vocab_size
        self._delimiter = delimiter
        self._name = name

    @property
    def _shared_name(self) -> str:
        parts = [self._filename, self._vocab_size, self._key_index, self._value_index]
        return "hash_table_" + "_".join(str(p) for p in parts if p is not None)

    def initialize(self, table: Any) -> Operation:
        self._check_types(table)
        with name_scope(self._name, "text_file_init", [table.resource_handle]):
            filename = convert_to_tensor(self._filename, dtypes.string, name="asset_filepath")
            operation: Operation = table_ops.initialize_from_file(
                table.resource_handle, filename, key_index=self._key_index, value_index=self._value_index,
                vocab_size=self._vocab_size or -1, delimiter=self._delimiter,
            )  # fmt: skip
        add_to_collection(GraphKeys.TABLE_INITIALIZERS, operation)
        if filename.op.type == "Const":
            add_to_collection(GraphKeys.ASSET_FILEPATHS, filename)
        return operation


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
        self, filename: Any, key_column_index: int = LINE_NUMBER, value_column_index: int = WHOLE_LINE,
        vocab_size: int | None = None, delimiter: str = "\t", name: str = "text_file_string_table_init",
    ) -> None:  # fmt: skip
        super().__init__(
            filename, dtypes.int64, key_column_index, dtypes.string, value_column_index, vocab_size, delimiter, name
        )


@export("tf.contrib.lookup.TextFileIdTableInitializer")
class TextFileIdTableInitializer(TextFileInitializer):
    """Fills a table from strings (default: lines) to ids (default: line numbers)."""

    def __init__(
        self, filename: Any, key_column_index: int = WHOLE_LINE, value_column_index: int = LINE_NUMBER,
        vocab_size: int | None = None, delimiter: str = "\t", name: str = "text_file_id_table_init",
        key_dtype: Any = dtypes.string,
    ) -> None:  # fmt: skip
        super().__init__(
            filename, key_dtype, key_column_index, dtypes.int64, value_column_index, vocab_size, delimiter, name
        )
