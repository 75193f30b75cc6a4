"""`tf.ParameterStore`: named arrays on parameter servers, for numpy programs that know no graph.

::

    with tf.ParameterStore(task, optimizer=tf.train.AdagradOptimizer(0.1)) as store:
        store.declare("w", [784, 10])
        for x, y in batches:
            w = store.pull("w")
            store.push({"w": gradient(w, x, y)})

Each call is one step of a graph that the store makes: one message to each parameter server and one back. All stores of
a cluster that declare a name mean the same array. An array, or a part of a large one, stands on the parameter server
that follows from its name, so that stores which declare in another order agree. Each part has an optimizer of its own:
what an optimizer keeps for all its variables, such as Adam's powers of beta, counts the updates of that part, and no
parameter server waits for another one.

Where workers wait for each other, state on the tasks decides: `tfmini/ops/queues/rounds.py` for synchronous updates,
`tfmini/ops/queues/clocks.py` for bounded staleness and barriers. `tfmini/train/store/pace.py` has the steps on them.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.cluster import ClusterSpec
from tfmini.core_types import Array, DTypeLike
from tfmini.devices import DeviceSpec
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops.array.identity import identity
from tfmini.ops.control import group, no_op
from tfmini.ops.flow.cond import cond
from tfmini.ops.queues.barrier import CriticalSection
from tfmini.ops.variables.assignment import is_variable_initialized
from tfmini.ops.variables.base import SaveSliceInfo
from tfmini.ops.variables.functions import Variable
from tfmini.runtime.client.session import Session
from tfmini.runtime.process import address_of_target, server_at
from tfmini.train.checkpointing.graph_files import load_checkpoint
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.optimizers.compression import compression_of
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.store.arrays import (
    COMPRESSED,
    ROWS,
    WHOLE,
    ArrayPart,
    Copy,
    DeclaredArray,
    Gradient,
    Init,
    KeptTable,
    Names,
    Pulled,
    Pushed,
    alone,
    check_named,
    init_text,
    initial_value,
    named,
    optimizer_text,
    set_initial,
    warn_of_undeclared,
)
from tfmini.train.store.pace import Clocks, Leaving, Meeting, Rounds, check_pace
from tfmini.train.store.work_queue import Shards, WorkQueue


class _GrowingSession(Session):
    """The session of a graph that grows on purpose, with each array and each set of names; so it does not warn."""

    _closed_text = "This ParameterStore is closed."

    def _note_growth(self, operations: list[Operation]) -> None:
        pass


# ---- the store -----------------------------------------------------------------------------------------------------


@export("tf.ParameterStore")
class ParameterStore:
    """Named arrays on the parameter servers of a cluster; see the module. Any thread may call it.

    Args:
      cluster: a session target, or what has one: a `LocalCluster`, a worker of `LocalCluster.run`, a
        `tf.train.Server`. The arrays stand on the tasks of its job ``ps``, or on the target's if it has none. A worker
        whose process has the target's server talks to each parameter server directly. A `LocalCluster` is its worker 0.
      optimizer: what makes an update of a gradient; None: what is pushed is added.
      staleness: None: nobody waits. ``s`` > 0: `pull` waits while another worker has pushed over ``s`` times less than
        this one. 0: updates are synchronous: a round has a push of each worker, and one update by the mean of their
        gradients, or by their sum without an optimizer. The pushes of a round are of the same arrays.
      backup: with ``staleness=0``: how many workers a round does not wait for. Gradients that come after their round
        are dropped; `late` counts them.
      workers: their number; default: the tasks of the job ``worker``, if this process knows the
        cluster.
      worker: the number of this one; default: of the task that ``cluster`` names.
      partition: into how many parts an array is cut, or a partitioner, such as `tf.min_max_variable_partitioner`,
        that cuts along axis 0.
      compression: of dense gradients, as in `tf.train.CompressedGradientOptimizer`.
      timeout_s: seconds until a call fails with DeadlineExceededError; None: never.

    Attributes:
      session: the session that runs the steps.
      graph: the graph that the store makes.
      tasks: the device names of the tasks that hold arrays.
      worker, workers: as above.

    Raises:
      ValueError: for arguments that make no sense together.
      InvalidArgumentError: with synchronous updates: another store gives another number of workers, or of backups.
    """

    def __init__(
        self, cluster: Any = "", optimizer: Optimizer | None = None, *, staleness: int | None = None, backup: int = 0,
        workers: int | None = None, worker: int | None = None, partition: int | Callable[..., list[int]] = 1,
        compression: str | None = None, timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        target = str(getattr(cluster, "target", cluster) or "")
        self._optimizer, self._partition = optimizer, partition
        self._staleness, self._backup = staleness, backup
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ValueError(f"optimizer must be None or an Optimizer, such as AdagradOptimizer(0.1): {optimizer!r}")
        if not callable(partition) and (not isinstance(partition, (int, np.integer)) or partition < 1):
            raise ValueError(f"partition must be at least 1, or a partitioner: {partition!r}")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s must be None or positive: {timeout_s!r}")
        self._compression = compression_of(compression)
        self._residuals: dict[str, Array] = {}  # what compressed gradients have not sent; by `_in_turn`
        self._in_turn = threading.Lock() if compression else nullcontext()  # a push has the residual of the one before
        self._lock = threading.RLock()  # of the names, and of the graph's scopes; no step runs under it
        self._kinds: dict[str, str] = {}  # what has a name, also where no step has made it yet
        self._arrays: dict[str, DeclaredArray] = {}
        self._added: dict[str, tuple[DeclaredArray, dict[Tensor, Array]]] = {}  # also those that could not be declared
        self._calls: dict[Any, Callable[..., Any]] = {}
        self._entered: list[Clocks] = []
        self._clocks: Clocks | None = None
        self._rounds: Rounds | None = None
        self._meeting: Meeting | None = None
        self._saver: Saver | None = None
        self._shards: dict[str, Shards] = {}
        self._tables: dict[str, KeptTable] = {}  # that grow
        self._added_tables: dict[str, tuple[Any, Any, Any]] = {}  # also those whose first step has failed
        self._leaving = Leaving()
        self.graph = Graph()
        # A worker that has ended or begins again must not hold this one up: only tasks with arrays count.
        config = protos.ConfigProto(device_filters=["/job:ps"])
        config.operation_timeout_in_ms = 0 if timeout_s is None else max(1, int(timeout_s * 1e3))
        self.session = _GrowingSession(target, graph=self.graph, config=config)
        try:
            self._find_workers(cluster, target, workers, worker)
            self._enter()
        except BaseException:  # Ctrl-C too
            self.session.close()
            raise

    def _find_workers(self, cluster: Any, target: str, workers: int | None, worker: int | None) -> None:
        spec = self._cluster_spec(cluster, target)
        self.tasks = self._tasks(spec)
        known = spec.num_tasks("worker") if spec is not None and "worker" in spec.jobs else 1
        self.workers = known if workers is None else workers
        self.worker = _worker_of(cluster, target) if worker is None else worker
        self._knows_workers = spec is not None or (workers is not None and worker is not None) or not target
        check_pace(self._staleness, self._backup, self.workers, self.worker)
        if self._staleness is not None:
            self._needs_workers()

    def _enter(self) -> None:
        """Lets the others wait for this worker."""
        if self._staleness:
            self._clocks, _ = self._clocks_of("store", self._staleness)
        elif self._staleness == 0:
            with self._building():
                rounds = Rounds(self.tasks[0], self.worker, self.workers, self._backup, self._optimizer is None)
            rounds.begin(self._set_up(rounds.enter))
            self._rounds = rounds
        if self._knows_workers and (self._has_ps or self.workers == 1):
            # Now, and not at the first barrier, so that nobody waits there for a worker that ends before it.
            clocks, ended = self._clocks_of("barrier", 0)
            with self._building(), device(self.tasks[0]):
                self._meeting = Meeting(clocks)
            self._meeting.ended = ended

    def _clocks_of(self, name: str, staleness: int) -> tuple[Clocks, int]:
        """The clocks of that name, which this worker has entered, and the rounds that it has ended."""
        with self._building(), device(self.tasks[0]):
            found = Clocks(f"parameter_store/{name}", self.worker, self.workers, staleness)
        ended = self._set_up(found.enter)
        self._entered.append(found)
        return found, int(ended or 0)

    @property
    def _has_ps(self) -> bool:
        return self.tasks[0].startswith("/job:ps/")

    def _tasks(self, spec: ClusterSpec | None) -> list[str]:
        if spec is not None and "ps" in spec.jobs:
            return [f"/job:ps/task:{index}" for index in spec.task_indices("ps")]
        found = [DeviceSpec.from_string(each.name) for each in self._devices()]
        ps = sorted({each.task or 0 for each in found if each.job == "ps"})
        return [f"/job:ps/task:{index}" for index in ps] or [f"/job:{found[0].job}/task:{found[0].task}"]

    def _needs_workers(self) -> None:
        if not self._knows_workers:
            raise ValueError("Say workers= and worker=: this target does not tell how many workers there are.")
        if self.workers > 1 and not self._has_ps:
            raise ValueError("Workers that wait for each other need a ps: without one, each has arrays of its own.")

    @contextmanager
    def _building(self) -> Iterator[None]:
        if self.session._closed:
            raise RuntimeError(self.session._closed_text)
        with self._lock, self.graph.as_default():
            yield

    @contextmanager
    def _adding(self, name: str, kind: str) -> Iterator[None]:
        """A block that adds ops of that kind of thing, which then has the name: a checkpoint would hold one of two."""
        with self._building():
            if self._kinds.get(name, kind) != kind or name in self._shards:  # which are made once
                raise ValueError(f"This store has something else by the name of '{name}'.")
            yield
            self._kinds[name] = kind

    # What asks the cluster. The inspector has its own answers, for it runs nothing.

    def _cluster_spec(self, cluster: Any, target: str) -> ClusterSpec | None:
        """All tasks, if something of this process tells them."""
        known: ClusterSpec | None = getattr(cluster, "cluster_spec", None)
        if known is None and (definition := _definition_at(target)) is not None:
            return ClusterSpec(definition.cluster)
        return known

    def _devices(self) -> Sequence[Any]:
        return self.session.list_devices()

    def _set_up(self, fetches: Any, feeds: dict[Tensor, Array] | None = None) -> Any:
        return self.session.run(fetches, feeds)

    def _answers(
        self, call: Callable[..., Any], feeds: Sequence[Any], pushes: bool, pulled: Sequence[tuple[DeclaredArray, Any]]
    ) -> Sequence[Any]:
        """The values of the parts of all ``pulled`` (array, ids)."""
        if pushes and self._rounds is not None:
            return self._rounds.take_part(self.session, call, feeds)
        values: Sequence[Any] = call(*feeds)[1]
        return values

    # ---- arrays ---------------------------------------------------------------------------------

    def declare(self, name: str, shape: int | Sequence[int], dtype: DTypeLike = dtypes.float32, init: Init = 0) -> None:
        """Makes an array, unless another store of the cluster has made it: then this store knows it from now on.

        Args:
          name: as of a variable.
          shape: of the array; ``()`` for a scalar.
          dtype: a number's.
          init: a number, an array, an initializer such as ``tf.glorot_uniform_initializer()``, or a function with the
            arguments ``shape`` and ``dtype``. Of an array in parts, each part calls them. Of what has no seed the
            value of the store that is first counts.

        Raises:
          InvalidArgumentError: another store has declared the name with another shape, dtype, number of parts or
            initial value, with another optimizer, or with another staleness.
        """
        array = DeclaredArray.of(name, shape, dtype, self._optimizer)
        with self._adding(name, "array"):
            added, feeds = self._added.get(name, (array, {}))
            if (added.shape, added.dtype) != (array.shape, array.dtype):
                raise errors.InvalidArgumentError.of(f"{array} is declared already, as {added}.")
            if added.parts and (text := self._text(array, len(added.parts), init)) != added.text:
                raise errors.InvalidArgumentError.of(f"{text}: this store has declared {added.text}.")
            if not added.parts:
                feeds = self._add_parts(array, init)
                self._added[name] = array, feeds  # for another try, since the graph has its variables from now on
            variables = [v for part in added.parts for v in part.variables()]  # of this graph
        if name in self._arrays:
            return
        self._agree(added)  # the same by two threads at once does no harm
        self._initialize(variables, feeds)
        with self._lock:
            self._arrays[name], self._saver = added, None

    def _add_parts(self, array: DeclaredArray, init: Init) -> dict[Tensor, Array]:
        """Adds the variables and updates of an array; returns what must be fed for their initial values."""
        borders = array.borders(self._partition)
        first = zlib.crc32(array.name.encode())
        feeds: dict[Tensor, Array] = {}
        for number, (begin, end) in enumerate(zip(borders, borders[1:])):
            with device(self.tasks[(first + number) % len(self.tasks)]):
                name = array.name if len(borders) == 2 else f"{array.name}/part_{number}"
                array.parts.append(self._part(array, name, begin, end, init, feeds))
        with device(self.tasks[first % len(self.tasks)]):
            array.text, name = self._text(array, len(borders) - 1, init), f"{array.name}/declared"
            text = f"{array.text}\nworker {self.worker}"
            array.declared = named(name, Variable(text, trainable=False, name=name))
        return feeds

    def _text(self, array: DeclaredArray, parts: int, init: Init) -> str:
        """All that stores which share an array must agree about."""
        pace = "asynchronous" if self._staleness is None else f"asynchronous (staleness {self._staleness})"
        return (
            f"{array} in {parts} parts, with initial value {init_text(init)} and"
            f" {pace if self._staleness != 0 else 'synchronous'} updates by {optimizer_text(self._optimizer)}"
        )

    def _part(
        self, array: DeclaredArray, name: str, begin: int, end: int, init: Init, feeds: dict[Tensor, Array]
    ) -> ArrayPart:
        shape = (end - begin, *array.shape[1:]) if array.shape else ()
        initial, value = initial_value(init, array, begin, end, shape)
        if value is not None:
            feeds[initial] = value
        variable = named(name, Variable(initial, trainable=False, name=name, dtype=array.dtype))
        if name != array.name:
            offset = [begin] + [0] * (len(shape) - 1)
            variable._set_save_slice_info(SaveSliceInfo(array.name, array.shape, offset, shape))
        version = None
        if not begin:
            counter = f"{array.name}/version"
            version = named(counter, Variable(np.int64(0), trainable=False, name=counter))
        with name_scope(f"{name}/push/"):
            own = None if self._optimizer is None else alone(self._optimizer)
            part = ArrayPart(variable, begin, end, own, version, self._compression)
            part.update(WHOLE)  # which makes what the optimizer keeps
        return part

    def _initialize(self, variables: Sequence[Variable], feeds: dict[Tensor, Array]) -> None:
        """Gives variables their initial values, unless they have some. Of several stores one does so at a time."""
        with self._building():
            known = [is_variable_initialized(variable) for variable in variables]
        if all(self._set_up(known)):
            return

        def initialize() -> list[Tensor]:
            return [cond(is_variable_initialized(v), no_op, partial(set_initial, v)) for v in variables]

        with self._building(), device(self.tasks[0]):
            done = CriticalSection(shared_name="parameter_store/declare").execute(initialize)
        self._set_up(done, feeds)

    def _agree(self, array: DeclaredArray) -> None:
        """Compares an array with what another store has declared, before anything of it is made on the tasks.

        Raises:
          InvalidArgumentError: they differ in shape, dtype, parts, initial value, optimizer or pace.
        """
        self._initialize([array.declared], {})
        for stored in self._set_up([array.declared]):
            text, _, who = stored.decode().partition("\n")
            if text != array.text:
                raise errors.InvalidArgumentError.of(
                    f"The store of worker {self.worker} declares {array.text}; that of {who} has declared {text}. Let"
                    " all stores declare the same; for another run on this cluster, call tf.Session.reset(target)"
                    " first."
                )

    def _array(self, name: str) -> DeclaredArray:
        try:
            return self._arrays[name]
        except KeyError:
            known = ", ".join(sorted(self._arrays)) or "none"
            raise errors.NotFoundError.of(f"There is no array {name!r}; declared are: {known}.") from None

    # ---- values and gradients -------------------------------------------------------------------

    def pull(self, names: Names | None = None) -> Any:
        """Reads arrays.

        Args:
          names: a name: returns its array. Several names: returns a dict. A dict from names to ids: returns those rows,
            or the whole array where the ids are None. Default: all arrays.

        Returns:
          Arrays that cannot be written. No update changes them.

        Raises:
          NotFoundError: for a name that is not declared.
          InvalidArgumentError: for an id that is not of a row.
          DeadlineExceededError: there is no answer in time, or another worker has fallen back too far.
        """
        return self._exchange({}, list(self._arrays) if names is None else names)

    def push(self, gradients: Mapping[str, Gradient]) -> None:
        """Applies gradients, and returns when the parameter servers have done so.

        Args:
          gradients: name -> an array of the same shape, or `tf.IndexedSlices` of arrays: rows, whose ids may repeat.

        Raises:
          NotFoundError: for a name that is not declared.
          InvalidArgumentError: for a shape, an id or a type of numbers that is wrong; or, with synchronous updates,
            another worker pushes other arrays in this round.
          DeadlineExceededError: the round of synchronous updates lacks the push of a worker. Of the pushes that are
            made after that one counts.
          AbortedError: with synchronous updates: a parameter server was restarted, or the step that applied the
            round was cut there.
        """
        self._exchange(self._pushed(gradients), ())

    def push_pull(self, gradients: Mapping[str, Gradient], names: Names | None = None) -> Any:
        """`push`, and `pull` of the values after it, in one step.

        Args:
          names: default: those of the gradients.
        """
        return self._exchange(self._pushed(gradients), list(gradients) if names is None else names)

    def _pushed(self, gradients: Mapping[str, Gradient]) -> Mapping[str, Gradient]:
        """The gradients of a push, which are some if other workers wait for it."""
        check_named(gradients)
        if not gradients and self._staleness is not None:
            raise errors.InvalidArgumentError.of("A push without a gradient ends no round, and others wait for that.")
        return gradients

    def _exchange(self, gradients: Mapping[str, Gradient], names: Names) -> Any:
        """One step that pushes gradients and then reads."""
        self._leaving.check()
        one = isinstance(names, (str, bytes)) or not isinstance(names, Iterable)
        wanted: Any = names if isinstance(names, Mapping) else dict.fromkeys([names] if one else names)
        with self._in_turn if gradients else nullcontext():
            return self._step(gradients, names, wanted)

    def _step(self, gradients: Mapping[str, Gradient], names: Names, wanted: Mapping[str, Any]) -> Any:
        residuals: dict[str, Array] = {}  # of this push
        # In the order of names, so that another order is no other call.
        given = [(array, *array.checked(gradients[name])) for name, array in self._sorted(gradients)]
        pulled = [
            (array, None if wanted[name] is None else array.checked_ids(wanted[name]))
            for name, array in self._sorted(wanted)
        ]
        pushed = [self._compressed(*each, residuals) for each in given]
        call = self._call([each[:2] for each in pushed], [(array, ids is not None) for array, ids in pulled])
        feeds: list[Any] = [each for array, form, value in pushed for each in array.split(form, value)]
        feeds += [each for array, ids in pulled if ids is not None for each in array.split_ids(ids)]
        rest = iter(self._answers(call, feeds, bool(pushed), pulled))
        self._residuals.update(residuals)  # not after an error: then the caller makes the push again
        found = {array.name: array.join([next(rest) for _ in array.parts], ids) for array, ids in pulled}
        return found[names] if isinstance(names, str) else {name: found[name] for name in wanted}

    def _compressed(
        self, array: DeclaredArray, form: str, value: Any, residuals: dict[str, Array]
    ) -> tuple[DeclaredArray, str, Any]:
        """A push as it is sent; ``residuals`` gets what that leaves out."""
        if form != WHOLE or self._compression is None or not array.dtype.is_floating:
            return array, form, value
        sent, residuals[array.name] = array.compressed(value + self._residuals.get(array.name, 0))
        return array, COMPRESSED, sent

    def _sorted(self, names: Iterable[str]) -> list[tuple[str, DeclaredArray]]:
        return [(name, self._array(name)) for name in sorted(names)]

    def _call(self, pushed: Sequence[Pushed], pulled: Sequence[Pulled]) -> Callable[..., Any]:
        key = (tuple((array.name, form) for array, form in pushed), tuple((array.name, rows) for array, rows in pulled))
        if key not in self._calls:  # a known call does not wait for a `declare` that waits for an absent ps
            with self._building():
                if key not in self._calls:
                    self._calls[key] = self._make_call(pushed, pulled)
        return self._calls[key]

    def _make_call(self, pushed: Sequence[Pushed], pulled: Sequence[Pulled]) -> Callable[..., Any]:
        """A callable whose arguments are what `DeclaredArray.split` and `split_ids` give."""
        feeds = [each for array, form in pushed for part in array.parts for each in part.inputs(form)]
        feeds += [part.wanted for array, rows in pulled if rows for part in array.parts]
        if pushed and self._rounds is not None:
            return self._make_round(self._rounds, pushed, pulled, feeds)
        updates = {part: part.update(form) for array, form in pushed for part in array.parts}
        ops, gate = list(updates.values()), None
        if self._clocks is not None:
            with device(self.tasks[0]):
                ticks = [self._clocks.tick_after(ops)] if pushed else []
                gate = self._clocks.wait_after(ticks) if pulled else None
            ops += ticks
        reads = [part.read(rows, gate or updates.get(part)) for array, rows in pulled for part in array.parts]
        if pushed:
            self._add_train_op([*ops, *reads])
        return self.session.make_callable([ops, reads], feeds)

    def _make_round(
        self, rounds: Rounds, pushed: Sequence[Pushed], pulled: Sequence[Pulled], feeds: Sequence[Tensor]
    ) -> Callable[..., Any]:
        """`_make_call` of a synchronous push, for `Rounds.take_part`."""
        done, last, latest = rounds.add_push(pushed)
        reads = [
            part.read(rows, done.get(part.variable.device, last))
            for array, rows in pulled
            for part in array.parts
        ]  # fmt: skip
        self._add_train_op([last, *reads])
        return self.session.make_callable([[last], reads, latest], [*feeds, rounds.push])

    def _add_train_op(self, ops: Sequence[Any]) -> None:
        """Adds what tools take for the training step."""
        with device(self.tasks[0]):
            self.graph.add_to_collection(GraphKeys.TRAIN_OP, group(*ops, name="push"))

    def assign(self, values: Mapping[str, Array]) -> None:
        """Sets arrays; what their optimizers keep stays. Residuals of this store's compressed gradients are dropped.

        Raises:
          NotFoundError, InvalidArgumentError: as `push`.
        """
        check_named(values)
        with self._building():
            arrays = {array: array.checked(values[name], "value") for name, array in self._sorted(values)}
            if any(form == ROWS for form, _ in arrays.values()):
                raise errors.InvalidArgumentError.of("assign() sets whole arrays; for rows push a difference.")
            parts = [part for array in arrays for part in array.parts]
            pieces = [piece for array, (form, value) in arrays.items() for piece in array.split(form, value)]
            ops = [part.assigned for part in parts]
        with self._in_turn:
            self.session.run(ops, {part.whole: piece for part, piece in zip(parts, pieces)})
            self._drop_residuals(values)

    def _drop_residuals(self, names: Iterable[str]) -> None:
        """Forgets what gradients for values that are gone have not sent. The caller has the turn."""
        for name in names:
            self._residuals.pop(name, None)

    def places(self, name: str) -> list[str]:
        """The device names of the tasks that hold the parts of an array, in order of its rows."""
        return [part.variable.device for part in self._array(name).parts]

    def version(self, name: str) -> int:
        """How many updates an array has had; of one in parts, its first part."""
        version = self._array(name).parts[0].version
        assert version is not None
        return int(self.session.run(version))

    def late(self) -> list[int]:
        """How many gradients of each worker have come after their round, and were dropped.

        Raises:
          ValueError: updates are not synchronous.
        """
        if self._rounds is None:
            raise ValueError("Only synchronous updates have rounds: staleness=0")
        return [int(count) for count in self.session.run(self._rounds.late)]

    def barrier(self) -> None:
        """Waits until all workers have come here, but those who have ended. After an error it may be called again.

        Raises:
          ValueError: this store does not know the workers, or they have no ps in common.
        """
        self._needs_workers()
        self._leaving.check()
        assert self._meeting is not None
        self._meeting.wait(self.session)

    def shards(self, name: str, works: Sequence[str | bytes] | int, **settings: Any) -> Shards:
        """The shards of data that the workers share under a name: see `Shards`.

        Args:
          works: texts, such as names of files, or the number of rows of the data.
          settings: of `tf.WorkQueue`: ``num_epochs``, ``shuffle``, ``seed``, ``num_slices``, ``lease_s``…

        Raises:
          ValueError: as `tf.WorkQueue`; or this store has something else of that name.
          InvalidArgumentError: another store has made them with other settings; the first use tells.
        """
        with self._adding(name, "shards"):
            with device(self.tasks[zlib.crc32(name.encode()) % len(self.tasks)]):
                found = Shards(self.session, WorkQueue(works, name=name, **settings), self._leaving)
            self._shards[name], self._saver = found, None
            return found

    # ---- checkpoints ----------------------------------------------------------------------------

    def save(self, path: str, step: int | None = None) -> str:
        """Writes a checkpoint of what this store has declared, with its optimizers and shards, and returns its path.

        A `tf.train.Saver` of a graph with the same names can restore it. Where each part has its own scalar of
        something, such as Adam's ``beta1_power``, the checkpoint also has that of the first part under the array's
        name, for stores with other parts, and that of the first array under the name that graphs give it.

        Raises:
          OpError: as `Saver.save`.
        """
        with self._building():
            saver = self._saver = self._saver or Saver({**self._copies(), **self._saved()}, max_to_keep=None)
        return str(saver.save(self.session, path, step, write_meta_graph=False))

    def restore(self, path: str) -> None:
        """Reads a checkpoint that `save` has written, or a graph's with the same names.

        What this store has not declared is left out, and a warning names it. What the checkpoint lacks, such as the
        slots of another optimizer, stays as it is. The residuals of this store's compressed gradients are dropped.

        Raises:
          NotFoundError: there is none, or it lacks an array or a table.
        """
        stored = load_checkpoint(path).get_variable_to_shape_map()
        with self._in_turn:
            with self._building():
                if missing := sorted(self._arrays.keys() - stored.keys()):
                    raise errors.NotFoundError.of(f"The checkpoint {path} has no array '{missing[0]}'.")
                savers = [Saver(names, max_to_keep=None) for names in self._restored(stored) if names]
                tables, arrays = list(self._tables.values()), list(self._arrays)
                warn_of_undeclared(path, stored, [*self._arrays, *self._tables, *self._shards], self._arrays.values())
            for saver in savers:
                saver.restore(self.session, path)
            for table in tables:
                table.restore(path)
            self._drop_residuals(arrays)

    def _saved(self) -> dict[str, Any]:
        """Name in a checkpoint -> variable, the parts of an array, or shards of data."""
        found: dict[str, Any] = {f"{name}/left": shards.queue for name, shards in self._shards.items()}
        for array in self._arrays.values():
            for part in array.parts:
                for variable in part.variables():
                    info = variable._get_save_slice_info()
                    if info is None:
                        found[variable.op.name] = variable
                    else:
                        found.setdefault(info.full_name, []).append(variable)
        for table in self._tables.values():
            found.update(table.saved())
        return found

    def _copies(self) -> dict[str, Copy]:
        """Scalars of first parts under other names, for the checkpoint only."""
        firsts = [(array, *each) for _, array in self._sorted(self._arrays) for each in array.parts[0].scalars()]
        named = {array.scalar_name(name): variable for array, name, variable in firsts}
        of_tables = [each for table in self._tables.values() for each in table.scalars().items()]
        for name, variable in [*(each[1:] for each in firsts), *of_tables]:
            named.setdefault(name, variable)
        return {name: Copy(identity(variable), name) for name, variable in named.items()}

    def _restored(self, stored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The variables that a checkpoint with these names has values for, under each name at most one."""
        names_of_tables = {name for table in self._tables.values() for name in table.saved()}  # they restore themselves
        saved = {name: v for name, v in self._saved().items() if name not in names_of_tables}
        yield {name: variable for name, variable in saved.items() if name in stored}
        for array in self._arrays.values():
            for part in array.parts:
                lacking = [(name, v) for name, v in part.scalars() if v.op.name not in stored]
                yield {
                    found: v
                    for name, v in lacking
                    if (found := next((n for n in (array.scalar_name(name), name) if n in stored), ""))
                }

    # ---- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends this worker's part: nobody waits for it any more. The arrays stay. Idempotent, also after an OpError."""
        entered, self._entered = self._entered, []
        rounds, self._rounds = self._rounds, None
        try:
            if rounds is not None:
                rounds.end(self.session)
            if entered:
                self.session.run([clocks.leave for clocks in entered])
        finally:
            self.session.close()

    def __enter__(self) -> Self:
        self._leaving.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hidden = nullcontext() if error is None else suppress(errors.OpError)  # or they would hide the block's error
        with self._leaving.ending(error is None), hidden:
            self.close()

    def __repr__(self) -> str:
        return f"<ParameterStore {', '.join(map(str, self._arrays.values())) or 'without arrays'}>"


# ---- what a store finds out about its cluster and its arguments ----------------------------------------------------


def _definition_at(target: str) -> Any:
    """The ServerDef of the server of this process at a target, or None."""
    server = server_at(address_of_target(target)) if target else None
    return None if server is None else server.server_def


def _worker_of(cluster: Any, target: str) -> int:
    """The number of the worker whose target it is; 0 if that is unknown."""
    if isinstance(index := getattr(cluster, "index", None), int):
        return index
    definition = _definition_at(target)
    return definition.task_index if definition is not None and definition.job_name == "worker" else 0
