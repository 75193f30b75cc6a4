"""`tf.EmbeddingTable`: a table that grows, in a `ParameterStore`, for numpy programs.

::

    with tf.ParameterStore(task, optimizer=tf.train.AdagradOptimizer(0.1)) as store:
        users = tf.EmbeddingTable(store, "users", 16)
        rows = users.pull(ids)
        users.push(ids, gradients)

Each parameter server has a part of it, with the ids of one remainder. A call is one step, with one message to each
parameter server and one back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, DTypeLike
from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import device, name_scope
from tfmini.ops.array.identity import placeholder
from tfmini.ops.growing import ops
from tfmini.ops.growing.options import EmbeddingVariableOption
from tfmini.ops.growing.variable import EmbeddingVariable, get_embedding_variable
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing.graph_files import load_checkpoint
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.store.arrays import alone, fitted
from tfmini.train.store.parameter_store import ParameterStore


class _Part:
    """The part of a table on one task, and the ops that read and change it."""

    def __init__(self, variable: EmbeddingVariable, store: ParameterStore) -> None:
        self.variable = variable
        self.ids = placeholder(dtypes.int64, [None], "ids")
        self.rows = placeholder(variable.dtype, [None, variable.embedding_dim], "rows")
        self.optimizer = None if store._optimizer is None else alone(store._optimizer)
        self.first = ops.initialize(
            variable.handle, variable.initial_value, variable.unadmitted, only_once=True, name="InitializeOnce"
        )
        self.found = {insert: variable.sparse_read(self.ids, insert=insert) for insert in (True, False)}
        with name_scope(f"{variable.op.name}/push/"):  # so that all stores give the same names
            self.update: Operation = self._update()
        self.size, self.content = variable.size(), variable.export()

    def _update(self) -> Operation:
        if self.optimizer is None:
            return self.variable.scatter_rows("add", self.ids, self.rows, False, None)
        return self.optimizer.apply_gradients([(IndexedSlices(self.rows, self.ids), self.variable)])

    def scalars(self) -> dict[str, Variable]:
        """What the optimizer keeps beside the slots, by the names that a graph gives it."""
        return {} if self.optimizer is None else dict(self.optimizer._named_non_slot_variables())


@export("tf.EmbeddingTable")
class EmbeddingTable:
    """A table of rows by int64 ids that grows, in a `ParameterStore`; see the module. Any thread may call it.

    All stores of a cluster that give a name mean the same table. The store's optimizer makes updates of gradients;
    without one, what is pushed is added. A bound of staleness does not count pushes of tables.

    Args:
      store: where it stands.
      name: as of a variable.
      dim: the numbers in a row.
      dtype: float32 or float64.
      init: of new rows: an initializer, a number, an array or a function; default: a truncated normal with a standard
        deviation of 1, which is much for embeddings. See `InitializerOption`.
      option: which ids get rows and which rows go; see `EmbeddingVariableOption`. `GlobalStepEvict` is not possible,
        since a store has no global step.

    Raises:
      InvalidArgumentError: there is a table of that name with other settings.
      ValueError: the store has something of that name already, or the option is not possible.
    """

    def __init__(
        self, store: ParameterStore, name: str, dim: int, dtype: DTypeLike = dtypes.float32, init: Any = None,
        option: EmbeddingVariableOption | None = None,
    ) -> None:  # fmt: skip
        self.name, self.dim, self._dtype, self._store = name, dim, dtypes.as_dtype(dtype), store
        if option is not None and not isinstance(option, EmbeddingVariableOption):
            raise TypeError(f"option is an EmbeddingVariableOption, such as EmbeddingVariableOption({option!r}).")
        if option is not None and option.settings(name, dim, init).steps_to_live:
            raise ValueError(f"The rows of table '{name}' can have no age: a ParameterStore has no global step.")
        with store._adding(name, "table"):
            settings = dim, self._dtype, (option or EmbeddingVariableOption()).settings(name, dim, init)
            made = store._added_tables.get(name)
            if made is None:
                made = store._added_tables[name] = settings, *self._build(init, option)
            # Else the first step of another try has failed: the graph has the table from now on.
            known, table, parts = made
            self._parts: list[_Part] = parts
            if name in store._tables or known != settings:
                raise ValueError(f"Table {name} already exists in this store.")
            self._table = {name: table}
            self._saver = Saver({**self._table, **self.scalars()}, max_to_keep=None)
            kept = [v for part in self._parts if part.optimizer is not None for v in part.optimizer.variables()]
        store.session.run([part.first for part in self._parts])
        if kept:
            store._initialize(kept, {})
        with store._lock:
            store._tables[name], store._saver = self, None
        feeds = [part.ids for part in self._parts]
        self._finds = {
            insert: store.session.make_callable([part.found[insert] for part in self._parts], feeds)
            for insert in (True, False)
        }
        pushed = [tensor for part in self._parts for tensor in (part.ids, part.rows)]
        self._pushes = store.session.make_callable([part.update for part in self._parts], pushed)

    def _build(self, init: Any, option: EmbeddingVariableOption | None) -> tuple[Any, list[_Part]]:
        """Adds the table to the store's graph, a part on each of its tasks."""
        tasks = self._store.tasks
        with device(_Spread(tasks)):
            table = get_embedding_variable(
                self.name, self.dim, value_dtype=self._dtype, initializer=init, trainable=False, ev_option=option,
                partitioner=lambda **_: [len(tasks), 1],
            )  # fmt: skip
        return table, [_Part(part, self._store) for part in ([table] if len(tasks) == 1 else table)]

    def pull(self, ids: Any, insert: bool = True) -> Array:
        """The rows of ids: their shape and ``dim``. The array cannot be written.

        Args:
          ids: integers of any shape.
          insert: whether unknown ids get rows, and lookups count; False: an unknown id has the row that it would get.
        """
        flat, masks = self._split(ids)
        values = self._finds[insert](*[flat[mask] for mask in masks])
        out = np.empty((len(flat), self.dim), self._dtype.numpy)
        for mask, value in zip(masks, values):
            out[mask] = value
        out.flags.writeable = False
        return out.reshape(*np.shape(ids), self.dim)

    def push(self, ids: Any, gradients: Any) -> None:
        """Lets the optimizer apply gradients, which have the shape of the rows of ``ids``; those of an id are added up.

        Those of an id without a row are dropped: `pull` gives it one, unless the option does not admit it.

        Raises:
          InvalidArgumentError: the shapes or the numbers do not fit.
        """
        flat, masks = self._split(ids)
        rows = fitted(gradients, self._dtype, self)
        if rows.shape != (*np.shape(ids), self.dim):
            text = f"Gradients of shape {rows.shape} for ids of shape {np.shape(ids)} are none of {self}."
            raise errors.InvalidArgumentError.of(text)
        rows = rows.reshape(-1, self.dim)
        self._pushes(*[array[mask] for mask in masks for array in (flat, rows)])

    def _split(self, ids: Any) -> tuple[Array, list[Array]]:
        """The ids as a vector, and which of them each part has."""
        found = np.asarray(ids) if np.size(ids) else np.empty(0, np.int64)
        if found.dtype.kind not in "iu":
            raise errors.InvalidArgumentError.of(f"The ids of {self} are integers; got {found.dtype}.")
        if found.dtype == np.uint64 and (found > np.iinfo(np.int64).max).any():
            raise errors.InvalidArgumentError.of(
                f"The ids of {self} are int64; {found.max()} is none: use ids.view(np.int64)."
            )
        flat = found.astype(np.int64, copy=False).ravel()
        owners = flat % len(self._parts)
        return flat, [owners == part for part in range(len(self._parts))]

    def __len__(self) -> int:
        return int(sum(self._store.session.run([part.size for part in self._parts])))

    def export(self) -> tuple[Array, Array]:
        """All ids, int64 [n], and their rows, [n, dim]."""
        found = self._store.session.run([part.content[:2] for part in self._parts])
        return np.concatenate([keys for keys, _ in found]), np.concatenate([rows for _, rows in found])

    def scalars(self) -> dict[str, Variable]:
        """What the optimizer keeps beside the slots, by the names that a graph gives it.

        Each push changes it in all parts alike, so these are those of one part.
        """
        return self._parts[0].scalars()

    def saved(self) -> dict[str, Any]:
        """Name in a checkpoint of the store -> the table, or what its optimizer keeps beside the slots."""
        return {**self._table, **{self._scalar_name(name): each for name, each in self.scalars().items()}}

    def _scalar_name(self, name: str) -> str:
        return f"{self.name}/push/{name}"

    def save(self, path: str) -> str:
        """Writes a checkpoint of the table, with the slots, which a `tf.train.Saver` can restore; returns its path.

        `ParameterStore.save` writes the tables of a store, too. What the optimizer keeps beside the slots, such as
        Adam's ``beta1_power``, has the name that graphs give it.
        """
        return str(self._saver.save(self._store.session, path, write_meta_graph=False))

    def restore(self, path: str) -> None:
        """Reads a checkpoint with a table of this name, in any number of parts.

        What the checkpoint lacks of the optimizer stays as it is.

        Raises:
          NotFoundError: there is none, or it lacks the table.
        """
        stored = load_checkpoint(path).get_variable_to_shape_map()
        with self._store._building():
            savers = [Saver(each, max_to_keep=None) for each in self._restored(stored)]
        for saver in savers:
            saver.restore(self._store.session, path)

    def _restored(self, stored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The table, and what a checkpoint with these names has of what the optimizers of the parts keep."""
        yield self._table
        for part in self._parts:
            for name, variable in part.scalars().items():
                own = self._scalar_name(name)  # before those of other tables and arrays
                if found := own if own in stored else name if name in stored else "":
                    yield {found: variable}

    def __repr__(self) -> str:
        return f"table '{self.name}' ({self._dtype.name}, rows of {self.dim})"


class _Spread:
    """A device function: each table, or part of one, to the next task."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks, self._next = tasks, 0

    def __call__(self, op: Any) -> str:
        if op.type != "KvVarHandleOp":
            return op.device or ""
        task = self._tasks[self._next % len(self._tasks)]
        self._next += 1
        return task
