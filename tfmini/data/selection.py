"""Selection of elements (``tf.data.experimental``): by a choice, by chance, by a predicate; and sparse batches.

Each function stands below its op and the op's stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.data.components import SparseValue
from tfmini.data.dataset import Dataset
from tfmini.data.dataset_arguments import int64
from tfmini.data.dataset_ops import TYPES, dataset_op, stages_of
from tfmini.data.function_stages import ON, PREDICATE
from tfmini.data.pipeline import Element, Function, Source, Stage
from tfmini.data.pipeline import Transformation as Stages
from tfmini.data.reading import TURN
from tfmini.data.stages import Batch
from tfmini.data.structure import Leaf, Structure
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.ops.array.constant import constant
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.math.unary import log
from tfmini.ops.random.functions import multinomial
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.shapes import as_raw, compatible_raw

Transformation = Callable[[Dataset], Dataset]


directed_interleave_dataset = dataset_op(
    "DirectedInterleaveDataset",
    "selector_input_dataset: variant, data_input_datasets: N * variant",
    f"{TYPES}; N: int >= 1; stop_on_empty_dataset: bool = false",
)


@stages_of(directed_interleave_dataset, attrs=["stop_on_empty_dataset"])
@dataclass(eq=False)
class _Directed(Stages):
    """Yields from the dataset whose index comes from upstream; exhausted datasets are skipped."""

    data_input_datasets: list[Source]
    stop_on_empty_dataset: bool

    def __post_init__(self) -> None:
        self._stages: list[Stage | None] = [source.open(self.reading) for source in self.data_input_datasets]

    def __next__(self) -> Element:
        while any(stage is not None for stage in self._stages):
            self.reading.check()
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
                if self.stop_on_empty_dataset:
                    raise
        raise StopIteration

    def close(self) -> None:
        for stage in self._stages:
            if stage is not None:
                stage.close()
        super().close()


def _directed(selector: Dataset, datasets: Sequence[Dataset]) -> Dataset:
    structure = datasets[0]._structure
    for i, dataset in enumerate(datasets[1:], 1):
        if dataset.output_types != datasets[0].output_types or dataset.output_classes != datasets[0].output_classes:
            raise TypeError(
                f"Datasets to combine must have compatible types. datasets[0]: {datasets[0]!r}; datasets[{i}]:"
                f" {dataset!r}."
            )
        structure = structure.common(dataset._structure)
    variants = [dataset._variant_tensor for dataset in datasets]
    return selector._then(directed_interleave_dataset, variants, structure=structure)


@export("tf.contrib.data.choose_from_datasets", "tf.data.experimental.choose_from_datasets")
def choose_from_datasets(datasets: Sequence[Dataset], choice_dataset: Dataset) -> Dataset:
    """Elements of several datasets, in the order that ``choice_dataset`` gives.

    Args:
      datasets: datasets whose elements have the same structure; exhausted datasets are skipped.
      choice_dataset: int64 scalars, from 0 to ``len(datasets) - 1``.

    Raises:
      TypeError: when choices are not int64 scalars, or the types of the datasets differ.
    """
    if not choice_dataset._structure.is_scalar(dtypes.int64):
        raise TypeError("`choice_dataset` must be a dataset of scalar `tf.int64` tensors.")
    return _directed(choice_dataset, datasets)


@export("tf.contrib.data.sample_from_datasets", "tf.data.experimental.sample_from_datasets")
def sample_from_datasets(datasets: Sequence[Dataset], weights: Any = None, seed: Any = None) -> Dataset:
    """Elements of several datasets in random order.

    Args:
      datasets: datasets whose elements have the same structure; exhausted datasets are skipped.
      weights: the datasets' probabilities, a vector of floats or a dataset of such vectors; default: uniform.
      seed: seed of the random choice.

    Raises:
      TypeError: when weights are not floats, or the types of the datasets differ.
      ValueError: when the number of weights is not that of the datasets.
    """
    if isinstance(weights, Dataset):
        choices = weights.map(lambda *p: _drawn(log(p[0]), seed))
        return _directed(choices, datasets)
    if weights is None:
        logits: Any = constant(np.ones(len(datasets), np.float32))
    else:
        given = convert_to_tensor(weights, name="weights")
        if given.dtype.base_dtype not in (dtypes.float32, dtypes.float64):
            raise TypeError("`weights` must be convertible to a tensor of `tf.float32` or `tf.float64` elements.")
        if not compatible_raw(given.raw_shape, (len(datasets),)):
            raise ValueError("`weights` must be a vector of length `len(datasets)`.")
        logits = log(given, name="logits")
    if len(datasets) == 1:
        return datasets[0]
    return _directed(Dataset.range(2**63 - 1).map(lambda _: _drawn(logits, seed)), datasets)


def _drawn(logits: Any, seed: Any) -> Any:
    return multinomial(expand_dims(logits, 0), 1, seed=seed)[0, 0]


take_while_dataset = dataset_op("TakeWhileDataset", ON, PREDICATE)
unique_dataset = dataset_op("UniqueDataset", "input_dataset: variant")
dense_to_sparse_batch_dataset = dataset_op(
    "DenseToSparseBatchDataset", "input_dataset: variant, batch_size: int64, row_shape: int64"
)


@stages_of(take_while_dataset)
@dataclass(eq=False)
class _TakeWhile(Stages):
    """The elements before the first for which ``predicate`` is false."""

    predicate: Function
    _over: bool = field(default=False, init=False)

    def __next__(self) -> Element:
        if not self._over:
            element = next(self.upstream)
            (keep,) = self.predicate(self.reading, *element)
            if keep:
                return element
            self._over = True
        raise StopIteration


@export("tf.contrib.data.take_while", "tf.data.experimental.take_while")
def take_while(predicate: Callable[..., Any]) -> Transformation:
    """The elements before the first for which ``predicate`` is False.

    Raises:
      ValueError: when it does not return a scalar bool.
    """

    def transform(dataset: Dataset) -> Dataset:
        traced = dataset._trace_predicate(predicate, "take_while")
        return dataset._then(take_while_dataset, traced.captures, predicate=traced.body)

    return transform


@stages_of(unique_dataset)
@dataclass(eq=False)
class _Unique(Stages):
    """Drops the elements that occurred before."""

    _seen: set[Any] = field(default_factory=set, init=False)

    def __next__(self) -> Element:
        for element in self.upstream:
            self.reading.check()
            value = element[0] if isinstance(element[0], bytes) else element[0].tobytes()
            if value not in self._seen:
                self._seen.add(value)
                return element
        raise StopIteration


@export("tf.contrib.data.unique", "tf.data.experimental.unique")
def unique() -> Transformation:
    """Drops the elements that occurred before.

    Raises:
      TypeError: for elements that are not single int32, int64 or string tensors.
    """

    def transform(dataset: Dataset) -> Dataset:
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype not in (dtypes.int32, dtypes.int64, dtypes.string):
            raise TypeError("`tf.data.experimental.unique()` only supports inputs with a single `tf.int32`, `tf.int64`,"
                            " or `tf.string` component.")  # fmt: skip
        return dataset._then(unique_dataset)

    return transform


@stages_of(dense_to_sparse_batch_dataset, vectors=["row_shape"])
@dataclass(eq=False)
class _SparseBatch(Stages):
    """Batches dense elements of different sizes into sparse tensors."""

    batch_size: int
    row_shape: Any
    check = Batch.check

    def __post_init__(self) -> None:
        self._row_shape = [int(d) for d in np.atleast_1d(self.row_shape)]

    def __next__(self) -> Element:
        rows = []
        for (row,) in itertools.islice(self.upstream, self.batch_size):
            rows.append(np.asarray(row))
            if not len(rows) % TURN:
                self.reading.check()
        if not rows:
            raise StopIteration
        shape = np.array([len(rows), *self._row_shape], np.int64)
        for row in rows:
            self._check_row(row)
            for axis, extent in enumerate(row.shape):
                if self._row_shape[axis] < 0:
                    shape[axis + 1] = max(shape[axis + 1], extent)
        indices = [np.insert(np.indices(row.shape).reshape(row.ndim, -1).T, 0, i, axis=1) for i, row in enumerate(rows)]
        values = np.concatenate([row.ravel() for row in rows])
        return (SparseValue(np.concatenate(indices).astype(np.int64), values, shape),)

    def _check_row(self, row: Any) -> None:
        if row.ndim != len(self._row_shape):
            raise errors.InvalidArgumentError.of(
                f"Input element had shape ({list(row.shape)}) that is incompatible with the row shape"
                f" ({self._row_shape})."
            )
        for extent, limit in zip(row.shape, self._row_shape):
            if 0 <= limit < extent:
                text = f"Input element had shape ({list(row.shape)}) that is larger than the row shape."
                raise errors.DataLossError.of(text)


@export("tf.contrib.data.dense_to_sparse_batch", "tf.data.experimental.dense_to_sparse_batch")
def dense_to_sparse_batch(batch_size: Any, row_shape: Any) -> Transformation:
    """Batches elements of different sizes into sparse tensors.

    Args:
      batch_size: number of elements in a batch.
      row_shape: the dense shape of one element; None for the largest in the batch.

    Raises:
      TypeError: for elements that are not single dense tensors.
    """

    def transform(dataset: Dataset) -> Dataset:
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.kind is not Tensor:
            raise TypeError("DenseToSparseDataset requires an input whose elements are single dense tensors.")
        raw = as_raw([None if d == -1 else d for d in row_shape] if isinstance(row_shape, (list, tuple)) else row_shape)
        assert raw is not None
        vector = constant(np.array([-1 if d is None else d for d in raw], np.int64))
        structure = Structure(Leaf(SparseTensor, leaf.dtype, (None, *raw)))
        return dataset._then(
            dense_to_sparse_batch_dataset, int64(batch_size, "batch_size"), vector, structure=structure
        )

    return transform
