"""The lanes of one endpoint: its listeners, made when first wanted, and the opening of lanes to others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tfmini.rpc.lane_listener import LaneListener, TokenListener, connect_lane
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.stream_lane import SCHEME, StreamListener, StreamOpening
from tfmini.rpc.transport import Connection

_log = logging.getLogger("tfmini.rpc")
_LOCAL = ""


class Lanes:
    """See the module. ``reactor`` is None in the simulator, where there are no lanes."""

    def __init__(self, reactor: Reactor | None) -> None:
        self._reactor = reactor
        self._lock = threading.Lock()
        self._listeners: dict[str, TokenListener | None] = {}  # by interface; None: it cannot be had
        self._closed = False

    def local_listener(self) -> TokenListener | None:
        """The listener for local lanes; None when there can be none."""
        return self._listener(_LOCAL, LaneListener)

    def stream_listener(self, interface: str) -> TokenListener | None:
        """The listener for stream lanes at a numeric address; None when there can be none."""
        return self._listener(interface, lambda reactor: StreamListener(interface, reactor))

    def _listener(self, key: str, make: Callable[[Reactor], TokenListener]) -> TokenListener | None:
        with self._lock:
            if key not in self._listeners and self._reactor is not None and not self._closed:
                try:
                    self._listeners[key] = make(self._reactor)
                except OSError as error:
                    _log.warning("no lanes at %s: %s", key or "this host", error)
                    self._listeners[key] = None
            return self._listeners.get(key)

    def open_local(self, address: str, token: bytes) -> Connection | None:
        """Connects to a local lane; None when that fails, and the link stays as it is."""
        assert self._reactor is not None
        try:
            return connect_lane(address, token, self._reactor)
        except OSError as error:
            _log.info("no local lane to %s: %s", address, error)
            return None

    def open_stream(
        self, host: str, address: str, token: bytes, on_open: Callable[[Connection], None]
    ) -> bool:
        """Begins to connect to a stream lane; if that fails the link stays as it is."""
        port = address.removeprefix(SCHEME)
        if self._reactor is None or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            return False
        try:
            StreamOpening(host, int(port), token, self._reactor, on_open)
        except OSError as error:  # out of descriptors
            _log.info("no stream lane to %s: %s", host, error)
            return False
        return True

    def uninvite(self, token: bytes) -> None:
        """Makes a token worthless."""
        for listener in tuple(self._listeners.values()):
            if listener is not None:
                listener.uninvite(token)

    def close(self) -> None:
        """Stops listening."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            if listener is not None:
                listener.close()
