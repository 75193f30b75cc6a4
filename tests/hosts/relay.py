"""Delays and loses the packets of one cable: ``python relay.py PORT OTHER DELAY_S LOSS SEED``.

It runs in the switch's namespace and takes the place of a wire between two interfaces, since this kernel may have no
``netem``. Frames travel with the header that tells the kernel what is left to do for them (checksum, segments), so
large ones stay whole.
"""

from __future__ import annotations

import collections
import random
import select
import socket
import sys
import time

_ALL_PROTOCOLS = 0x0003
_SOL_PACKET, _VNET_HEADER = 263, 15
_OUTGOING = 4  # the type of a frame that was sent here
_LARGEST = 1 << 17
_QUEUED = 10_000  # frames on their way; more are lost, as in a full buffer


def _open(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    sock.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    sock.bind((interface, _ALL_PROTOCOLS))
    sock.setblocking(False)
    return sock


def main(port: str, other: str, delay_s: float, loss: float, seed: int) -> None:
    here, there = _open(port), _open(other)
    across = {here: there, there: here}
    under_way: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    chance = random.Random(seed)
    print("ready", flush=True)
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for sock in select.select([here, there], [], [], wait_s)[0]:
            frame, (_, _, kind, *_) = sock.recvfrom(_LARGEST)
            if kind != _OUTGOING and chance.random() >= loss and len(under_way) < _QUEUED:
                under_way.append((time.monotonic() + delay_s, across[sock], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, sock, frame = under_way.popleft()
            try:
                sock.send(frame)
            except OSError:  # the interface is down, or its queue is full: the frame is lost
                continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
