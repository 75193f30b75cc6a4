"""``tf.app.run``: parses the flags and calls ``main``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from logging import LogRecord
from typing import Any

from absl import app as absl_app
from absl import logging as absl_logging

from tfmini.compat.flags import FLAGS


def _not_ours(record: LogRecord) -> bool:
    return record.name != "tensorflow"


def _parse(argv: Sequence[str] | None) -> list[str]:
    # absl puts its handler on the root logger; without this, each line of tf.logging would appear twice.
    absl_logging.get_absl_handler().addFilter(_not_ours)
    left: list[str] = FLAGS(sys.argv if argv is None else argv, known_only=True)
    return left


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> None:
    """Parses the flags, calls ``main(argv)`` with what is left of the arguments, and exits with its result.

    ``tf.app.run``. As in TensorFlow, flags that nobody defined are left for ``main``.

    Args:
      main: default the ``main`` of the script.
      argv: default ``sys.argv``.
    """
    absl_app.run(main=main or sys.modules["__main__"].main, argv=argv, flags_parser=_parse)
