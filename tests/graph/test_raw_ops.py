"""The typed namespace of all ops. `tests/test_namespace.py` compares its stub with the declarations."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.graph import raw_ops


def test_an_op_of_another_family_is_called_by_name() -> None:
    with tf.Graph().as_default():
        total = raw_ops.Sum([[1, 2], [3, 4]], [0], keep_dims=True, name="total")
        assert (total.op.type, total.op.name, total.shape.as_list()) == ("Sum", "total", [1, 2])
        assert raw_ops.NoOp().type == "NoOp"
        assert raw_ops.Switch(1, True)._fields == ("output_false", "output_true")


def test_an_op_that_does_not_exist_is_told() -> None:
    with pytest.raises(AttributeError, match="there is no op 'Summ'"):
        raw_ops.Summ  # noqa: B018
    assert "Sum" in dir(raw_ops)
