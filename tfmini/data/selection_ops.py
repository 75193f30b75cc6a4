"""Dataset ops that select elements: directed interleave, take_while and unique; and sparse batches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.components import SparseValue
from tfmini.data.dataset_ops import TYPES, dataset_op
from tfmini.data.pipeline import Element, Function, Source, Stage, Transformation, TransformedSource, compiled
from tfmini.data.reading import TURN, Reading
from tfmini.graph.node import FunctionBody

directed_interleave_dataset = dataset_op(
    "DirectedInterleaveDataset",
    "selector_input_dataset: variant, data_input_datasets: N * variant",
    f"{TYPES}; N: int >= 1; stop_on_empty_dataset: bool = false",
)
take_while_dataset = dataset_op(
    "TakeWhileDataset",
    "input_dataset: variant, other_arguments: Targuments",
    f"predicate: func; Targuments: list(type) >= 0; {TYPES}",
)
unique_dataset = dataset_op("UniqueDataset", "input_dataset: variant")
unique_dataset.kernel("CPU")(lambda source: TransformedSource(source, _Unique))
dense_to_sparse_batch_dataset = dataset_op(
    "DenseToSparseBatchDataset", "input_dataset: variant, batch_size: int64, row_shape: int64"
)


class _Directed(Transformation):
    """Yields from the dataset whose index comes from upstream; exhausted datasets are skipped."""

    def __init__(self, upstream: Stage, reading: Reading, sources: list[Source], stop_on_empty: bool) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._stages: list[Stage | None] = [source.open(reading) for source in sources]
        self._stop_on_empty = stop_on_empty

    def __next__(self) -> Element:
        while any(stage is not None for stage in self._stages):
            self._reading.check()
            number = int(next(self.upstream)[0])
            if not 0 <= number < len(self._stages):
                text = f"Selector index out of range: {number} >= {len(self._stages)}"
                raise errors.InvalidArgumentError.of(text)
            stage = self._stages[number]
            if stage is None:
                continue
            try:
                return next(stage)
            except StopIteration:
                stage.close()
                self._stages[number] = None
                if self._stop_on_empty:
                    raise
        raise StopIteration

    def close(self) -> None:
        for stage in self._stages:
            if stage is not None:
                stage.close()
        super().close()


@directed_interleave_dataset.kernel("CPU")
def _directed(selector: Source, sources: list[Source], *, stop_on_empty_dataset: bool) -> Source:
    return TransformedSource(
        selector, lambda upstream, reading: _Directed(upstream, reading, list(sources), stop_on_empty_dataset)
    )


class _TakeWhile(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, predicate: Function) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._predicate = predicate
        self._over = False

    def __next__(self) -> Element:
        if not self._over:
            element = next(self.upstream)
            (keep,) = self._predicate(self._reading, *element)
            if keep:
                return element
            self._over = True
        raise StopIteration


@take_while_dataset.kernel("CPU")
def _take_while(source: Source, captured: list[Any], *, predicate: FunctionBody, resources: Any) -> Source:
    function = compiled(predicate, resources, captured)
    return TransformedSource(source, lambda upstream, reading: _TakeWhile(upstream, reading, function))


class _Unique(Transformation):
    def __init__(self, upstream: Stage, reading: Reading) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._seen: set[Any] = set()

    def __next__(self) -> Element:
        for element in self.upstream:
            self._reading.check()
            value = element[0] if isinstance(element[0], bytes) else element[0].tobytes()
            if value not in self._seen:
                self._seen.add(value)
                return element
        raise StopIteration


class _SparseBatch(Transformation):
    """Batches dense elements of different sizes into sparse tensors."""

    def __init__(self, upstream: Stage, reading: Reading, size: int, row_shape: Any) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._size = size
        self._row_shape = [int(d) for d in row_shape]

    def __next__(self) -> Element:
        rows = []
        for (row,) in itertools.islice(self.upstream, self._size):
            rows.append(np.asarray(row))
            if not len(rows) % TURN:
                self._reading.check()
        if not rows:
            raise StopIteration
        shape = np.array([len(rows), *self._row_shape], np.int64)
        for row in rows:
            self._check(row)
            for axis, extent in enumerate(row.shape):
                if self._row_shape[axis] < 0:
                    shape[axis + 1] = max(shape[axis + 1], extent)
        indices = [np.insert(np.indices(row.shape).reshape(row.ndim, -1).T, 0, i, axis=1) for i, row in enumerate(rows)]
        values = np.concatenate([row.ravel() for row in rows])
        return (SparseValue(np.concatenate(indices).astype(np.int64), values, shape),)

    def _check(self, row: Any) -> None:
        if row.ndim != len(self._row_shape):
            raise errors.InvalidArgumentError.of(
                f"Input element had shape ({list(row.shape)}) that is incompatible with the row shape"
                f" ({self._row_shape})."
            )
        for extent, limit in zip(row.shape, self._row_shape):
            if 0 <= limit < extent:
                text = f"Input element had shape ({list(row.shape)}) that is larger than the row shape."
                raise errors.DataLossError.of(text)


@dense_to_sparse_batch_dataset.kernel("CPU")
def _dense_to_sparse_batch(source: Source, size: Any, row_shape: Any) -> Source:
    if size <= 0:
        raise errors.InvalidArgumentError.of("Batch size must be greater than zero.")
    shape = np.atleast_1d(row_shape)
    return TransformedSource(source, lambda upstream, reading: _SparseBatch(upstream, reading, int(size), shape))
