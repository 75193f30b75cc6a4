"""Tables of expressions over ``tf`` on which tfmini and TensorFlow must agree.

A table is a list of expressions, or a dictionary of them by name. Both sides evaluate each in a graph of its own. In
`tests/ops` the fixture ``theirs`` asks TensorFlow for the table ``CASES`` of a module::

    @pytest.mark.oracle
    @pytest.mark.parametrize("case", CASES)
    def test_values_are_tensorflows(case, theirs):
        check(outcome(tf, case, NAMES), theirs[case])

``NAMES`` is the source of statements that run before each expression and may define names for it, with ``tf`` and
``np``. If they define ``feeds``, the expression is evaluated with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def outcomes(tf: Any, cases: Sequence[str] | Mapping[str, str], names: str = "") -> dict[str, dict[str, Any]]:
    """The `outcome` of each expression, by the expression or its name."""
    by_name = cases if isinstance(cases, Mapping) else {case: case for case in cases}
    return {name: outcome(tf, text, names) for name, text in by_name.items()}


def outcome(tf: Any, text: str, names: str = "") -> dict[str, Any]:
    """What an expression gives: {"values", "dtypes", "shapes"}, one of each per tensor, or {"error", "message"}.

    The expression is a tensor or a structure of tensors; None in it is passed over. Shapes are the static ones, None
    where the rank is unknown.
    """
    scope = {"tf": tf, "np": np, "feeds": {}}
    with tf.Graph().as_default(), tf.Session() as session:
        try:
            exec(names, scope)  # noqa: S102 - our own tables
            result = eval(text, scope)  # noqa: S307
            flat = tf.nest.flatten(result, expand_composites=True)
            tensors = [tf.convert_to_tensor(item) for item in flat if item is not None]
            values = [_array(value) for value in session.run(tensors, scope["feeds"])]
        except (tf.errors.OpError, ValueError, TypeError) as error:
            return {"error": type(error).__name__, "message": getattr(error, "message", None) or str(error)}
    dtypes = [tensor.dtype.base_dtype.name for tensor in tensors]
    shapes = [None if tensor.shape.ndims is None else tensor.shape.as_list() for tensor in tensors]
    return {"values": values, "dtypes": dtypes, "shapes": shapes}


def _array(value: Any) -> np.ndarray:
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def check(ours: dict[str, Any], theirs: dict[str, Any], rtol: float = 1e-6, atol: float = 0.0) -> None:
    """Fails unless two outcomes have the same dtypes, shapes and (floats within the tolerances) values."""
    assert "error" not in ours, ours
    if "CPU implementations do not yet support" in theirs.get("message", ""):
        import pytest  # the oracle's interpreter has none

        pytest.skip("TensorFlow computes this only where it uses oneDNN, which depends on the CPU")
    assert "error" not in theirs, theirs
    assert ours["dtypes"] == theirs["dtypes"]
    for mine, other, static, known in zip(ours["values"], theirs["values"], ours["shapes"], theirs["shapes"]):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert fits(static, mine.shape)
        assert known is None or fits(static, known)
        if mine.dtype.kind in "fc":
            np.testing.assert_allclose(mine, other, rtol=rtol, atol=atol)
        else:
            assert mine.tolist() == other.tolist()


def check_error(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Fails unless two outcomes are errors of the same class, and our first line stands in TensorFlow's message."""
    assert ours["error"] == theirs["error"]
    assert ours["message"].split("\n")[0].strip() in theirs["message"]


def fits(static: Sequence[int | None] | None, shape: Sequence[int | None]) -> bool:
    """Whether two shapes have the same rank and no known dimension in which they differ. None is any shape."""
    if static is None:
        return True
    return len(static) == len(shape) and all(a == b or None in (a, b) for a, b in zip(static, shape))
