"""``tensorflow.python.training.summary_io``: the writers of summaries under their first names."""

from __future__ import annotations

from tfmini.train.summary_writer import FileWriter as SummaryWriter
from tfmini.train.summary_writer import FileWriterCache as SummaryWriterCache

__all__ = ["SummaryWriter", "SummaryWriterCache"]
