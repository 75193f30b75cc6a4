"""Bounds of the requests that a server has not answered yet: their number and the bytes that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from tfmini import errors
from tfmini.rpc.calls import Responder

CONNECTION_LIMIT, SERVER_LIMIT = 20_000, 200_000  # requests; checked at ticks
CONNECTION_BYTES, SERVER_BYTES = 4 << 30, 16 << 30  # of fed values and other large parts
FAIR_SHARE = 64 << 20  # bytes that every connection may hold


class BusyEndpoint(Protocol):
    """The endpoint that has not answered yet."""

    def links(self) -> Sequence[BusyLink]: ...


class BusyLink(Protocol):
    """A link with requests that have no answer yet."""

    active: dict[int, Responder]

    @property
    def endpoint(self) -> BusyEndpoint: ...
    @property
    def peer(self) -> object: ...


def refuse_excess(links: Iterable[BusyLink]) -> None:
    """Refuses the latest requests of peers that have too many without an answer.

    A client that connects with ever new identities has no more than others: where the server has too many
    requests, each connection keeps an equal share.
    """
    busy = [link for link in links if link.active]
    limit = CONNECTION_LIMIT
    if sum(len(link.active) for link in busy) > SERVER_LIMIT:
        limit = min(limit, SERVER_LIMIT // len(busy))
    for link in busy:
        if len(link.active) <= limit:
            continue
        text = (
            f"{link.endpoint} has not answered {len(link.active)} requests of {link.peer} yet, more than the {limit} "
            "that one connection may have. Wait for steps to end before you start others."
        )
        for responder in list(link.active.values())[limit:]:
            responder.refuse(errors.ResourceExhaustedError.of(text))


def count_bytes(link: BusyLink, responder: Responder, parts: Sequence[Any]) -> None:
    """Counts the bytes of a request that has not been answered at once, and refuses it if they are too many."""
    size, held = sum(map(len, parts)), _pending_bytes(link)
    responder.nbytes = size
    if held <= FAIR_SHARE:
        return
    whose, limit = str(link.peer), CONNECTION_BYTES
    if held + size <= limit:
        others = [_pending_bytes(other) for other in link.endpoint.links() if other is not link]
        held += sum(nbytes for nbytes in others if nbytes > FAIR_SHARE)
        whose, limit = "all peers", SERVER_BYTES
        if held + size <= limit:
            return
    text = (
        f"Requests of {whose} that {link.endpoint} has not answered yet hold {held} bytes; another {size} would exceed "
        f"the limit of {limit}. Wait for steps to end before you feed others."
    )
    responder.refuse(errors.ResourceExhaustedError.of(text))


def _pending_bytes(link: BusyLink) -> int:
    return sum(responder.nbytes for responder in list(link.active.values()))
