"""``tf.data.Dataset``: pipelines of elements as graph ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.data import dataset_ops as ops
from tfmini.data import function_ops
from tfmini.data.dataset_arguments import (
    boolean,
    check_first_dimensions,
    int64,
    padded_shape,
    padding_value,
    same_types,
    static_batch,
)
from tfmini.data.file_patterns import matching_files
from tfmini.data.function_graph import Traced, ancestors_body, trace
from tfmini.data.generators import element_reader
from tfmini.data.iterator import Iterator, initializable, one_shot
from tfmini.data.options import Options
from tfmini.data.sparse_values import component_of, value_of
from tfmini.data.structure import (
    Leaf,
    Structure,
    Structured,
    given_structure,
    normalize,
    shape_leaves,
    structure_of,
)
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.registry import OpHandle
from tfmini.ops import array_shape, math_elementwise
from tfmini.ops.scoping import get_seed
from tfmini.ops.script import functions

_INT64_MAX = 2**63 - 1


class Dataset(Structured):
    """A sequence of elements with one nested structure (``tf.data.Dataset``).

    Args:
      variant_tensor: the scalar that holds the dataset.
      structure: of the elements.

    Functions given to methods are traced once and run for every element in the task that has the iterator.
    """

    def __init__(self, variant_tensor: Tensor, structure: Structure) -> None:
        self._variant_tensor = variant_tensor
        self._structure = structure
        self._options = Options()

    @classmethod
    def _of(cls, variant_tensor: Tensor, structure: Structure) -> Dataset:
        return Dataset(variant_tensor, structure)

    @property
    def _leaf_class(self) -> type:
        return Dataset

    def _then(
        self, handle: OpHandle, *inputs: Any, structure: Structure | None = None, name: str | None = None, **attrs: Any
    ) -> Dataset:
        """The dataset that an op makes of this one."""
        made = _dataset(handle, self._variant_tensor, *inputs, structure=structure or self._structure, **attrs)
        made._options = self._options
        return made

    def _trace(self, function: Callable[..., Any], name: str) -> Traced:
        return trace(function, [self._structure], name)

    # ---- sources ------------------------------------------------------------------------------

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """One element: ``tensors``."""
        value = normalize(tensors)
        structure = structure_of(value)
        components = [component_of(leaf) for leaf in nest.flatten(value)]
        shapes = structure.shapes
        return Dataset(ops.tensor_dataset(components, output_shapes=shapes), structure)

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """The rows of ``tensors`` along their first dimension, which must agree.

        Raises:
          ValueError: for scalars and for first dimensions that differ statically.
        """
        value = normalize(tensors)
        whole = structure_of(value)
        check_first_dimensions(whole)
        structure = whole.with_shapes(lambda shape: None if shape is None else shape[1:])
        components = [component_of(leaf) for leaf in nest.flatten(value)]
        shapes = structure.shapes
        return Dataset(ops.tensor_slice_dataset(components, output_shapes=shapes), structure)

    @staticmethod
    def from_generator(
        generator: Callable[..., Any], output_types: Any, output_shapes: Any = None, args: Any = None
    ) -> Dataset:
        """What a Python generator yields; it runs in the process that builds the graph.

        Args:
          generator: called with ``args`` (as arrays) whenever the dataset is read from its beginning.
          output_types: nested structure of the dtypes it yields.
          output_shapes: nested structure of static shapes; None for unknown ones.

        Raises:
          TypeError: when ``generator`` is not callable.
        """
        if not callable(generator):
            raise TypeError("`generator` must be callable.")
        structure = given_structure(output_types, output_shapes)
        token = functions.insert(element_reader(generator, structure), get_default_graph())
        inputs = [convert_to_tensor(value) for value in args or ()]
        return _dataset(ops.generator_dataset, inputs, structure=structure, token=token, name="GeneratorDataset")

    @staticmethod
    def range(*args: Any) -> Dataset:
        """``range(stop)``, ``range(start, stop)`` or ``range(start, stop, step)`` as int64 scalars."""
        if not 1 <= len(args) <= 3:
            raise ValueError(f"Invalid arguments to RangeDataset: {args}")
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        bounds = [int64(value, label) for value, label in ((start, "start"), (stop, "stop"), (step, "step"))]
        structure = Structure(Leaf(Tensor, dtypes.int64, ()))
        return _dataset(ops.range_dataset, *bounds, structure=structure)

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Elements side by side, in the nested structure of ``datasets``, until the shortest ends."""
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
    def list_files(file_pattern: Any, shuffle: bool | None = None, seed: Any = None) -> Dataset:
        """The names of the files that match one or several patterns, shuffled unless ``shuffle`` is False.

        Running it raises `InvalidArgumentError` when nothing matches.
        """
        files = matching_files(file_pattern)
        dataset = Dataset.from_tensor_slices(files)
        if shuffle is None or shuffle:
            size = math_elementwise.maximum(array_shape.size(files, out_type=dtypes.int64), 1)
            dataset = dataset.shuffle(size, seed=seed)
        return dataset

    # ---- functions ----------------------------------------------------------------------------

    def map(self, map_func: Callable[..., Any], num_parallel_calls: Any = None) -> Dataset:
        """``map_func`` of each element, with ``num_parallel_calls`` under way at a time; the order stays."""
        traced = self._trace(map_func, "map")
        if num_parallel_calls is None:
            return self._then(function_ops.map_dataset, traced.captures, f=traced.body, structure=traced.structure)
        calls = convert_to_tensor(num_parallel_calls, dtype=dtypes.int32, name="num_parallel_calls")
        handle = function_ops.parallel_map_dataset
        return self._then(handle, traced.captures, calls, f=traced.body, structure=traced.structure)

    def map_with_legacy_function(self, map_func: Callable[..., Any], num_parallel_calls: Any = None) -> Dataset:
        """`map`."""
        return self.map(map_func, num_parallel_calls)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which ``predicate`` gives True.

        Raises:
          ValueError: when it does not return a scalar bool.
        """
        traced = self._trace(predicate, "filter")
        leaf = traced.structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype is not dtypes.bool or leaf.shape not in (None, ()):
            raise ValueError("`predicate` must return a scalar boolean tensor.")
        return self._then(function_ops.filter_dataset, traced.captures, predicate=traced.body)

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> Dataset:
        """`filter`."""
        return self.filter(predicate)

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """The datasets that ``map_func`` returns, one after the other.

        Raises:
          TypeError: when it returns something else.
        """
        traced, inner = self._trace_datasets(map_func, "flat_map")
        return self._then(function_ops.flat_map_dataset, traced.captures, f=traced.body, structure=inner)

    def interleave(
        self, map_func: Callable[..., Any], cycle_length: Any, block_length: Any = 1, num_parallel_calls: Any = None
    ) -> Dataset:
        """``block_length`` elements at a time from ``cycle_length`` of the datasets that ``map_func`` returns.

        Raises:
          TypeError: when it returns something else.
        """
        traced, inner = self._trace_datasets(map_func, "interleave")
        cycle, block = int64(cycle_length, "cycle_length"), int64(block_length, "block_length")
        handle = function_ops.interleave_dataset
        return self._then(handle, traced.captures, cycle, block, f=traced.body, structure=inner)

    def _trace_datasets(self, function: Callable[..., Any], name: str) -> tuple[Traced, Structure]:
        traced = self._trace(function, name)
        leaf = traced.structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.inner is None:
            raise TypeError("`map_func` must return a `Dataset` object.")
        return traced, leaf.inner

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """The state after ``reduce_func(state, element)`` has seen all elements: tensors, not a dataset.

        Raises:
          TypeError: when the state that ``reduce_func`` returns has other types or another structure.
        """
        state = normalize(initial_state)
        begin = structure_of(state)
        traced = trace(reduce_func, [begin, self._structure], "reduce", unpack=False)
        structure = same_types(begin, traced.structure, "reduce_func")
        if structure != begin:  # a shape that changes is unknown in the second call already
            traced = trace(reduce_func, [structure, self._structure], "reduce", unpack=False)
        initial = [component_of(leaf) for leaf in nest.flatten(state)]
        components = function_ops.reduce_dataset(
            self._variant_tensor, initial, traced.captures, f=traced.body,
            output_types=structure.dtypes, output_shapes=structure.shapes,
        )  # fmt: skip
        return structure.pack([value_of(leaf, c) for leaf, c in zip(structure.leaves, components)])

    def apply(self, transformation_func: Callable[[Dataset], Any]) -> Any:
        """``transformation_func`` of this dataset.

        Raises:
          TypeError: when it returns no dataset.
        """
        made = transformation_func(self)
        if not isinstance(made, Dataset):
            raise TypeError(f"`transformation_func` must return a Dataset. Got {made}.")
        return made

    # ---- which elements, and in which order ---------------------------------------------------

    def concatenate(self, dataset: Dataset) -> Dataset:
        """The elements of this dataset, then those of ``dataset``.

        Raises:
          TypeError: when types or classes differ.
        """
        if self.output_types != dataset.output_types:
            raise TypeError(
                f"Two datasets to concatenate have different types {self.output_types} and {dataset.output_types}"
            )
        if self.output_classes != dataset.output_classes:
            raise TypeError(
                f"Two datasets to concatenate have different classes {self.output_classes} and"
                f" {dataset.output_classes}"
            )
        structure = self._structure.common(dataset._structure)
        made = self._then(ops.concatenate_dataset, dataset._variant_tensor, structure=structure)
        made._options = made._options.merge(dataset._options)
        return made

    def repeat(self, count: Any = None) -> Dataset:
        """The elements ``count`` times over; for ever for None or -1."""
        return self._then(ops.repeat_dataset, int64(-1 if count is None else count, "count"))

    def take(self, count: Any) -> Dataset:
        """The first ``count`` elements; all for -1."""
        return self._then(ops.take_dataset, int64(count, "count"))

    def skip(self, count: Any) -> Dataset:
        """All but the first ``count`` elements; none for -1."""
        return self._then(ops.skip_dataset, int64(count, "count"))

    def shard(self, num_shards: Any, index: Any) -> Dataset:
        """Every ``num_shards``-th element from ``index`` on: a worker's part.

        Reading it raises `InvalidArgumentError` for an ``index`` out of range.
        """
        return self._then(ops.shard_dataset, int64(num_shards, "num_shards"), int64(index, "index"))

    def enumerate(self, start: Any = 0) -> Dataset:
        """Pairs of an int64 number, from ``start`` on, and an element."""
        return Dataset.zip((Dataset.range(start, _INT64_MAX), self))

    def shuffle(self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: bool | None = None) -> Dataset:
        """Elements drawn at random from a buffer of ``buffer_size``.

        Args:
          seed: together with the graph's seed it fixes the order.
          reshuffle_each_iteration: whether each repetition has an order of its own; default True.
        """
        seeds = [int64(value or 0, label) for value, label in zip(get_seed(seed), ("seed", "seed2"))]
        reshuffle = True if reshuffle_each_iteration is None else reshuffle_each_iteration
        size = int64(buffer_size, "buffer_size")
        return self._then(ops.shuffle_dataset, size, *seeds, reshuffle_each_iteration=reshuffle)

    def cache(self, filename: str = "") -> Dataset:
        """Keeps the elements once they have been read to the end: in memory, or in files called ``filename``."""
        return self._then(ops.cache_dataset, convert_to_tensor(filename, dtype=dtypes.string, name="filename"))

    def prefetch(self, buffer_size: Any) -> Dataset:
        """Reads up to ``buffer_size`` elements ahead, in a thread."""
        return self._then(ops.prefetch_dataset, int64(-1 if buffer_size is None else buffer_size, "buffer_size"))

    # ---- batches ------------------------------------------------------------------------------

    def batch(self, batch_size: Any, drop_remainder: Any = False) -> Dataset:
        """Elements stacked in groups of ``batch_size``; a smaller last group is dropped on request."""
        size, drop = int64(batch_size, "batch_size"), boolean(drop_remainder, "drop_remainder")
        structure = self._structure.batched(static_batch(size, drop))
        return self._then(ops.batch_dataset, size, drop, structure=structure)

    def padded_batch(
        self, batch_size: Any, padded_shapes: Any, padding_values: Any = None, drop_remainder: Any = False
    ) -> Dataset:
        """Batches of elements of different sizes.

        Args:
          padded_shapes: per leaf a shape or int64 vector; None or -1 for the largest size in the batch.
          padding_values: per leaf a scalar; default 0 and "".

        Raises:
          TypeError: for elements that are not dense, and padding values of other types.
          ValueError: for shapes that do not fit the elements.
        """
        size, drop = int64(batch_size, "batch_size"), boolean(drop_remainder, "drop_remainder")
        leaves = self._structure.leaves
        if any(leaf.kind is not Tensor for leaf in leaves):
            raise TypeError("Batching of padded sparse tensors is not currently supported")
        wanted = shape_leaves(self._structure, padded_shapes)
        pairs = [padded_shape(shape, leaf) for shape, leaf in zip(wanted, leaves)]
        given = [None] * len(leaves) if padding_values is None else shape_leaves(self._structure, padding_values)
        values = [padding_value(value, leaf) for value, leaf in zip(given, leaves)]
        batch = static_batch(size, drop)
        padded = [
            Leaf(Tensor, leaf.dtype, None if raw is None else (batch, *raw)) for leaf, (_, raw) in zip(leaves, pairs)
        ]
        structure = Structure(self._structure.pack(padded))
        made = ops.padded_batch_dataset(
            self._variant_tensor, size, [tensor for tensor, _ in pairs], values, drop, output_shapes=structure.shapes
        )
        return Dataset(made, structure)

    def window(self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: Any = False) -> Dataset:
        """Windows of elements, ``shift`` (default: ``size``) apart: per leaf a dataset of its values."""
        step = size if shift is None else shift
        numbers = [int64(value, label) for value, label in ((size, "size"), (step, "shift"), (stride, "stride"))]
        skeleton = self._structure.map(lambda leaf: Leaf(Dataset, None, (), Structure(leaf)))
        drop = boolean(drop_remainder, "drop_remainder")
        return self._then(ops.window_dataset, *numbers, drop, structure=Structure(skeleton))

    def unbatch(self) -> Dataset:
        """The rows of the elements, the inverse of `batch`.

        Raises:
          ValueError: for scalars and for first dimensions that differ statically.
        """
        check_first_dimensions(self._structure)
        structure = self._structure.with_shapes(lambda shape: None if shape is None else shape[1:])
        return self._then(ops.unbatch_dataset, structure=structure)

    # ---- iterators and facts ------------------------------------------------------------------

    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that needs no initializer and reads the dataset once.

        Raises:
          ValueError: when the dataset uses placeholders, variables or tables.
        """
        return one_shot(ancestors_body(self._variant_tensor, "_make_dataset"), self._structure)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator that its ``initializer`` starts, as often as it is run."""
        return initializable(self, shared_name)

    def options(self) -> Options:
        """The hints in force (``tf.data.Options``)."""
        return self._options

    def with_options(self, options: Options) -> Dataset:
        """The same dataset with more hints."""
        made = Dataset(self._variant_tensor, self._structure)
        made._options = self._options.merge(options)
        return made

    def __iter__(self) -> Any:
        raise RuntimeError("__iter__() is only supported inside of tf.function or when eager execution is enabled.")

    def __repr__(self) -> str:
        shapes = str(self.output_shapes)
        return f"<{type(self).__name__} shapes: {shapes}, types: {self.output_types}>"


def _dataset(handle: OpHandle, *inputs: Any, structure: Structure, **attrs: Any) -> Dataset:
    """The dataset that an op with ``output_types`` and ``output_shapes`` makes."""
    made = handle(*inputs, output_types=structure.dtypes, output_shapes=structure.shapes, **attrs)
    return Dataset(made, structure)


def make_one_shot_iterator(dataset: Dataset) -> Iterator:
    """`Dataset.make_one_shot_iterator` (``tf.data.make_one_shot_iterator``)."""
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> Iterator:
    """`Dataset.make_initializable_iterator` (``tf.data.make_initializable_iterator``)."""
    return dataset.make_initializable_iterator(shared_name)
