"""The buckets of a dense hash table, in TensorFlow's order: open addressing with quadratic probing.

Lookups use the table's dictionary. The buckets only decide how many entries fit and in which order an export
lists them, so the hashes are computed when somebody exports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tfmini.numerics.string_hashes import hash64

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

    def __init__(self, count: int, load: float, empty_key: Any) -> None:
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

    def removed(self, key: Any, value: Any) -> None:
        """Notes that the table has lost an entry."""
        self._note(self._remove, key, value)

    def export(self, entries: dict[Any, Any], default: Any) -> tuple[list[Any], list[Any]]:
        """The key and the value of every bucket; ``default`` is the value of a bucket that was never used."""
        self._replay()
        values = [default] * self.count
        for place, value in self._removed.items():
            values[place] = value
        for key, place in self._places.items():
            values[place] = entries[key]
        return list(self._keys), values

    def _note(self, change: Callable[..., None], *arguments: Any, size: int = 1) -> None:
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

    def _remove(self, key: Any, value: Any) -> None:
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
