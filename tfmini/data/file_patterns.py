"""The files that match a pattern, as a tensor that fails where there are none."""

from __future__ import annotations

from glob import glob
from typing import Any

from tfmini import dtypes
from tfmini.checkpoint.files import local_path
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops import array_identity, array_shape, assertion, file_ops, math_comparison, string_conversions, strings
from tfmini.ops.scoping import control_dependencies


def matching_files(file_pattern: Any) -> Tensor:
    """The sorted names, a string vector, of the files that match one pattern or several.

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
    """The sorted names of the files that match one pattern or several, now.

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
