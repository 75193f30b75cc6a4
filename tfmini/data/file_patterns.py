"""Lookup of the files that match a pattern, in a step or at once."""

from __future__ import annotations

from glob import glob
from typing import Any

from tfmini import dtypes
from tfmini.checkpoint.files import local_path
from tfmini.graph.families import Tensor, control_dependencies, convert_to_tensor
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.debugging import assertion
from tfmini.ops.io import file_ops
from tfmini.ops.math import comparison as math_comparison
from tfmini.ops.strings import conversions as string_conversions
from tfmini.ops.strings import elementwise as strings


def matching_files(file_pattern: Any) -> Tensor:
    """The sorted names, a string vector, of the files that match one or more patterns when a step runs.

    Running it raises `InvalidArgumentError` when nothing matches.
    """
    pattern = convert_to_tensor(file_pattern, dtype=dtypes.string, name="file_pattern")
    files = file_ops.matching_files(pattern)
    found = math_comparison.greater(array_shape.shape(files)[0], 0, name="match_not_empty")
    patterns = string_conversions.reduce_join(array_shape.reshape(pattern, [-1]), separator=", ", name="message")
    message = strings.string_join(["No files matched pattern: ", patterns])
    with control_dependencies([assertion.Assert(found, [message], summarize=1, name="assert_not_empty")]):
        return array_identity.identity(files)


def matching_names(file_pattern: Any) -> list[str]:
    """The sorted names of the files that match one or more patterns now.

    Raises:
      ValueError: when nothing matches.
    """
    patterns = list(file_pattern) if isinstance(file_pattern, (list, tuple)) else [file_pattern]
    if not patterns:
        raise ValueError("File pattern is empty.")
    names = sorted(name for pattern in patterns for name in glob(local_path(str(pattern))))
    if not names:
        raise ValueError(f"No files match {file_pattern}.")
    return names
