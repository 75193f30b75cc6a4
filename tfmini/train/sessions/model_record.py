"""The record of a model in a cluster: which run gave its variables their values, and whether it has finished that.

The record is a string variable on the task of the model's first variable, so it is lost with that task. It has a
graph of its own, since the graphs of users have only TensorFlow's ops. A restarted chief learns from it that the
variables are those of its own run; a worker, that the chief is still restoring them.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from tfmini import dtypes, errors, protos
from tfmini.devices import DeviceSpec
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import device
from tfmini.ops.array.identity import placeholder
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.functions import Variable
from tfmini.runtime.client.session import Session
from tfmini.train.checkpointing.graph_files import GRAPH_FILE, write_training_graph
from tfmini.train.checkpointing.state_file import get_checkpoint_state

_log = logging.getLogger("tensorflow")


@dataclass(frozen=True)
class ModelRecord:
    """Attributes:
    model: an identifier that differs after every initialisation and every restore of the model.
    is_set: whether all variables have their values; the chief restores or initialises them until then.
    run: the checkpoints of the run: an absolute path, or an identifier of the chief without checkpoints; "" when the
      run has ended in good order. Workers may still train on the model then, and repeat a step of theirs.
    """

    model: str
    is_set: bool
    run: str

    def to_text(self) -> str:
        """The value of the record's variable."""
        return f"{self.model} {self.is_set:d} {self.run}"

    @staticmethod
    def from_text(text: str) -> ModelRecord | None:
        """The record of a variable's value; None for its initial value."""
        model, is_set, run = text.split(" ", 2) if text else ("", "", "")
        return ModelRecord(model, is_set == "1", run) if model else None


class ModelRecords:
    """Reads and writes the record of a graph's model.

    Args:
      master: the target of the sessions that use the model.
      graph: the graph with the model's variables, at least one.
      config: the ConfigProto of those sessions, or None.
    """

    def __init__(self, master: str, graph: Graph, config: Any) -> None:
        self.master = master
        self._config = protos.ConfigProto()
        if config is not None:
            self._config.CopyFrom(config)
        self._config.log_device_placement = False
        first = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)[0].op
        place = DeviceSpec.from_string(first.device)
        place.device_type = place.device_index = None
        with Graph().as_default() as self._graph, device(place.to_string()):
            self._text = placeholder(dtypes.string, [])
            self._variable = Variable("", name=f"{first.name}/tfmini_model_record")
            self._assign = assign(self._variable, self._text)

    def read(self) -> ModelRecord | None:
        """The record; None if no chief has written one."""
        with Session(self.master, graph=self._graph, config=self._config) as session:
            try:
                return ModelRecord.from_text(session.run(self._variable).decode())
            except errors.FailedPreconditionError:  # uninitialized
                return None

    def write(self, record: ModelRecord) -> None:
        """Replaces the record."""
        self._write(record.to_text(), self._config)

    def end(self, model: str, timeout_s: float) -> None:
        """Notes that the run of a model has ended, unless the record's task cannot be reached in time."""
        self._write(ModelRecord(model, True, "").to_text(), self.limited(timeout_s))

    def limited(self, timeout_s: float) -> Any:
        """The ConfigProto of a session whose operations may take so long."""
        return limited(self._config, timeout_s)

    def _write(self, text: str, config: Any) -> None:
        with Session(self.master, graph=self._graph, config=config) as session:
            session.run(self._assign.op, {self._text: text})


def limited(config: Any, timeout_s: float) -> Any:
    """A copy of a ConfigProto, or of the default one, for a session whose operations may take so long."""
    copy = protos.ConfigProto()
    if config is not None:
        copy.CopyFrom(config)
    copy.operation_timeout_in_ms = round(1000 * timeout_s)
    return copy


def latest_state(directory: str) -> Any:
    """The state of a directory with a checkpoint, or None."""
    state = get_checkpoint_state(directory)
    return state if state and state.model_checkpoint_path else None


def is_used(directory: str) -> bool:
    """Whether a chief has trained here; it may have been killed before its first checkpoint."""
    return latest_state(directory) is not None or os.path.exists(os.path.join(directory, GRAPH_FILE))


def mark_used(directory: str, graph: Graph) -> None:
    """Writes the graph before other workers train, so that a chief that is killed after this continues their run."""
    if not is_used(directory):
        try:
            write_training_graph(graph, directory)
        except errors.OpError as error:  # the hooks report it if they write there
            _log.debug("The graph was not written to %s: %s", directory, error)
