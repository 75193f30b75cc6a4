"""The service threads of a chief's `Supervisor`: summaries, step counts and checkpoints."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tfmini import errors, protos
from tfmini.runtime.process import current_process
from tfmini.train.coordinator import LooperThread
from tfmini.train.global_steps import global_step

if TYPE_CHECKING:
    from tfmini.train.sessions.supervisor import Supervisor

_log = logging.getLogger("tensorflow")
# The number of times that the step counter logs its value.
_LOGGED_FIRST = 10


class SVSummaryThread(LooperThread):
    """Writes the supervisor's summaries every ``save_summaries_secs``."""

    def __init__(self, sv: Supervisor, sess: Any) -> None:
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv = sv
        self._sess = sess

    def run_loop(self) -> None:
        sv = self._sv
        step = None
        try:
            if sv.global_step is not None:
                summaries, step = self._sess.run([sv.summary_op, sv.global_step])
            else:
                summaries = self._sess.run(sv.summary_op)
        except errors.InvalidArgumentError as error:
            error.explain(
                "The supervisor's summary thread ran this, without feeds. Give the Supervisor summary_op=None, and"
                " write summaries that need feeds by sv.summary_computed()."
            )
            raise
        if sv.summary_writer:
            _log.info("Recording summary at step %s.", step)
            sv.summary_writer.add_summary(summaries, step)


class SVStepCounterThread(LooperThread):
    """Writes steps per second as the summary ``global_step/sec``.

    Args:
      step_counter: the step to count; default: the supervisor's global step.
    """

    def __init__(self, sv: Supervisor, sess: Any, step_counter: Any = None) -> None:
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv = sv
        self._sess = sess
        self._last_time = 0.0
        self._last_step = 0
        self._logged = 0
        self._step_counter = sv.global_step if step_counter is None else step_counter
        self._summary_tag = f"{self._step_counter.op.name}/sec"

    def start_loop(self) -> None:
        self._last_time = current_process().now()
        self._last_step = global_step(self._sess, self._step_counter)

    def run_loop(self) -> None:
        step, now = global_step(self._sess, self._step_counter), current_process().now()
        seconds = now - self._last_time
        steps_per_sec = (step - self._last_step) / seconds if seconds > 0 else float("inf")
        self._last_step, self._last_time = step, now
        if self._sv.summary_writer:
            value = protos.Summary.Value(tag=self._summary_tag, simple_value=steps_per_sec)
            self._sv.summary_writer.add_summary(protos.Summary(value=[value]), step)
        if self._logged < _LOGGED_FIRST:
            self._logged += 1
            _log.info("%s: %g", self._summary_tag, steps_per_sec)


class SVTimerCheckpointThread(LooperThread):
    """Saves the model every ``save_model_secs``."""

    def __init__(self, sv: Supervisor, sess: Any) -> None:
        super().__init__(sv.coord, sv.save_model_secs)
        self._sv = sv
        self._sess = sess

    def run_loop(self) -> None:
        sv = self._sv
        _log.info("Saving checkpoint to path %s", sv.save_path)
        sv.saver.save(self._sess, sv.save_path, global_step=sv.global_step)
        if sv.summary_writer and sv.global_step is not None:
            step = global_step(self._sess, sv.global_step)
            note = protos.SessionLog(status=protos.SessionLog.CHECKPOINT, checkpoint_path=sv.save_path)
            sv.summary_writer.add_session_log(note, step)
