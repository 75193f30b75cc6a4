"""Limits how many handshakes may fail per address and second.

A handshake costs the server an operation with its key, also if it fails. An address from which many fail has to wait:
its new connections are ended before their handshake. Addresses of this host are exempt: its users share the processor
anyway, and one of them could keep the others out.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

BURST, PER_SECOND = 200, 10.0  # failures of an address: at once, and for as long as it likes
_ADDRESSES = 10_000  # that are remembered


class FailedHandshakes:
    """A bucket of failures per address. Times are in seconds."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # failures and when counted; latest last

    def failed(self, host: str, now: float) -> None:
        """A connection from an address has ended before it was admitted."""
        key = _network(host)
        if not key:
            return
        count = self._count(key, now) + 1
        self._buckets.pop(key, None)  # so that it is the latest; `admitted` may take it out meanwhile
        self._buckets[key] = count, now
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)

    def admitted(self, host: str) -> None:
        """A connection from an address has been admitted: a holder of a key is there."""
        self._buckets.pop(_network(host), None)

    def must_wait(self, host: str, now: float) -> bool:
        """Whether a new connection from an address is to be ended."""
        return bool(self._buckets) and self._count(_network(host), now) >= BURST

    def _count(self, key: str, now: float) -> float:
        count, since = self._buckets.get(key, (0.0, now))
        return max(0.0, count - PER_SECOND * (now - since))


def _network(host: str) -> str:
    """What counts as one address: a /64 of IPv6; "" for this host."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # no TCP address
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return "" if address.is_loopback else str(int(address) >> 64)
        address = address.ipv4_mapped
    return "" if address.is_loopback else str(address)
