"""Authentication of encrypted connections: a handler of ZeroMQ's ZAP protocol (RFC 27) checks the peer's key."""

from __future__ import annotations

import itertools
from typing import Any

import zmq
from zmq.utils import z85

from tfmini.rpc.forks import PerProcess
from tfmini.rpc.keys import Keys
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.zmq_pump import get_context


class ZapHandler:
    """Authenticates the clients of all listeners of this process; each listener has its own ZAP domain."""

    def __init__(self) -> None:
        self._keys: dict[str, Keys] = {}
        self._serial = itertools.count(1)
        self._sock: Any = get_context().socket(zmq.REP)
        self._sock.linger = 0
        self._sock.bind("inproc://zeromq.zap.01")
        reactor = get_reactor()
        self._source = reactor.source(self._sock.getsockopt(zmq.FD), self._on_ready)
        reactor.watch(self._source)
        reactor.relief.add(self._source.look)

    def secure(self, sock: zmq.Socket[Any], keys: Keys) -> str:
        """Makes ``sock`` an encrypted server for holders of admitted keys; returns its domain."""
        domain = f"tfmini-{next(self._serial)}"
        self._keys[domain] = keys
        sock.zap_domain = domain.encode()
        sock.curve_publickey, sock.curve_secretkey = keys.public, keys.secret
        sock.curve_server = True
        return domain

    def remove(self, domain: str) -> None:
        """Removes a domain: all later connections to it are refused."""
        self._keys.pop(domain, None)

    def _on_ready(self) -> None:
        while self._sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            request = self._sock.recv_multipart(zmq.NOBLOCK)
            version, request_id, domain, _, _, mechanism, *credentials = request
            keys = self._keys.get(domain.decode(errors="replace"))
            public = z85.encode(credentials[0]) if mechanism == b"CURVE" else b""
            admitted = bool(public) and keys is not None and keys.admits(public)
            code, text = (b"200", b"OK") if admitted else (b"400", b"key not admitted")
            self._sock.send_multipart([version, request_id, code, text, public, b""], zmq.NOBLOCK)


_handler = PerProcess(ZapHandler)


def get_zap_handler() -> ZapHandler:
    """Returns the handler of this process: a ZeroMQ context can have one."""
    return _handler.get()
