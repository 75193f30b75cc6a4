"""Numbers for steps, by which the tasks of a cluster tell messages of different steps apart.

A process counts from a random start in steps of a random odd number, modulo 2**56: it never gives a number twice,
and two processes meet with a probability of about 2**-56 per pair of steps. A forked child starts anew.
"""

from __future__ import annotations

import itertools
import os
import secrets

_BITS = 56
_MASK = (1 << _BITS) - 1


def _start() -> None:
    # `secrets`: scripts seed Python's generator, and two clients with one seed would number their steps alike.
    global _next
    _next = itertools.count(secrets.randbits(_BITS), secrets.randbits(_BITS) | 1).__next__


_next = itertools.count().__next__
_start()
os.register_at_fork(after_in_child=_start)


def new_step_id() -> int:
    """A number that no other step of the cluster has."""
    return _next() & _MASK
