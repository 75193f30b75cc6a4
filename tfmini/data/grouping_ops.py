"""Dataset ops that group elements by a key."""

from __future__ import annotations

from typing import Any

from tfmini.data import grouping_stages
from tfmini.data.dataset_ops import TYPES, dataset_op
from tfmini.data.pipeline import Source, compiled
from tfmini.graph.node import FunctionBody


def _functions(*names: str) -> tuple[str, str]:
    """Inputs and attrs of an op with several functions: each function with the values that it captures."""
    inputs = ", ".join(f"{name}_other_arguments: T{name}_other_arguments" for name in names)
    attrs = "; ".join(f"{name}: func; T{name}_other_arguments: list(type) >= 0" for name in names)
    return f"input_dataset: variant, {inputs}", f"{attrs}; {TYPES}"


group_by_window_dataset = dataset_op(
    "GroupByWindowDataset", *_functions("key_func", "reduce_func", "window_size_func")
)
group_by_reducer_dataset = dataset_op(
    "GroupByReducerDataset", *_functions("key_func", "init_func", "reduce_func", "finalize_func")
)


@group_by_window_dataset.kernel("CPU")
def _group_by_window(
    source: Source, of_key: list[Any], of_reduce: list[Any], of_size: list[Any], *, key_func: FunctionBody,
    reduce_func: FunctionBody, window_size_func: FunctionBody, resources: Any,
) -> Source:  # fmt: skip
    return grouping_stages.group_by_window(
        source, compiled(key_func, resources, of_key), compiled(reduce_func, resources, of_reduce),
        compiled(window_size_func, resources, of_size),
    )  # fmt: skip


@group_by_reducer_dataset.kernel("CPU")
def _group_by_reducer(
    source: Source, of_key: list[Any], of_init: list[Any], of_reduce: list[Any], of_finalize: list[Any], *,
    key_func: FunctionBody, init_func: FunctionBody, reduce_func: FunctionBody, finalize_func: FunctionBody,
    resources: Any,
) -> Source:  # fmt: skip
    return grouping_stages.group_by_reducer(
        source, compiled(key_func, resources, of_key), compiled(init_func, resources, of_init),
        compiled(reduce_func, resources, of_reduce), compiled(finalize_func, resources, of_finalize),
    )  # fmt: skip
