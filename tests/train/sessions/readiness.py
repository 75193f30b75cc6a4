"""What a wait for a ready model says when its time is up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

import tfmini as tf


def said_after_a_wait(
    manager: tf.train.SessionManager, target: str, part: str, log: Callable[[], str] | None = None
) -> str:
    """The error of a wait that runs into its limit, without the limit.

    A wait that ends before the first look does not tell ``part`` yet. Then a longer wait is tried.

    Args:
      log: returns the text in which ``part`` must be; None: the error.
    """
    for seconds in (0.4, 2.0, 10.0, 50.0):
        begin = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError) as info:
            manager.wait_for_session(target, max_wait_secs=seconds)
        assert time.monotonic() - begin >= seconds
        if part in (str(info.value) if log is None else log()):
            break
    return str(info.value).replace(f"waiting {seconds:g} secs", "waiting")


def last_warning(caplog: pytest.LogCaptureFixture) -> str:
    """The last warning so far; the first of a wait may come before the probe has an answer."""
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return warnings[-1] if warnings else ""
