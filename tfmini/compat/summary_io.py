"""``tensorflow.python.training.summary_io``: the summary writers under their oldest names."""

from __future__ import annotations

from tfmini.train.summaries.summary_writer import FileWriter as SummaryWriter
from tfmini.train.summaries.summary_writer import FileWriterCache as SummaryWriterCache

__all__ = ["SummaryWriter", "SummaryWriterCache"]
