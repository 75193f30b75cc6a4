"""`horovod.keras` and `horovod.tensorflow.keras`, and estimators of Horovod's ranks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.launch.programs import launched

_NEEDS_KERAS = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")

_SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
if sys.argv[1] == "keras":
    import keras
    import horovod.keras as hvd
    from horovod.keras.callbacks import MetricAverageCallback
else:
    from tensorflow import keras
    import horovod.tensorflow.keras as hvd
    from horovod.tensorflow.keras.callbacks import MetricAverageCallback
hvd.init()
rank = hvd.rank()
start = keras.initializers.Constant(float(rank))  # the loss of rank r is (w - r)**2
model = keras.models.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer=start, input_shape=(1,))])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.2, momentum=0.0)), "mse")
x, y = np.ones([1, 1]), np.full([1, 1], rank)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), MetricAverageCallback(),
             hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=2, steps_per_epoch=1, verbose=1)]
history = model.fit(x, y, epochs=3, verbose=0, callbacks=callbacks).history
assert np.allclose(history["loss"], [0.0, 0.5, 0.34]), history
assert np.allclose(history["lr"], [0.15, 0.2, 0.2]), history
assert np.allclose(model.get_weights(), 0.32), model.get_weights()
path = f"model{rank}.h5"
model.save(path)
loaded = hvd.load_model(path)
schedule = hvd.callbacks.LearningRateScheduleCallback(0.5, start_epoch=1)
loaded.fit(x, y, epochs=2, verbose=0, callbacks=[schedule])
assert np.allclose(loaded.get_weights(), 0.4136), loaded.get_weights()
assert hvd.allreduce(rank + 0.0) == 0.5 and hvd.allreduce(rank + 0.0, average=False) == 1.0
assert hvd.allgather([rank]).tolist() == [0, 1] and hvd.broadcast(rank, 1) == 1
print("all as expected", flush=True)
"""


@_NEEDS_KERAS
@pytest.mark.cluster
@pytest.mark.parametrize("library", ["keras", "tf.keras"])
def test_two_ranks_train_a_model_with_mean_gradients(
    tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = launched(tmp_path, _SCRIPT.replace("sys.argv[1]", repr(library)), "--ps", "0", "--workers", "2")
    assert said.count("all as expected") == 2
    assert "Epoch 2: finished gradual learning rate warmup to 0.2." in said


_ESTIMATOR = """
import os
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
config = tf.estimator.RunConfig()
assert (config.is_chief, config.num_worker_replicas, config.master) == (True, 1, ""), config
def model_fn(features, labels, mode):
    w = tf.get_variable("w", initializer=hvd.rank() + 0.0)
    opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0))
    train = opt.minimize(-w * (hvd.rank() + 1), tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=w, train_op=train)
def input_fn():
    return tf.data.Dataset.from_tensors((0.0, 0.0)).repeat()
estimator = tf.estimator.Estimator(model_fn, f"model{hvd.rank()}")
estimator.train(input_fn, steps=2, hooks=[hvd.BroadcastGlobalVariablesHook(0)])
assert estimator.get_variable_value("w") == 3.0
hvd.shutdown()
hvd.init()
assert hvd.size() == 2
print("all as expected", flush=True)
"""


@pytest.mark.cluster
def test_the_estimator_of_a_rank_is_no_task_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert launched(tmp_path, _ESTIMATOR, "--ps", "0", "--workers", "2").count("all as expected") == 2
