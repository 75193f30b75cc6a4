"""Assertions about ranks and scalars (``tf.assert_rank``…), checked statically where shapes are known."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.control import no_op, with_dependencies
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.debugging.value_checks import assert_type
from tfmini.ops.math import comparison as compare


@export("tf.assert_rank", "tf.debugging.assert_rank")
def assert_rank(
    x: Any, rank: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless ``x`` has the rank; a no-op if the static rank matches (``tf.assert_rank``).

    Raises:
      ValueError: when the static rank is another.
    """
    return _check("assert_rank", "rank", "Equal", x, [rank], data, summarize, message, name)


@export("tf.assert_rank_at_least", "tf.debugging.assert_rank_at_least")
def assert_rank_at_least(
    x: Any, rank: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """Like `assert_rank`, for a rank of at least ``rank`` (``tf.assert_rank_at_least``)."""
    return _check("assert_rank_at_least", "rank at least", "GreaterEqual", x, [rank], data, summarize, message, name)


@export("tf.assert_rank_in", "tf.debugging.assert_rank_in")
def assert_rank_in(
    x: Any, ranks: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """Like `assert_rank`, for one of several ranks (``tf.assert_rank_in``)."""
    return _check("assert_rank_in", "rank in", "Equal", x, list(ranks), data, summarize, message, name)


def _check(
    default_name: str, wording: str, relation: str, x: Any, ranks: list[Any], data: Any, summarize: int | None,
    message: str | None, name: str | None,
) -> Operation:  # fmt: skip
    with name_scope(name, default_name, [x, *ranks]):
        x = convert_to_tensor(x, name="x")
        ranks = [convert_to_tensor(rank, name="rank") for rank in ranks]
        if data is None:
            said = f"Tensor {x.name} must have {wording}"
            data = [message or "", said, *ranks, "Received shape: ", raw_ops.Shape(x)]
        for rank in ranks:
            assert_type(rank, dtypes.int32)
        known = [constant_value(rank) for rank in ranks]
        if any(value is not None and value.ndim for value in known):
            raise ValueError("Rank must be a scalar.")
        if x.raw_shape is not None and all(value is not None for value in known):
            wanted = [int(value) for value in known]  # type: ignore[arg-type]
            _check_static(default_name, wording, x, wanted, message)
            return no_op(name="static_checks_determined_all_ok")
        return Assert(_condition(relation, x, ranks, known), data, summarize=summarize)


def _check_static(default_name: str, wording: str, x: Tensor, wanted: list[int], message: str | None) -> None:
    rank = len(x.raw_shape or ())
    holds = rank >= wanted[0] if default_name == "assert_rank_at_least" else rank in wanted
    if not holds:
        prefix = f"{message}.  " if message else ""
        what = tuple(wanted) if default_name == "assert_rank_in" else wanted[0]
        raise ValueError(f"{prefix}Tensor {x.name} must have {wording} {what}.  Received rank {rank}, shape {x.shape}")


def _condition(relation: str, x: Tensor, ranks: list[Tensor], known: list[Any]) -> Tensor:
    actual = raw_ops.Rank(x)
    condition = None
    for rank, value in zip(ranks, known):
        holds = raw_ops.named(relation)(actual, rank)
        condition = holds if condition is None else compare.logical_or(condition, holds)
        if value is None:
            check = assert_rank(rank, 0, data=["Rank must be a scalar. Received rank: ", rank])
            condition = with_dependencies([check], condition)
    return constant(False) if condition is None else condition


@export("tf.assert_scalar", "tf.debugging.assert_scalar")
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """``tensor``, if its static shape is that of a scalar (``tf.assert_scalar``).

    Raises:
      ValueError: when it is not.
    """
    with name_scope(name, "assert_scalar", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name=scope)
        if tensor.raw_shape != ():
            prefix = f"{message}  " if message else ""
            raise ValueError(f"{prefix}Expected scalar shape for {tensor.name}, saw shape: {tensor.shape}.")
        return tensor  # type: ignore[no-any-return]
