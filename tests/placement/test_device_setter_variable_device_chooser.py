"""The device function that deals variables out to parameter servers."""

from __future__ import annotations

import tfmini as tf

Chooser = tf.contrib.framework.VariableDeviceChooser


def test_ops_go_to_the_servers_in_turn() -> None:
    with tf.Graph().as_default(), tf.device(Chooser(num_tasks=2, replica=0)):
        devices = [tf.no_op().device for _ in range(3)]
    assert devices == [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in (0, 1, 0)]


def test_without_servers_only_the_device_is_named() -> None:
    with tf.Graph().as_default(), tf.device(Chooser(device_type="GPU", device_index=1)):
        assert tf.no_op().device == "/device:GPU:1"
