"""The comparisons that two sides of a connection make in the Hello, as pure functions."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets

from tfmini.cluster import parse_address

_SALT_BYTES, _DIGEST_BYTES = 16, 16


def host_proof(host: str) -> bytes:
    """Returns a salted hash of a host id, different each time, so that the Hello reveals nothing; b"" for ""."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return salt + _digest(host, salt) if host else b""


def is_same_host(proof: bytes, host: str) -> bool:
    """Whether the sender of this `host_proof` has the same host id."""
    salt, digest = proof[:_SALT_BYTES], proof[_SALT_BYTES:]
    return bool(host and digest) and hmac.compare_digest(digest, _digest(host, salt))


def _digest(host: str, salt: bytes) -> bytes:
    return hashlib.blake2b(host.encode(), key=salt, digest_size=_DIGEST_BYTES).digest()


def addresses_conflict(ours: str, theirs: str, same_host: bool) -> bool:
    """Whether two ``host:port`` texts of two ClusterSpecs cannot mean the same task.

    A task may write its own entry in another way than others do, so only what certainly differs counts:
    a wildcard or loopback host says nothing to another host, and a name can be an alias of a number.
    """
    try:
        (host, port), (other_host, other_port) = parse_address(ours.lower()), parse_address(theirs.lower())
    except ValueError:
        return False
    kinds = {_kind(host), _kind(other_host)}
    if not port or not other_port or len(kinds) > 1 or kinds == {"any"} or (kinds == {"loopback"} and not same_host):
        return False
    return port != other_port or (kinds != {"loopback"} and not _may_be_equal(host, other_host))


def describe_conflict(task: str, theirs: str, ours: str, own: str) -> str:
    """Why a task is refused whose address in its own ClusterSpec (`theirs`) is another one than in that of `own`."""
    return (
        f"{task} is at {theirs} in its own ClusterSpec and at {ours} in that of {own}: two "
        f"clusters share an address by mistake, or one of them was started with an old ClusterSpec. Give all "
        f"tasks the same ClusterSpec. (A task that others reach at another address than its own can name "
        f"0.0.0.0:PORT as its own; tasks that move need an address book, TFMINI_ADDRESSES)"
    )


def _kind(host: str) -> str:
    if host in ("localhost", "*"):
        return "any" if host == "*" else "loopback"
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return "name"
    return "any" if number.is_unspecified else "loopback" if number.is_loopback else "number"


def _may_be_equal(host: str, other: str) -> bool:
    """Whether the hosts are equal, or one is the short form of the other name."""
    if _kind(host) == "number":
        return ipaddress.ip_address(host) == ipaddress.ip_address(other)
    shorter, longer = sorted((host, other), key=len)
    return longer == shorter or longer.startswith(shorter + ".")
