"""The state of lookup tables: dictionaries from keys to scalars or arrays, shared by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, TensorLike
from tfmini.dtypes import DType, cpp_name
from tfmini.numerics.texts import hash64
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.record_files import InflatedFile
from tfmini.ops.waiting_line import handle_value
from tfmini.shapes import format_raw

# ---- The buckets of a dense hash table, in TensorFlow's order: open addressing with quadratic probing --------------
# Lookups use the table's dictionary. The buckets only decide how many entries fit and in which order an export
# lists them, so the hashes are computed when somebody exports.

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7800
_LOG_PER_BUCKET = 4  # changes that are kept for the next export, per bucket


class Buckets:
    """See the module.

    Args:
      count: the number of buckets, a power of 2.
      load: the share of the buckets that may be used.
      empty_key: the key in unused buckets.

    Attributes:
      deleted_key: the key in buckets whose entry was removed.
    """

    def __init__(self, count: int, load: float, empty_key: TensorLike) -> None:
        self.count, self.empty_key, self.deleted_key = count, empty_key, empty_key
        self._load = load
        self._keys: list[Any] = [empty_key] * count
        self._places: dict[Any, int] = {}
        self._removed: dict[int, Any] = {}  # bucket -> the value that a removed entry has left there
        self._log: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._logged = 0

    def make_room(self, entries: int) -> None:
        """Doubles the number of buckets until ``entries`` fit."""
        before = self.count
        while entries > self.count * self._load:
            self.count *= 2
        if self.count > before:
            self._note(self._spread, self.count)

    def restart(self, count: int) -> None:
        """Forgets all entries."""
        self.count = max(4, 1 << (count - 1).bit_length())
        self._log, self._logged = [(self._clear, (self.count,))], 0

    def inserted(self, keys: list[Any]) -> None:
        """Notes keys that the table has got, perhaps again."""
        self._note(self._place_all, keys, size=len(keys))

    def removed(self, key: object, value: TensorLike) -> None:
        """Notes that the table has lost an entry."""
        self._note(self._remove, key, value)

    def export(self, entries: dict[Any, Any], default: Array) -> tuple[list[Any], list[Any]]:
        """The key and the value of every bucket; ``default`` is the value of a bucket that was never used."""
        self._replay()
        values = [default] * self.count
        for place, value in self._removed.items():
            values[place] = value
        for key, place in self._places.items():
            values[place] = entries[key]
        return list(self._keys), values

    def _note(self, change: Callable[..., None], *arguments: object, size: int = 1) -> None:
        self._log.append((change, arguments))
        self._logged += size
        if self._logged > _LOG_PER_BUCKET * self.count:
            self._replay()

    def _replay(self) -> None:
        log, self._log, self._logged = self._log, [], 0
        for change, arguments in log:
            change(*arguments)

    def _clear(self, count: int) -> None:
        self._keys, self._places, self._removed = [self.empty_key] * count, {}, {}

    def _spread(self, count: int) -> None:
        order = sorted(self._places, key=self._places.__getitem__)
        self._clear(count)
        self._place_all(order)

    def _place_all(self, keys: Iterable[Any]) -> None:
        mask = len(self._keys) - 1
        for key in keys:
            if key in self._places:
                continue
            place, probes = _hash(key) & mask, 0
            while self._keys[place] not in (self.empty_key, self.deleted_key):
                probes += 1
                place = place + probes & mask
            self._keys[place], self._places[key] = key, place
            self._removed.pop(place, None)

    def _remove(self, key: object, value: TensorLike) -> None:
        place = self._places.pop(key)
        self._keys[place], self._removed[place] = self.deleted_key, value


def _hash(key: Any) -> int:
    """TensorFlow's hash of a key: a number's is the number itself."""
    if not isinstance(key, tuple):
        return hash64(key) if isinstance(key, bytes) else int(key) & _MASK
    if len(key) == 1:
        return _hash(key[0])
    found = 0
    for element in key:
        found ^= (_hash(element) + _GOLDEN + (found << 10 & _MASK) + (found >> 4)) & _MASK
    return found


# ---- `TableState`: the keys and values of one table ----------------------------------------------------------------

Shape = tuple[int, ...]
WHOLE_LINE, LINE_NUMBER = -2, -1


class TableState:
    """A table from keys to values.

    Attributes:
      key_shape, value_shape: of one key and one value.
      once: whether it is filled once, by its initialiser, which must run before the first read.
      forbidden: reserved keys, each with its name in error messages.
    """

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        *,
        key_shape: Shape = (),
        value_shape: Shape = (),
        once: bool = False,
    ) -> None:
        self.name = name
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.key_shape = key_shape
        self.value_shape = value_shape
        self.once = once
        self.forbidden: dict[Any, str] = {}
        self.buckets: Buckets | None = None
        self.is_initialized = not once
        self._entries: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    # ---- keys -------------------------------------------------------------------------------

    def keys_of(self, keys: TensorLike) -> list[Any]:
        """The keys in an array, in the form of the dictionary's keys."""
        array = np.asarray(keys, self.key_dtype.numpy)
        if not self.key_shape:
            return array.reshape(-1).tolist()
        if array.shape[array.ndim - len(self.key_shape) :] != self.key_shape:
            text = f"Input key shape {format_raw(array.shape)} must end with the table's key shape "
            refuse(text + format_raw(self.key_shape))
        return [tuple(row) for row in array.reshape(-1, *self.key_shape).tolist()]

    def forbid(self, key: object, what: str) -> None:
        """Reserves a key."""
        self.forbidden[self.keys_of(np.asarray(key)[None])[0]] = what

    def _check_allowed(self, keys: list[Any]) -> None:
        for key in self.forbidden.keys() & set(keys) if self.forbidden else ():
            refuse(f"Using the {self.forbidden[key]} as a table key is not allowed")

    def _leading(self, keys: Any) -> Shape:
        shape: Shape = np.shape(keys)
        return shape[: len(shape) - len(self.key_shape)]

    # ---- what the ops do --------------------------------------------------------------------

    def find(self, keys: TensorLike, default: Array) -> Any:
        """The values of ``keys``, and ``default`` for absent keys.

        Raises:
          FailedPreconditionError: before the table is initialised.
        """
        if not self.is_initialized:
            text = "Table not initialized. Run tf.tables_initializer() first."
            raise errors.FailedPreconditionError.of(text)
        if np.shape(default) != self.value_shape:
            text = f"Expected shape {format_raw(self.value_shape)} for default value, got "
            refuse(text + format_raw(np.shape(default)))
        wanted = self.keys_of(keys)
        self._check_allowed(wanted)
        if isinstance(default, np.ndarray) and not default.ndim:
            default = default[()]
        get = self._entries.get
        found = self._array([get(key, default) for key in wanted])
        leading = self._leading(keys)
        if not leading and not self.value_shape:
            return found[0]
        return found.reshape(leading + self.value_shape)

    def _array(self, values: list[Any]) -> Any:
        out = np.empty((len(values), *self.value_shape), self.value_dtype.numpy)
        if self.value_shape:
            for i, value in enumerate(values):
                out[i] = value
        else:
            out[:] = values
        return out

    def insert(self, keys: TensorLike, values: TensorLike, *, replace_all: bool = False) -> None:
        """Adds or replaces entries; with ``replace_all``, removes the others.

        Raises:
          InvalidArgumentError: when the shapes of keys and values do not fit.
        """
        if replace_all and self.buckets is not None:
            keys, values = _scalars(keys, self.key_shape), _scalars(values, self.value_shape)
        wanted = self.keys_of(keys)
        self._check_shapes(keys, values)
        if not replace_all:
            self._check_allowed(wanted)
        rows = np.asarray(values, self.value_dtype.numpy).reshape(-1, *self.value_shape)
        items = dict(zip(wanted, rows.copy() if self.value_shape else rows.tolist()))
        for key in self.forbidden if replace_all else ():
            items.pop(key, None)
        with self._lock:
            if self.once:
                self._fill_once(items, len(wanted))
            elif replace_all:
                self._entries = items
                if self.buckets is not None:
                    self.buckets.restart(len(wanted))
                    self.buckets.inserted(list(items))
            else:
                if self.buckets is not None:
                    self.buckets.make_room(len(self._entries) + len(wanted))
                    self.buckets.inserted(wanted)
                self._entries.update(items)

    def _check_shapes(self, keys: TensorLike, values: Any) -> None:
        expected = self._leading(keys) + self.value_shape
        if np.shape(values) != expected:
            refuse(f"Expected shape {format_raw(expected)} for value, got {format_raw(np.shape(values))}")

    def _fill_once(self, items: dict[Any, Any], count: int) -> None:
        if self.is_initialized:
            if count != len(self._entries):
                text = "Table was already initialized with different data."
                raise errors.FailedPreconditionError.of(text)
            return
        self._entries = items
        self.is_initialized = True

    def check_distinct(self, keys: TensorLike, values: TensorLike) -> None:
        """Refuses initial data with two values for one key.

        Raises:
          FailedPreconditionError: naming the key.
        """
        seen: dict[Any, Any] = {}
        self._check_shapes(keys, values)
        for key, value in zip(self.keys_of(keys), np.asarray(values).reshape(-1).tolist()):
            if seen.setdefault(key, value) != value:
                text = f"HashTable has different value for same key. Key {_text(key)} has {_text(seen[key])} and trying to add value {_text(value)}"  # noqa: E501
                raise errors.FailedPreconditionError.of(text)

    def remove(self, keys: TensorLike) -> None:
        """Removes entries; absent keys are ignored."""
        wanted = self.keys_of(keys)
        self._check_allowed(wanted)
        with self._lock:
            for key in wanted:
                if key in self._entries:
                    value = self._entries.pop(key)
                    if self.buckets is not None:
                        self.buckets.removed(key, value)

    def export(self) -> tuple[Any, Any]:
        """All keys and their values, as arrays.

        A dense table exports all buckets, unused ones included, as matrices with a row for each.
        """
        with self._lock:
            if self.buckets is None:
                keys, values = list(self._entries), list(self._entries.values())
            else:
                spare = np.zeros(self.value_shape, self.value_dtype.numpy)[()]
                keys, values = self.buckets.export(self._entries, spare)
        out = np.empty((len(keys), *self.key_shape), self.key_dtype.numpy)
        if self.key_shape:
            for i, key in enumerate(keys):
                out[i] = key
        else:
            out[:] = keys
        if self.buckets is None:
            return out, self._array(values)
        return out.reshape(len(keys), -1), self._array(values).reshape(len(keys), -1)

    def read(self) -> Any:
        """The value of a reference to the table."""
        return handle_value(self.name)

    def clear(self) -> None:
        """Called when the task removes the table."""
        with self._lock:
            self._entries = {}
            self.is_initialized = not self.once
            if self.buckets is not None:
                self.buckets.restart(self.buckets.count)


