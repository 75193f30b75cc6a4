"""``tf.contrib.framework.VariableDeviceChooser``: variables on parameter servers, one after the other."""

from __future__ import annotations

from typing import Any

from tfmini.devices import DeviceSpec
from tfmini.export import export


@export("tf.contrib.framework.VariableDeviceChooser")
class VariableDeviceChooser:
    """A device function for ``tf.device`` that gives each op the next parameter server.

    Args:
      num_tasks: number of parameter servers; 0: the devices name no job.
      job_name: their job.
      device_type, device_index, replica: the rest of the devices' names.
    """

    def __init__(
        self, num_tasks: int = 0, job_name: str = "ps", device_type: str = "CPU", device_index: int = 0,
        replica: int | None = None,
    ) -> None:  # fmt: skip
        self._num_tasks, self._job = num_tasks, job_name if num_tasks else None
        self._device = {"device_type": device_type, "device_index": device_index, "replica": replica}
        self._next = 0

    def __call__(self, op: Any) -> str:
        task = self._next % self._num_tasks if self._num_tasks else None
        self._next += 1
        return DeviceSpec(job=self._job, task=task, **self._device).to_string()  # type: ignore[arg-type]
