"""`TensorArrayState`: the state behind a TensorArray handle while a step runs.

The handle is the state itself, so it lives as long as a value of the step refers to it. Each execution
of a TensorArrayV3 node, in each iteration of a loop, has its own state.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tfmini.dtypes import DType
from tfmini.machine_memory import check_room
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, compatible_raw, format_raw

_ENTRY_BYTES = 16  # of an element that has not been written


class TensorArrayState:
    """Write-once elements of one type; in a gradient array, writes to one element are added up.

    Args:
      name: for error messages.
      dtype: of the elements.
      size: the initial number of elements.
      element_shape: of every element, as far as it is known.
      dynamic: a write beyond the end makes the array longer.
      clear_after_read: an element is freed by its first read, and then cannot be read again.
      identical_shapes: all elements have the shape of the first one written.
      is_gradient: writes to one index add up, and elements that were never written read as zeros.
    """

    __slots__ = ("name", "dtype", "values", "shapes", "cleared", "was_read", "element_shape", "dynamic",
                 "clear_after_read", "identical_shapes", "is_gradient", "gradients", "closed")  # fmt: skip

    def __init__(
        self, name: str, dtype: DType, size: int, element_shape: RawShape, dynamic: bool, clear_after_read: bool,
        identical_shapes: bool, is_gradient: bool = False,
    ) -> None:  # fmt: skip
        check_room((size,), _ENTRY_BYTES)
        self.name = name
        self.dtype = dtype
        # Per index: the value, or None (never written, cleared, or a gradient's implied zeros).
        self.values: list[Any] = [None] * size
        # Per index: the shape, once it is known; that is so for all written elements.
        self.shapes: list[tuple[int, ...] | None] = [None] * size
        self.cleared: set[int] = set()
        self.was_read: set[int] = set()
        self.element_shape = element_shape
        self.dynamic = dynamic
        self.clear_after_read = clear_after_read
        self.identical_shapes = identical_shapes
        self.is_gradient = is_gradient
        self.gradients: dict[bytes, TensorArrayState] = {}
        self.closed = False

    def write(self, index: int, value: Any) -> None:
        """Stores one element.

        Raises:
          InvalidArgumentError: for an index or shape that does not fit, a second write, or a write
            after the read.
        """
        self._check_open()
        count = len(self.values)
        if not 0 <= index < count:
            if index < 0 or not self.dynamic:
                self._refuse(f"Tried to write to index {index} but array is not resizeable and size is: {count}")
            grown = index + 1 - count
            check_room((grown,), _ENTRY_BYTES)
            self.values.extend([None] * grown)
            self.shapes.extend([None] * grown)
        shape: tuple[int, ...] = () if type(value) is bytes else value.shape
        if self.element_shape != shape:
            self._meet_shape(index, shape)
        if index in self.was_read:
            self._refuse(f"Could not write to TensorArray index {index} because it has already been read.")
        if self.shapes[index] is None:
            self.shapes[index] = shape
            self.values[index] = value
        elif self.is_gradient:
            self._add(index, value, shape)
        else:
            self._refuse(f"Could not write to TensorArray index {index} because it has already been written to.")

    def _meet_shape(self, index: int, shape: tuple[int, ...]) -> None:
        if not compatible_raw(self.element_shape, shape):
            self._refuse(
                f"Could not write to TensorArray index {index} because the value shape is {format_raw(shape)} which is"
                f" incompatible with the TensorArray's inferred element shape: {format_raw(self.element_shape)}"
                " (consider setting infer_shape=False)."
            )
        if self.identical_shapes:
            self.element_shape = shape

    def _add(self, index: int, value: Any, shape: tuple[int, ...]) -> None:
        known = self.shapes[index]
        if known != shape:
            self._refuse(
                f"Could not aggregate to TensorArray index {index} because the existing shape is {format_raw(known)}"
                f" but the new input shape is {format_raw(shape)}."
            )
        before = self.values[index]
        self.values[index] = value if before is None else np.add(before, value)

    def read(self, index: int) -> Any:
        """One element; zeros of the element shape where nothing was written.

        Raises:
          InvalidArgumentError: for an index beyond the end, a second read of a cleared element, or
            an element that was not written and whose shape is not known.
        """
        self._check_open()
        if not 0 <= index < len(self.values):
            refuse(f"Tried to read from index {index} but array size is: {len(self.values)}")
        value = self.values[index]
        if value is None:
            value = self._zeros(index)
        self.was_read.add(index)
        if self.clear_after_read:
            self.values[index] = None
            self.cleared.add(index)
        return value

    def _zeros(self, index: int) -> Any:
        if index in self.cleared:
            self._refuse(
                f"Could not read index {index} twice because it was cleared after a previous read (perhaps try"
                " setting clear_after_read = false?)."
            )
        shape: Any = self.shapes[index]
        if shape is None:
            shape = known = self.element_shape
            if known is None or None in known:
                self._refuse(
                    f"Could not read from TensorArray index {index}.  Furthermore, the element shape is not fully"
                    f" defined: {format_raw(known)}.  It is possible you are working with a resizeable TensorArray and"
                    " stop_gradients is not allowing the gradients to be written.  If you set the full element_shape"
                    " property on the forward TensorArray, the proper all-zeros tensor will be returned instead of"
                    " incurring this error."
                )
        if self.dtype.name == "string":
            refuse(f"tensor_array::TensorSetZero type not supported: {self.dtype.name}")
        return np.zeros(shape, self.dtype.numpy)[()]

    def gradient(self, source: bytes, prepended: tuple[int, ...] = ()) -> TensorArrayState:
        """The array of the elements' gradients for one call of ``tf.gradients``.

        Args:
          source: identifies that call.
          prepended: the leading sizes that the gradients have in addition to those of the elements.
        """
        found = self.gradients.get(source)
        if found is None:
            # The gradient's size is this array's, which must not change any more.
            self.dynamic = False
            shape = None if self.element_shape is None else (*prepended, *self.element_shape)
            found = TensorArrayState(
                f"{self.name}@{source.decode(errors='replace')}", self.dtype, len(self.values), shape, False, True,
                self.identical_shapes, is_gradient=True,
            )  # fmt: skip
            found.shapes = [None if s is None else (*prepended, *s) for s in self.shapes]
            self.gradients[source] = found
        return found

    def close(self) -> None:
        """Frees the elements; the array cannot be used afterwards."""
        self.closed = True
        self.values.clear()
        self.shapes.clear()

    def _check_open(self) -> None:
        if self.closed:
            self._refuse(f"{self.name} has already been closed.", prefix="TensorArray ")

    def _refuse(self, text: str, prefix: str | None = None) -> NoReturn:
        start = f"TensorArray {self.name}: " if prefix is None else prefix
        refuse(start + text)
