"""``tf.app.run``: parses the flags and calls ``main``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from logging import LogRecord
from typing import Any

from absl import app as absl_app
from absl import logging as absl_logging

from tfmini.compat.flags import FLAGS
from tfmini.compat.tf_logging import get_logger
from tfmini.export import export


def _not_ours(record: LogRecord) -> bool:
    return record.name != "tensorflow"


def _parse(argv: Sequence[str] | None) -> list[str]:
    # absl adds its handler to the root logger; without the filter, each line of tf.logging would appear twice.
    absl_logging.get_absl_handler().addFilter(_not_ours)
    rest: list[str] = FLAGS(sys.argv if argv is None else argv, known_only=True)
    return rest


@export("tf.app.run")
def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Parses the flags, calls ``main(argv)`` with the remaining arguments, and exits with its result.

    ``tf.app.run``. As in TensorFlow, undefined flags remain for ``main``.

    Args:
      main: default the ``main`` of the script.
      argv: default ``sys.argv``.
    """
    get_logger()  # first, since it would mistake the root logger that absl sets up for the user's own
    absl_app.run(main=main or sys.modules["__main__"].main, argv=argv, flags_parser=_parse)
