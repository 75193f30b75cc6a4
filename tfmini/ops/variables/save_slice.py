"""`SaveSliceInfo`: the place of a part in a partitioned variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini import protos
from tfmini.graph.scoped_names import prepend_name_scope, strip_name_scope


class SaveSliceInfo:
    """The place of a part in its whole variable (``tf.Variable.SaveSliceInfo``).

    Args:
      full_name: the name of the whole variable.
      full_shape: its shape.
      var_offset: the start of the part, per axis.
      var_shape: the shape of the part.
      save_slice_info_def: a proto, instead of all other arguments.
      import_scope: the name scope that is put before the proto's name.
    """

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: Sequence[int] | None = None,
        var_offset: Sequence[int] | None = None,
        var_shape: Sequence[int] | None = None,
        save_slice_info_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        source = save_slice_info_def
        if source is not None:
            full_name = prepend_name_scope(source.full_name, import_scope)
            full_shape, var_offset, var_shape = source.full_shape, source.var_offset, source.var_shape
        self.full_name = full_name or ""
        self.full_shape = list(full_shape or ())
        self.var_offset = list(var_offset or ())
        self.var_shape = list(var_shape or ())

    @property
    def spec(self) -> str:
        """The slice in the format of checkpoints: full shape, then ``offset,length`` per axis."""
        extents = ":".join(f"{offset},{size}" for offset, size in zip(self.var_offset, self.var_shape))
        return f"{' '.join(map(str, self.full_shape))} {extents}"

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The slice as a SaveSliceInfoDef; None when it is outside of ``export_scope``."""
        if export_scope is not None and not self.full_name.startswith(export_scope):
            return None
        return protos.SaveSliceInfoDef(
            full_name=strip_name_scope(self.full_name, export_scope),
            full_shape=self.full_shape,
            var_offset=self.var_offset,
            var_shape=self.var_shape,
        )
