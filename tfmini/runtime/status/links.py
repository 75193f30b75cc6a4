"""The links of a task: what has gone over them, by the peer at the other end."""

from __future__ import annotations

from typing import Any

from tfmini.rpc.endpoint import Endpoint, State
from tfmini.rpc.traffic import Traffic, label, plus
from tfmini.status.snapshot import LinkSnapshot

_NAMES = "sent_bytes", "received_bytes", "sent_messages", "received_messages"


def link_counters(endpoint: Endpoint) -> dict[str, Traffic]:
    """What has been exchanged with each peer, by its `label`."""
    sums = endpoint.past_traffic.sums()
    for link in endpoint.links():
        if link.peer is not None:
            name = label(link.peer)
            sums[name] = plus(sums.get(name, (0, 0, 0, 0)), link.traffic())
    return sums


def as_counters(traffic: dict[str, Traffic]) -> dict[str, float]:
    """The same as flat counters, for `Rates`."""
    return {f"{peer} {name}": float(value) for peer, sums in traffic.items() for name, value in zip(_NAMES, sums)}


def link_snapshots(endpoint: Endpoint, traffic: dict[str, Traffic], rates: dict[str, float]) -> list[LinkSnapshot]:
    """One snapshot per peer, the busiest first."""
    states: dict[str, dict[str, Any]] = {}
    for peer in endpoint.peers():
        link = peer.link
        entry = states.setdefault(label(peer), {"state": "", "transport": "", "backlog_bytes": 0})
        if peer.state is State.READY or not entry["state"]:
            entry["state"] = peer.state.name.lower()
        if peer.address:
            entry |= {"address": peer.where, "why": peer.trouble}
        if link is not None:
            entry["transport"] = link.connection.kind or entry["transport"]
            entry["backlog_bytes"] += peer.backlog
    found = []
    for name in {**traffic, **states}:
        sums: dict[str, Any] = dict(zip(_NAMES, traffic.get(name, (0, 0, 0, 0))))
        speeds: dict[str, Any] = {f"{each}_s": rates.get(f"{name} {each}", 0.0) for each in _NAMES}
        found.append(LinkSnapshot(name, **{"state": "closed", **states.get(name, {})}, **sums, **speeds))
    return sorted(found, key=lambda each: -(each.sent_bytes + each.received_bytes))
