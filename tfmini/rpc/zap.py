"""Who may open an encrypted connection: ZeroMQ asks (the ZAP protocol), the admitted keys answer."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import zmq
from zmq.utils import z85

from tfmini.rpc.reactor import Reactor
from tfmini.rpc.security import Keys

_gates: dict[int, Gatekeeper] = {}
_lock = threading.Lock()


class Gatekeeper:
    """Answers for all listeners of a ZeroMQ context; each is a ZAP domain of its own."""

    def __init__(self, context: zmq.Context[Any], reactor: Reactor) -> None:
        self._keys: dict[str, Keys] = {}
        self._serial = itertools.count(1)
        self._sock: Any = context.socket(zmq.REP)
        self._sock.linger = 0
        self._sock.bind("inproc://zeromq.zap.01")
        self._source = reactor.source(self._sock.getsockopt(zmq.FD), self._on_ready)
        reactor.watch(self._source)

    @classmethod
    def of(cls, context: zmq.Context[Any], reactor: Reactor) -> Gatekeeper:
        """The gatekeeper of that context."""
        with _lock:
            if id(context) not in _gates:
                _gates[id(context)] = cls(context, reactor)
            return _gates[id(context)]

    def admit(self, sock: zmq.Socket[Any], keys: Keys) -> str:
        """Makes ``sock`` an encrypted server for holders of admitted keys; returns its domain."""
        domain = f"tfmini-{next(self._serial)}"
        self._keys[domain] = keys
        sock.zap_domain = domain.encode()
        sock.curve_publickey, sock.curve_secretkey = keys.public, keys.secret
        sock.curve_server = True
        return domain

    def dismiss(self, domain: str) -> None:
        """Nobody is admitted to that domain any more."""
        self._keys.pop(domain, None)

    def _on_ready(self) -> None:
        while self._sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            request = self._sock.recv_multipart(zmq.NOBLOCK)
            version, request_id, domain, _, _, mechanism, *credentials = request
            keys = self._keys.get(domain.decode(errors="replace"))
            admitted = mechanism == b"CURVE" and keys is not None and keys.admits(z85.encode(credentials[0]))
            code, text = (b"200", b"OK") if admitted else (b"400", b"key not admitted")
            self._sock.send_multipart([version, request_id, code, text, b"", b""], zmq.NOBLOCK)
