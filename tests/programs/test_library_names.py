"""The names that libraries of TensorFlow 1's time use: each is here, or its absence says what to use instead."""

from __future__ import annotations

import pytest

from tests.programs import library_names

SOURCE = """
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.python.ops import math_ops, rnn_cell_impl as cells

def f(x):
    return tf.nn.relu(math_ops.cast(x, tf.float32)).shape, cells._Linear, slim.conv2d, np.nothing.at_all
"""


def test_a_source_tells_what_it_imports_and_reads() -> None:
    assert library_names.used_paths(SOURCE) == {
        f"tensorflow.{path}"
        for path in (
            *(
                "nn.relu",
                "float32",
                "contrib.slim",
                "contrib.slim.conv2d",
                "python.ops.math_ops",
                "python.ops.rnn_cell_impl",
            ),
            *("python.ops.math_ops.cast", "python.ops.rnn_cell_impl._Linear"),
        )
    }
    assert library_names.used_paths("print 'of Python 2'") == set()


@pytest.mark.slow
def test_each_name_is_here_or_has_a_remedy() -> None:
    libraries, names = library_names.read_names()
    errors = library_names.absent(names)
    assert [name for name, error in errors.items() if not library_names.remedy(error)] == []
    current = library_names.page(libraries, names, errors) == library_names.PAGE.read_text()
    assert current, "python -m tests.programs.library_names page"
