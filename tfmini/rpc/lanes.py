"""The lanes of one endpoint: listeners, created on first use, and connections to the lanes of peers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tfmini.rpc.forks import AT_LIMIT
from tfmini.rpc.lane_listener import LaneListener, TokenListener, connect_lane
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.stream_lane import SCHEME, StreamListener, StreamOpening
from tfmini.rpc.transport import Connection

_log = logging.getLogger("tfmini.rpc")
_LOCAL = ""


class Lanes:
    """Listens for lanes and connects to them.

    Args:
      reactor: None in the simulator, which has no lanes.
      sealed: whether stream lanes are encrypted.
    """

    def __init__(self, reactor: Reactor | None, sealed: bool) -> None:
        self._reactor = reactor
        self._is_sealed = sealed
        self._lock = threading.Lock()
        self._listeners: dict[str, TokenListener | None] = {}  # by interface; None: it failed to bind
        self._closed = False

    def local_listener(self) -> TokenListener | None:
        """Returns the listener for local lanes; None when it cannot bind."""
        return self._listener(_LOCAL, LaneListener)

    def stream_listener(self, interface: str) -> TokenListener | None:
        """Returns the listener for stream lanes at a numeric address; None when it cannot bind."""
        return self._listener(interface, lambda reactor: StreamListener(interface, reactor, self._is_sealed))

    def _listener(self, key: str, make: Callable[[Reactor], TokenListener]) -> TokenListener | None:
        with self._lock:
            if key not in self._listeners and self._reactor is not None and not self._closed:
                try:
                    self._listeners[key] = make(self._reactor)
                except OSError as error:
                    _log.warning("no lanes at %s: %s", key or "this host", error)
                    if error.errno not in AT_LIMIT:  # else the next peer may have one
                        self._listeners[key] = None
            return self._listeners.get(key)

    def open_local(self, address: str, token: bytes) -> Connection | None:
        """Connects to a local lane; returns None when that fails (the link keeps its connection)."""
        assert self._reactor is not None
        try:
            return connect_lane(address, token, self._reactor)
        except OSError as error:
            _log.info("no local lane to %s: %s", address, error)
            return None

    def open_stream(self, host: str, address: str, token: bytes, on_open: Callable[[Connection], None]) -> bool:
        """Begins to connect to a stream lane; if that fails, the link keeps its connection."""
        port = address.removeprefix(SCHEME)
        if self._reactor is None or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            return False
        try:
            StreamOpening(host, int(port), token, self._reactor, on_open, self._is_sealed)
        except OSError as error:  # out of descriptors
            _log.info("no stream lane to %s: %s", host, error)
            return False
        return True

    def revoke_token(self, token: bytes) -> None:
        """Makes a token invalid."""
        for listener in tuple(self._listeners.values()):
            if listener is not None:
                listener.revoke_token(token)

    def close(self) -> None:
        """Stops listening."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            if listener is not None:
                listener.close()
