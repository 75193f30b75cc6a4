"""Reading checkpoints without a graph: ``tf.train.NewCheckpointReader``, ``load_variable``, ``list_variables``."""

from __future__ import annotations

from typing import Any

from tfmini import protos
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.ops.io.checkpoint_v1 import open_checkpoint
from tfmini.train.checkpointing.state_file import checkpoint_file


class CheckpointReader:
    """Reads the tensors of a checkpoint (made by ``tf.train.NewCheckpointReader``).

    Args:
      filepattern: the checkpoint's prefix.

    Raises:
      NotFoundError: when there is no such checkpoint.
      DataLossError: when its index is truncated or corrupt.
    """

    def __init__(self, filepattern: str) -> None:
        self._reader = open_checkpoint(filepattern)

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether the checkpoint has a tensor of that name."""
        return tensor_str in self._reader

    def get_tensor(self, tensor_str: str) -> Any:
        """The value of a tensor; a partitioned tensor is returned as a whole.

        Raises:
          NotFoundError: when there is no tensor of that name.
          DataLossError: when its data are truncated or corrupt.
        """
        value = self._reader.read(tensor_str)
        return value if value.ndim else value[()]

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Name of a tensor -> shape."""
        return {name: list(self._reader.entry(name).shape) for name in self._reader.names()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Name of a tensor -> element type."""
        return {name: self._reader.entry(name).dtype for name in self._reader.names()}

    def debug_string(self) -> bytes:
        """A line per stored tensor or slice: name, type and shape."""
        lines = []
        for key, entry in self._reader.stored():
            kind = protos.DataType.Name(entry.dtype.as_datatype_enum)
            lines.append(b"%s (%s) [%s]\n" % (key, kind.encode(), ",".join(map(str, entry.shape)).encode()))
        return b"".join(lines)


@export("tf.train.NewCheckpointReader")
def NewCheckpointReader(filepattern: Any) -> CheckpointReader:  # noqa: N802 - TensorFlow's name
    """Opens a checkpoint (``tf.train.NewCheckpointReader``); for errors see `CheckpointReader`."""
    return CheckpointReader(filepattern.decode() if isinstance(filepattern, bytes) else str(filepattern))


@export("tf.train.load_checkpoint", "tf.contrib.framework.load_checkpoint")
def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """Opens a checkpoint, or the newest one of a directory (``tf.train.load_checkpoint``).

    Raises:
      ValueError: when the directory has no checkpoint.
      NotFoundError, DataLossError: see `CheckpointReader`.
    """
    return CheckpointReader(checkpoint_file(ckpt_dir_or_file))


@export("tf.train.load_variable", "tf.contrib.framework.load_variable")
def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """The value of a variable (``tf.train.load_variable``); errors as in `load_checkpoint` and ``get_tensor``."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


@export("tf.train.list_variables", "tf.contrib.framework.list_variables")
def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Pairs (name, shape) of a checkpoint's variables, sorted by name (``tf.train.list_variables``)."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())
