"""Training: optimizers, schedules, averages, savers, hooks and sessions.

Importing the package declares its ops, as a server needs them.
"""

from __future__ import annotations

from tfmini.train import summary_writer_ops

__all__ = ["summary_writer_ops"]