def _text(value: TensorLike) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# ---- text files -----------------------------------------------------------------------------


def _parsed(token: bytes, line_number: int, dtype: DType) -> Any:
    if dtype is dtypes.string:
        return token
    try:
        return (int if dtype.is_integer else float)(token)
    except ValueError:
        text = f"Field {_text(token)} in line {line_number} is not a valid {cpp_name(dtype)}."
        raise errors.InvalidArgumentError.of(text) from None


def read_vocabulary(
    path: bytes, table: TableState, key_index: int, value_index: int, vocab_size: int, delimiter: bytes
) -> tuple[list[Any], list[Any]]:
    """The keys and values of the lines of a text file.

    Args:
      key_index, value_index: the number of a column, WHOLE_LINE or LINE_NUMBER.
      vocab_size: the number of lines to read; -1: all.

    Raises:
      NotFoundError: when the file does not exist.
      InvalidArgumentError: for empty lines, too few columns or lines, or fields of another type.
    """
    name = _text(path)
    file = InflatedFile(path)
    try:
        lines = file.read(-1).split(b"\n")
    finally:
        file.close()
    if lines[-1] == b"":
        lines.pop()
    if vocab_size >= 0:
        if len(lines) < vocab_size:
            refuse(f"Invalid vocab_size in {name}: expected {vocab_size} but got {len(lines)}")
        del lines[vocab_size:]
    keys: list[Any] = []
    values: list[Any] = []
    for number, raw in enumerate(lines):
        line = raw.rstrip(b"\r")
        if not line:
            position = sum(len(one) + 1 for one in lines[: number + 1])
            refuse(f"Invalid content in {name}: empty line found at position {position}.")
        last = max(key_index, value_index)
        tokens = line.split(delimiter) if last >= 0 else []
        if last >= len(tokens) and last >= 0:
            text = f"Invalid number of columns in {name} line {number} ({_text(line)}) : expected {last} got "
            refuse(text + str(len(tokens)))
        for index, dtype, into in ((key_index, table.key_dtype, keys), (value_index, table.value_dtype, values)):
            token = line if index == WHOLE_LINE else tokens[index] if index >= 0 else b""
            into.append(number if index == LINE_NUMBER else _parsed(token, number, dtype))
    return keys, values


def _scalars(array: Any, shape: Shape) -> Any:
    """The keys or values as they are inserted: the export of a dense table gives matrices, [n, 1] for scalars."""
    return np.asarray(array)[:, 0] if not shape and np.shape(array)[1:] == (1,) else array
