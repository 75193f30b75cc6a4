"""A task of a cluster of `train_and_evaluate`, run as a process with TF_CONFIG. Argument: the model's directory."""

from __future__ import annotations

import json
import sys

import tfmini as tf
from tests.estimator import models

LAST = 60


class Watch(tf.train.SessionRunHook):
    """Prints where ops are requested, and the number of steps of this task."""

    def begin(self) -> None:
        self._steps = 0
        wanted = ("global_step", "dense/kernel", "IteratorGetNext")
        devices = {op.name: op.device for op in tf.get_default_graph().get_operations() if op.name in wanted}
        print("placed", json.dumps(devices), flush=True)

    def after_run(self, run_context, run_values) -> None:
        self._steps += 1

    def end(self, session) -> None:
        print("steps", self._steps, flush=True)


def main(directory: str) -> None:
    config = tf.estimator.RunConfig(
        model_dir=directory,
        save_checkpoints_steps=20,
        save_summary_steps=20,
        experimental_max_worker_delay_secs=0,
    )
    made = tf.estimator.Estimator(models.classifier(tf), config=config, params={"rate": 0.3})
    features = {"x": tf.placeholder(tf.float32, [None, 4], "x")}
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn(features)
    train = tf.estimator.TrainSpec(models.inputs(tf, epochs=None), max_steps=LAST, hooks=[Watch()])
    spec = tf.estimator.EvalSpec(
        models.inputs(tf),
        steps=None,
        start_delay_secs=0,
        throttle_secs=0,
        exporters=tf.estimator.FinalExporter("final", receiver),
    )
    tf.estimator.train_and_evaluate(made, train, spec)
    print("done", flush=True)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    main(sys.argv[1])
