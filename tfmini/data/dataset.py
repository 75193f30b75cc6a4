"""``tf.data.Dataset``: pipelines of elements as graph ops."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from glob import glob
from typing import Any

from tfmini import dtypes, errors
from tfmini.checkpoint.files import local_path
from tfmini.core_types import TensorLike
from tfmini.data import dataset_ops as ops
from tfmini.data import function_stages, stages
from tfmini.data.function_graph import Traced, ancestors_body, trace
from tfmini.data.iterator import IteratedSource, Iterator, initializable, one_shot
from tfmini.data.pipeline import components_of, element_of
from tfmini.data.prefetching import element_reader
from tfmini.data.structure import (
    ElementLike,
    Leaf,
    Nested,
    Options,
    ShapesLike,
    Structure,
    TypesLike,
    boolean,
    check_first_dimensions,
    given_structure,
    int64,
    normalize,
    normalized_state,
    paddings,
    same_types,
    spec_of,
    static_batch,
    structure_of,
    structure_of_specs,
)
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import OpHandle, Tensor, control_dependencies, convert_to_tensor, get_default_graph
from tfmini.graph.scoping import count_ops, get_seed, name_scope
from tfmini.ops import debugging, string_ops
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.composites import SparseTensor, TensorSpec, TypeSpec, register_type_spec_from_value_converter
from tfmini.ops.io import files as file_ops
from tfmini.ops.math import comparison as math_comparison
from tfmini.ops.math import elementwise as math_elementwise
from tfmini.ops.py_func import functions
from tfmini.out_of_scope import Advising
from tfmini.shapes import TensorShape

_INT64_MAX = 2**63 - 1

_log = logging.getLogger("tensorflow")


@export("tf.data.Dataset", "tf.contrib.data.Dataset")
class Dataset(Advising, IteratedSource):
    """A sequence of elements with one nested structure (``tf.data.Dataset``).

    Args:
      variant_tensor: the variant scalar that holds the dataset.
      structure: the structure of the elements.

    A function given to a method is traced once. The task that holds the iterator runs it for every element.
    """

    def __init__(self, variant_tensor: Tensor, structure: Structure) -> None:
        self._variant_tensor = variant_tensor
        self._structure = structure
        self._options = Options()
        vars(variant_tensor.op).setdefault("_dataset", self)

    def _inputs(self) -> list[Dataset]:
        """The datasets that this one reads, as far as they are datasets of this graph."""
        variants = [t for t in self._variant_tensor.op.inputs if t.dtype.base_dtype is dtypes.variant]
        found = [vars(t.op).get("_dataset") for t in variants]
        return [dataset for dataset in found if dataset is not None]

    @classmethod
    def _of(cls, variant_tensor: Tensor, structure: Structure) -> Dataset:
        return Dataset(variant_tensor, structure)

    @property
    def _leaf_class(self) -> type:
        return Dataset

    @staticmethod
    def _spec(structure: Structure) -> DatasetSpec:
        return DatasetSpec(structure.map(spec_of))

    def _then(
        self, handle: OpHandle, *inputs: TensorLike, structure: Structure | None = None, name: str | None = None,
        **attrs: object,
    ) -> Dataset:  # fmt: skip
        """Applies a dataset op to this dataset."""
        made = _dataset(handle, self._variant_tensor, *inputs, structure=structure or self._structure, **attrs)
        made._options = self._options
        return made

    def _trace(self, function: Callable[..., Any], name: str) -> Traced:
        return trace(function, [self._structure], name)

    def _trace_predicate(self, predicate: Callable[..., Any], name: str) -> Traced:
        traced = self._trace(predicate, name)
        if not traced.structure.is_scalar(dtypes.bool):
            raise ValueError("`predicate` must return a scalar boolean tensor.")
        return traced

    # ---- sources ------------------------------------------------------------------------------

    @staticmethod
    def from_tensors(tensors: ElementLike) -> Dataset:
        """A dataset with one element, ``tensors``."""
        value = normalize(tensors)
        structure = structure_of(value)
        return Dataset(ops.tensor_dataset(components_of(value), output_shapes=structure.shapes), structure)

    @staticmethod
    def from_tensor_slices(tensors: ElementLike) -> Dataset:
        """The rows of ``tensors`` along their first dimension, which must be the same for all.

        Args:
          tensors: a tensor, array or list, or a nested structure of these.

        Raises:
          ValueError: for scalars and for first dimensions that differ statically.
        """
        value = normalize(tensors)
        whole = structure_of(value)
        check_first_dimensions(whole)
        structure = whole.rows()
        return Dataset(ops.tensor_slice_dataset(components_of(value), output_shapes=structure.shapes), structure)

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: SparseTensor) -> Dataset:
        """The rows of a sparse tensor as tuples (indices, values, dense shape); see `from_tensor_slices`."""
        if not isinstance(sparse_tensor, SparseTensor):
            raise TypeError(f"`sparse_tensor` must be a `tf.SparseTensor` object. Was {sparse_tensor}.")
        rows = Dataset.from_tensor_slices(sparse_tensor)
        return rows.map(lambda row: (row.indices, row.values, row.dense_shape))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any], output_types: TypesLike, output_shapes: ShapesLike | None = None,
        args: Sequence[TensorLike] | None = None,
    ) -> Dataset:  # fmt: skip
        """The elements that a Python generator yields; it runs in the process that builds the graph.

        Args:
          generator: called with ``args`` (as arrays) whenever the dataset is read from its beginning.
          output_types: nested structure of the dtypes of an element.
          output_shapes: nested structure of static shapes; None for unknown ones.

        Raises:
          TypeError: when ``generator`` is not callable.
        """
        if not callable(generator):
            raise TypeError("`generator` must be callable.")
        structure = given_structure(output_types, output_shapes)
        token = functions.insert(element_reader(generator, structure), get_default_graph())
        inputs = [convert_to_tensor(value) for value in args or ()]
        count_ops(2)
        return _dataset(ops.generator_dataset, inputs, structure=structure, token=token, name="GeneratorDataset")

    @staticmethod
    def range(*args: TensorLike) -> Dataset:
        """``range(stop)``, ``range(start, stop)`` or ``range(start, stop, step)`` as int64 scalars."""
        if not 1 <= len(args) <= 3:
            raise ValueError(f"Invalid arguments to RangeDataset: {args}")
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        bounds = [int64(value, label) for value, label in ((start, "start"), (stop, "stop"), (step, "step"))]
        structure = Structure(Leaf(Tensor, dtypes.int64, ()))
        return _dataset(ops.range_dataset, *bounds, structure=structure)

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Elements of several datasets side by side, in the structure of ``datasets``; ends with the shortest."""
        flat = nest.flatten(datasets)
        text = "The argument to `Dataset.zip()` must be a nested structure of `Dataset` objects."
        if isinstance(datasets, list):
            raise TypeError(f"{text} Nested structures do not support Python lists; please use a tuple instead.")
        if not all(isinstance(dataset, Dataset) for dataset in flat):
            raise TypeError(text)
        structure = Structure(nest.map_structure(lambda d: d._structure.skeleton, datasets))
        made = _dataset(ops.zip_dataset, [d._variant_tensor for d in flat], structure=structure)
        for dataset in flat:
            made._options = made._options.merge(dataset._options)
        return made

    @staticmethod
    def list_files(file_pattern: TensorLike, shuffle: bool | None = None, seed: TensorLike | None = None) -> Dataset:
        """The names of the files that match one or more patterns, shuffled unless ``shuffle`` is False.

        Running it raises `InvalidArgumentError` when nothing matches.

        Args:
          file_pattern: glob patterns, a string or a string tensor.
          shuffle: None: yes.
          seed: of the order.
        """
        files = matching_files(file_pattern)
        count_ops(2)
        dataset = Dataset.from_tensor_slices(files)
        if shuffle is None or shuffle:
            size = math_elementwise.maximum(array_shape.size(files, out_type=dtypes.int64), 1)
            dataset = dataset.shuffle(size, seed=seed)
        return dataset

    # ---- functions ----------------------------------------------------------------------------

    def map(self, map_func: Callable[..., Any], num_parallel_calls: TensorLike | None = None) -> Dataset:
        """``map_func`` of each element, with up to ``num_parallel_calls`` concurrent calls; the order is kept."""
        traced = self._trace(map_func, "map")
        if num_parallel_calls is None:
            return self._then(function_stages.map_dataset, traced.captures, f=traced.body, structure=traced.structure)
        calls = convert_to_tensor(num_parallel_calls, dtype=dtypes.int32, name="num_parallel_calls")
        handle = function_stages.parallel_map_dataset
        return self._then(handle, traced.captures, calls, f=traced.body, structure=traced.structure)

    def map_with_legacy_function(
        self, map_func: Callable[..., Any], num_parallel_calls: TensorLike | None = None
    ) -> Dataset:
        """The same as `map`."""
        return self.map(map_func, num_parallel_calls)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which ``predicate`` returns True.

        Raises:
          ValueError: when it does not return a scalar bool.
        """
        traced = self._trace_predicate(predicate, "filter")
        return self._then(function_stages.filter_dataset, traced.captures, predicate=traced.body)

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> Dataset:
        """The same as `filter`."""
        return self.filter(predicate)

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """The datasets that ``map_func`` returns, one after the other.

        Raises:
          TypeError: when ``map_func`` returns no dataset.
        """
        traced, inner = self._trace_datasets(map_func, "flat_map")
        return self._then(function_stages.flat_map_dataset, traced.captures, f=traced.body, structure=inner)

    def interleave(
        self, map_func: Callable[..., Any], cycle_length: TensorLike = -1, block_length: TensorLike = 1,
        num_parallel_calls: TensorLike | None = None,
    ) -> Dataset:  # fmt: skip
        """``block_length`` elements at a time from ``cycle_length`` of the datasets that ``map_func`` returns.

        A ``cycle_length`` of -1 (``tf.data.experimental.AUTOTUNE``) is the number of the machine's cores.

        Raises:
          TypeError: when ``map_func`` returns no dataset.
        """
        traced, inner = self._trace_datasets(map_func, "interleave")
        cycle, block = int64(cycle_length, "cycle_length"), int64(block_length, "block_length")
        if num_parallel_calls is None:
            handle = function_stages.interleave_dataset
            return self._then(handle, traced.captures, cycle, block, f=traced.body, structure=inner)
        calls, handle = int64(num_parallel_calls, "num_parallel_calls"), function_stages.parallel_interleave_dataset
        return self._then(handle, traced.captures, cycle, block, calls, f=traced.body, structure=inner)

    def _trace_datasets(self, function: Callable[..., Any], name: str) -> tuple[Traced, Structure]:
        traced = self._trace(function, name)
        leaf = traced.structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.inner is None:
            raise TypeError("`map_func` must return a `Dataset` object.")
        return traced, leaf.inner

    def reduce(
        self, initial_state: ElementLike, reduce_func: Callable[[Any, Any], Any],
    ) -> Any:  # fmt: skip
        """The final state, as tensors, after ``reduce_func(state, element)`` ran for every element.

        Raises:
          TypeError: when the state that ``reduce_func`` returns has other types.
          InvalidArgumentError: when it has another number of components. (TensorFlow's step tells it.)
        """
        state = normalized_state(initial_state)
        begin = structure_of(state)
        traced = trace(reduce_func, [begin, self._structure], "reduce", unpack=False)
        counts = len(begin.leaves), len(traced.structure.leaves)
        if counts[0] != counts[1]:
            raise errors.InvalidArgumentError.of(
                "The number of components of the initial state and the reduce function output does not match."
                f" (initial_state={counts[0]}, output={counts[1]})."
            )
        structure = same_types(begin, Structure(begin.pack(traced.structure.leaves)), "reduce_func")
        if structure != begin:  # trace again, with the dimensions that change unknown from the start
            traced = trace(reduce_func, [structure, self._structure], "reduce", unpack=False)
        components = function_stages.reduce_dataset(
            self._variant_tensor, components_of(state), traced.captures, f=traced.body, **structure.attrs
        )
        return element_of(structure, components)

    def apply(self, transformation_func: Callable[[Dataset], Any]) -> Any:
        """``transformation_func`` of this dataset.

        Raises:
          TypeError: when it returns no dataset.
        """
        made = transformation_func(self)
        if not isinstance(made, Dataset):
            raise TypeError(f"`transformation_func` must return a Dataset. Got {made}.")
        return made

    # ---- selection and order ------------------------------------------------------------------

    def concatenate(self, dataset: Dataset) -> Dataset:
        """The elements of this dataset, then those of ``dataset``.

        Raises:
          TypeError: when types or classes differ.
        """
        for what in ("types", "classes"):
            mine, theirs = getattr(self, f"output_{what}"), getattr(dataset, f"output_{what}")
            if mine != theirs:
                raise TypeError(f"Two datasets to concatenate have different {what} {mine} and {theirs}")
        structure = self._structure.common(dataset._structure)
        made = self._then(ops.concatenate_dataset, dataset._variant_tensor, structure=structure)
        made._options = made._options.merge(dataset._options)
        return made

    def repeat(self, count: TensorLike | None = None) -> Dataset:
        """Repeats the elements ``count`` times; without end for None or -1."""
        return self._then(stages.repeat_dataset, int64(-1 if count is None else count, "count"))

    def take(self, count: TensorLike) -> Dataset:
        """The first ``count`` elements; all of them for -1."""
        return self._then(stages.take_dataset, int64(count, "count"))

    def skip(self, count: TensorLike) -> Dataset:
        """All but the first ``count`` elements; none for -1."""
        return self._then(stages.skip_dataset, int64(count, "count"))

    def shard(self, num_shards: TensorLike, index: TensorLike) -> Dataset:
        """Every ``num_shards``-th element, starting at ``index``: one worker's share.

        Reading it raises `InvalidArgumentError` for an ``index`` out of range.
        """
        return self._then(stages.shard_dataset, int64(num_shards, "num_shards"), int64(index, "index"))

    def enumerate(self, start: Any = 0) -> Dataset:
        """Pairs (number, element); the int64 numbers begin at ``start``."""
        return Dataset.zip((Dataset.range(start, _INT64_MAX), self))

    def shuffle(
        self, buffer_size: TensorLike, seed: Any = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """Elements drawn at random from a buffer of ``buffer_size``.

        Args:
          seed: fixes the order, together with the graph's seed.
          reshuffle_each_iteration: draw a new order for each repetition; default True.
        """
        reshuffle = True if reshuffle_each_iteration is None else reshuffle_each_iteration
        size = int64(buffer_size, "buffer_size")
        return self._then(stages.shuffle_dataset, size, *_seeds(seed), reshuffle_each_iteration=reshuffle)

    def cache(self, filename: str = "") -> Dataset:
        """Keeps the elements of the first complete pass, in memory or in files with the prefix ``filename``."""
        return self._then(stages.cache_dataset, convert_to_tensor(filename, dtype=dtypes.string, name="filename"))

    def prefetch(self, buffer_size: TensorLike) -> Dataset:
        """Reads up to ``buffer_size`` elements ahead in a background thread."""
        return self._then(stages.prefetch_dataset, int64(-1 if buffer_size is None else buffer_size, "buffer_size"))

    # ---- batches ------------------------------------------------------------------------------

    def batch(self, batch_size: TensorLike, drop_remainder: TensorLike = False) -> Dataset:
        """Stacks ``batch_size`` elements at a time; ``drop_remainder`` drops a smaller last batch."""
        size, drop = int64(batch_size, "batch_size"), boolean(drop_remainder, "drop_remainder")
        structure = self._structure.batched(static_batch(size, drop))
        return self._then(stages.batch_dataset, size, drop, structure=structure)

    def padded_batch(
        self, batch_size: TensorLike, padded_shapes: ShapesLike,
        padding_values: TensorLike | Nested | None = None,
        drop_remainder: TensorLike = False,
    ) -> Dataset:  # fmt: skip
        """Batches of elements of different sizes, each padded to one shape.

        Args:
          padded_shapes: a shape or int64 vector per leaf; None or -1 means the largest size in the batch.
          padding_values: a scalar per leaf; default 0 or "".

        Raises:
          TypeError: when elements are not dense, or when a padding value has another type than its leaf.
          ValueError: when a padded shape is smaller than the elements or has another rank.
        """
        size, drop = int64(batch_size, "batch_size"), boolean(drop_remainder, "drop_remainder")
        shapes, values, padded = paddings(self._structure, padded_shapes, padding_values)
        structure = padded.batched(static_batch(size, drop))
        made = stages.padded_batch_dataset(
            self._variant_tensor, size, shapes, values, drop, output_shapes=structure.shapes
        )
        return Dataset(made, structure)

    def window(
        self, size: TensorLike, shift: TensorLike | None = None, stride: TensorLike = 1,
        drop_remainder: TensorLike = False,
    ) -> Dataset:  # fmt: skip
        """Windows of ``size`` elements that begin ``shift`` (default: ``size``) apart; each leaf becomes a dataset."""
        step = size if shift is None else shift
        numbers = [int64(value, label) for value, label in ((size, "size"), (step, "shift"), (stride, "stride"))]
        skeleton = self._structure.map(lambda leaf: Leaf(Dataset, None, (), Structure(leaf)))
        drop = boolean(drop_remainder, "drop_remainder")
        return self._then(stages.window_dataset, *numbers, drop, structure=Structure(skeleton))

    def unbatch(self) -> Dataset:
        """The rows of the elements, the inverse of `batch`.

        Raises:
          ValueError: for scalars and for first dimensions that differ statically.
        """
        check_first_dimensions(self._structure)
        structure = self._structure.rows()
        count_ops(1)
        return self._then(stages.unbatch_dataset, structure=structure)

    # ---- iterators and options ----------------------------------------------------------------

    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that needs no initializer and reads the dataset once.

        Raises:
          ValueError: when the dataset uses placeholders, variables or tables.
        """
        if self._variant_tensor.graph is not get_default_graph():
            _log.warning(
                "The dataset is of another graph than the iterator. Please ensure that all datasets in the pipeline are"
                " created in the same graph as the iterator."
            )
        return one_shot(ancestors_body(self._variant_tensor, "_make_dataset"), self._structure)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator that starts from the beginning whenever its ``initializer`` runs."""
        return initializable(self, shared_name)

    def options(self) -> Options:
        """The options of this dataset and of those that it reads (``tf.data.Options``)."""
        return self._options

    def with_options(self, options: Options) -> Dataset:
        """The same dataset with ``options`` merged into its own."""
        made = Dataset(self._variant_tensor, self._structure)
        made._options = self._options.merge(options)
        return made

    def __iter__(self) -> Any:
        raise RuntimeError(
            "__iter__() is only supported inside of tf.function or when eager execution is enabled. Run"
            " dataset.make_one_shot_iterator().get_next() until tf.errors.OutOfRangeError."
        )

    def __repr__(self) -> str:
        shapes = str(self.output_shapes)
        return f"<{type(self).__name__} shapes: {shapes}, types: {self.output_types}>"


def _seeds(seed: TensorLike | None) -> tuple[Tensor, Tensor]:
    """The two seeds of a dataset op, int64 scalars; the ops that make them are as many as TensorFlow's."""
    first, second = get_seed(seed)  # type: ignore[arg-type]  # a tensor, too
    seed_1 = int64(0 if first is None else first, "seed")
    if second is None:
        return seed_1, int64(0, "seed2")
    with name_scope("seed2") as scope:
        seed_2 = int64(second, "seed2")
        both_zero = math_comparison.logical_and(math_comparison.equal(seed_1, 0), math_comparison.equal(seed_2, 0))
        return seed_1, math_comparison.where(both_zero, constant(2**31 - 1, dtypes.int64), seed_2, name=scope)


@export("tf.data.experimental.to_variant")
def to_variant(dataset: Dataset) -> Tensor:
    """The variant scalar that holds a dataset (``tf.data.experimental.to_variant``)."""
    return dataset._variant_tensor


@export("tf.data.experimental.from_variant")
def from_variant(variant: Tensor, structure: Any) -> Dataset:
    """The dataset that a variant scalar holds; ``structure`` has the specs of its elements."""
    return Dataset(variant, structure_of_specs(structure))


@export("tf.contrib.data.RandomDataset", "tf.data.experimental.RandomDataset")
class RandomDataset(Dataset):
    """Pseudorandom int64 numbers in [0, 2**32), without end (``tf.data.experimental.RandomDataset``)."""

    def __init__(self, seed: TensorLike | None = None) -> None:
        structure = Structure(Leaf(Tensor, dtypes.int64, ()))
        super().__init__(stages.random_dataset(*_seeds(seed), **structure.attrs), structure)


def _dataset(handle: OpHandle, *inputs: TensorLike, structure: Structure, **attrs: object) -> Dataset:
    """Applies an op that takes ``output_types`` and ``output_shapes``."""
    made = handle(*inputs, **structure.attrs, **attrs)
    return Dataset(made, structure)


@export("tf.data.DatasetSpec", "tf.data.experimental.DatasetStructure")
class DatasetSpec(TypeSpec):
    """The specs of the elements of a dataset that is a value itself (``tf.data.DatasetSpec``).

    Args:
      element_spec: nested specs of an element.
      dataset_shape: must be ().
    """

    value_type = Dataset

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        self._element_spec = element_spec
        self._dataset_shape = TensorShape(dataset_shape)

    @staticmethod
    def from_value(value: Dataset) -> DatasetSpec:
        """The spec of a dataset."""
        return DatasetSpec(value.element_spec)

    def _leaf(self) -> Leaf:
        return Leaf(Dataset, None, (), structure_of_specs(self._element_spec))

    @property
    def _component_specs(self) -> list[TensorSpec]:
        return [TensorSpec(self._dataset_shape, dtypes.variant)]

    def _to_components(self, value: Dataset) -> list[Tensor]:
        return [value._variant_tensor]

    def _from_components(self, components: Any) -> Dataset:
        return Dataset(components[0], structure_of_specs(self._element_spec))

    def _serialize(self) -> tuple[Any, ...]:
        return self._element_spec, self._dataset_shape


register_type_spec_from_value_converter(Dataset, DatasetSpec.from_value)


# ---- Lookup of the files that match a pattern, in a step or at once ------------------------------------------------


def matching_files(file_pattern: TensorLike) -> Tensor:
    """The sorted names, a string vector, of the files that match one or more patterns when a step runs.

    Running it raises `InvalidArgumentError` when nothing matches.
    """
    pattern = convert_to_tensor(file_pattern, dtype=dtypes.string, name="file_pattern")
    files = file_ops.matching_files(pattern)
    found = math_comparison.greater(array_shape.shape(files)[0], 0, name="match_not_empty")
    patterns = string_ops.reduce_join(array_shape.reshape(pattern, [-1]), separator=", ", name="message")
    message = string_ops.string_join(["No files matched pattern: ", patterns])
    with control_dependencies([debugging.Assert(found, [message], summarize=1, name="assert_not_empty")]):
        return array_identity.identity(files)


def matching_names(file_pattern: object) -> list[str]:
    """The sorted names of the files that match one or more patterns now.

    Raises:
      ValueError: when nothing matches.
    """
    patterns = list(file_pattern) if isinstance(file_pattern, (list, tuple)) else [file_pattern]
    if not patterns:
        raise ValueError("File pattern is empty.")
    found = ((local_path(str(pattern)), str(pattern)) for pattern in patterns)
    names = sorted(whole.removesuffix(path) + name for path, whole in found for name in glob(path))
    if not names:
        raise ValueError(f"No files match {file_pattern}.")
    return names
