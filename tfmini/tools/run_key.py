"""The key of a run: only the tasks of the run can connect to its servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tfmini.rpc.keys import INSECURE_ENV, KEYS_ENV, keys_in_memory


@contextmanager
def key_of_run() -> Iterator[str]:
    """Yields the path of the secret file with a new key; "" if the user has chosen keys, or to do without."""
    if os.environ.get(KEYS_ENV) or os.environ.get(INSECURE_ENV) == "1":
        yield ""
        return
    with keys_in_memory() as path:
        yield path
