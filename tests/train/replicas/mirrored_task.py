"""A worker of a strategy of several workers, run as a process with TF_CONFIG: estimators, or a session of its own.

`python mirrored_task.py MODULE DIRECTORY WHAT...` prints one line, "ANSWER" and JSON. MODULE is tfmini or tensorflow;
the answers of TensorFlow 1.15.5 are frozen in `mirrored_answers.json` (`test_mirrored_workers.py` says how).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

import numpy as np

MODULE, DIRECTORY, *WHAT = sys.argv[1:]
tf: Any = importlib.import_module(MODULE)
TASK, JOBS = json.loads(os.environ["TF_CONFIG"])["task"], json.loads(os.environ["TF_CONFIG"])["cluster"]
IS_CHIEF = TASK["index"] == 0 and TASK["type"] == ("chief" if "chief" in JOBS else "worker")


def inputs(input_context: Any = None) -> Any:
    """Each worker's half of 24 examples, four times, in batches of 4: twelve steps."""
    x = np.arange(48, dtype=np.float32).reshape(24, 2) / 48
    y = (x.sum(1, keepdims=True) > 0.9).astype(np.float32)
    ids = (np.arange(24) * 7 % 5).astype(np.int64)
    data = tf.data.Dataset.from_tensor_slices(({"x": x, "id": ids}, y))
    if input_context is not None:
        assert input_context.num_replicas_in_sync == input_context.num_input_pipelines
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.repeat(4).batch(4)


def uneven(input_context: Any = None) -> Any:
    """Three batches for worker 0, seven for worker 1: all end with the first."""
    return inputs(input_context).take(3 + 4 * TASK["index"])


class Losses(tf.train.SessionRunHook):
    """Keeps the losses; ``fail``, ``exit`` and ``die`` end worker 1 after three steps."""

    def __init__(self, what: str) -> None:
        self.what, self.seen = what, []

    def begin(self) -> None:
        self.loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen.append(round(float(run_values.results), 6))
        if len(self.seen) == 3 and not IS_CHIEF:
            if self.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "fail":
                raise ValueError("worker 1 has had enough")
            if self.what == "exit":
                sys.exit(3)


def model(features: Any, labels: Any, mode: str, params: Any) -> Any:
    what = params["what"]
    y = tf.layers.dense(features["x"], 3, tf.nn.relu, kernel_initializer=tf.constant_initializer(0.3), name="a")
    if what == "norm":
        y = tf.layers.batch_normalization(y, training=mode == "train", momentum=0.5)
    table = tf.get_variable("table", [5, 3], initializer=tf.constant_initializer(0.1))
    y = y + tf.nn.embedding_lookup(table, features["id"])
    y = tf.layers.dense(y, 1, kernel_initializer=tf.constant_initializer(0.2), name="b")
    if what == "plain":
        loss = tf.reduce_mean(tf.square(labels - y))
    else:
        reduction = tf.losses.Reduction.SUM if what == "sum" else tf.losses.Reduction.SUM_BY_NONZERO_WEIGHTS
        loss = tf.losses.mean_squared_error(labels, y, reduction=reduction)
    updates = list(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
    if what == "norm":
        counted = tf.get_variable(
            "counted", [], initializer=tf.zeros_initializer(), trainable=False, aggregation=tf.VariableAggregation.SUM
        )
        updates.append(counted.assign_add(tf.reduce_sum(labels)))
        average = tf.train.ExponentialMovingAverage(0.5)
        updates.append(average.apply([tf.reduce_mean(features["x"])]))
        correct = tf.metrics.mean(labels)
        tf.summary.scalar("mean_label", correct[0])
        updates.append(correct[1])
    if mode == "eval":
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": tf.metrics.mean(labels)})
    optimizers = {"sum": tf.train.AdamOptimizer(0.05), "plain": tf.train.MomentumOptimizer(0.1, 0.9)}
    optimizer = optimizers.get(what, tf.train.GradientDescentOptimizer(0.1))
    train = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(train, *updates))


def keras_model(what: str) -> Any:
    keras = tf.keras
    constant = keras.initializers.Constant
    layers = [keras.layers.Dense(3, activation="relu", input_shape=(2,), kernel_initializer=constant(0.3), name="a")]
    if what == "keras_norm":
        layers[0].kernel_regularizer = keras.regularizers.l2(0.1)
        layers.append(keras.layers.BatchNormalization(momentum=0.5, name="n"))
    layers.append(keras.layers.Dense(1, activation="sigmoid", kernel_initializer=constant(0.2), name="b"))
    made = keras.Sequential(layers)
    optimizer = keras.optimizers.SGD(0.2) if what == "keras_norm" else tf.train.GradientDescentOptimizer(0.2)
    made.compile(loss="binary_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    return made


def trained(what: str, input_fn: Any = inputs) -> dict[str, Any]:
    """The losses of an estimator's training, and on the chief what its checkpoint has."""
    shared = os.path.join(DIRECTORY, what)
    # TensorFlow's other workers need the chief's directory: they hang when the chief alone restores a checkpoint.
    own = shared if IS_CHIEF or TASK["type"] == "evaluator" or MODULE == "tensorflow" else f"{shared}_{TASK['index']}"
    config = tf.estimator.RunConfig(
        model_dir=own, save_summary_steps=5, save_checkpoints_steps=1000,
        experimental_distribute=tf.contrib.distribute.DistributeConfig(
            train_distribute=tf.contrib.distribute.CollectiveAllReduceStrategy(num_gpus_per_worker=0),
            eval_distribute=tf.contrib.distribute.MirroredStrategy(num_gpus_per_worker=0),
        ),
    )  # fmt: skip
    if what.startswith("keras"):
        estimator = tf.keras.estimator.model_to_estimator(keras_model(what), config=config)
        input_fn = lambda input_context=None: inputs(input_context).map(lambda features, y: (features["x"], y))  # noqa: E731
    else:
        estimator = tf.estimator.Estimator(model, config=config, params={"what": what})
    hook = Losses(what)
    specs = [
        tf.estimator.TrainSpec(input_fn, max_steps=last, hooks=[hook])
        for last in ([5, 10] if what == "again" else [12])
    ]
    evaluation = tf.estimator.EvalSpec(lambda: inputs().take(2), steps=None, start_delay_secs=0, throttle_secs=0)
    for spec in specs:
        tf.estimator.train_and_evaluate(estimator, spec, evaluation)
    answer: dict[str, Any] = {"losses": hook.seen}
    if IS_CHIEF:
        names = [name for name in sorted(estimator.get_variable_names()) if "iterations" not in name]
        answer["values"] = {name: np.round(estimator.get_variable_value(name), 6).tolist() for name in names}
        answer["replica_files"] = sorted(name for name in os.listdir(own) if name.startswith(("model.ckpt", "events")))
    return answer


def session() -> dict[str, Any]:
    """A graph built in the scope of a strategy, with values and initial values of each worker's own."""
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    config = strategy.update_config_proto(tf.ConfigProto())
    spec, index = tf.train.ClusterSpec(JOBS), TASK["index"]
    for_server = tf.ConfigProto()
    for_server.CopyFrom(config)
    del for_server.device_filters[:]
    server = tf.train.Server(spec, job_name=TASK["type"], task_index=index, config=for_server)
    op = tf.distribute.ReduceOp
    with tf.Graph().as_default(), strategy.scope():
        v = tf.get_variable("v", [2], initializer=tf.random_uniform_initializer(1.0, 2.0, seed=index + 3))
        mean = tf.VariableAggregation.MEAN
        w = tf.get_variable("w", [], initializer=tf.constant_initializer(index), trainable=False, aggregation=mean)

        def input_fn(context: Any) -> Any:
            data = tf.data.Dataset.range(8).map(lambda i: tf.cast(i, tf.float32))
            data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
            return data.batch(context.get_per_replica_batch_size(4))

        inputs_of_worker = strategy.make_input_fn_iterator(input_fn)

        def step(x: Any) -> Any:
            context, average = tf.distribute.get_replica_context(), tf.reduce_mean(x)
            total, of_all = (context.all_reduce(kind, average) for kind in (op.SUM, op.MEAN))
            loss = tf.reduce_sum(v) * average
            train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
            added = w.assign_add(tf.reduce_sum(x))
            seen, see = tf.metrics.mean(x)
            slope = tf.gradients(total * total, x)[0]
            with tf.control_dependencies([train, tf.group(added), tf.group(see)]):
                return tf.identity(loss), tf.identity(total), tf.identity(of_all), tf.identity(slope), x, seen

        loss, total, of_all, slope, x, seen = strategy.experimental_run(step, inputs_of_worker)
        reduced = [strategy.reduce(kind, loss) for kind in (op.SUM, op.MEAN)]
        reduced += [strategy.reduce(kind, x, axis=0) for kind in (op.SUM, op.MEAN)]
        init = [inputs_of_worker.initialize(), tf.global_variables_initializer(), tf.local_variables_initializer()]
    with tf.Session(server.target, graph=v.graph, config=config) as sess:
        sess.run(init)
        start = sess.run(v)
        steps = [
            [np.round(np.float64(each), 5).tolist() for each in sess.run([*reduced, total, of_all, slope])]
            for _ in range(2)
        ]
        return {
            "steps": steps,
            "moved": np.round(sess.run(v) - start, 5).tolist(),
            "w": float(sess.run(w)),
            "start": start.tolist(),
            "seen": float(sess.run(seen)),
        }


def monitored() -> list[list[float]]:
    """The losses of two monitored sessions; the second goes on from the chief's checkpoint, which worker 1 lacks."""
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    config, spec = strategy.update_config_proto(tf.ConfigProto()), tf.train.ClusterSpec(JOBS)
    server = tf.train.Server(spec, job_name=TASK["type"], task_index=TASK["index"])
    seen: list[list[float]] = [[], []]
    for last, losses in zip((5, 10), seen):
        with tf.Graph().as_default(), strategy.scope():
            step = tf.train.get_or_create_global_step()
            start = tf.random_uniform_initializer(1.0, 2.0, seed=TASK["index"] + last)
            v = tf.get_variable("v", [2], initializer=start)

            def replica(v: Any = v, step: Any = step) -> Any:
                loss = tf.reduce_sum(v * v) * (1.0 + TASK["index"])
                context = tf.distribute.get_replica_context()
                tf.summary.scalar("total", context.all_reduce(tf.distribute.ReduceOp.SUM, loss))  # no part of a step
                with tf.control_dependencies([tf.train.MomentumOptimizer(0.01, 0.5).minimize(loss, step)]):
                    return tf.identity(loss)

            loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.experimental_run_v2(replica))
            tf.summary.scalar("loss", loss)
            folder = os.path.join(DIRECTORY, "monitored") if IS_CHIEF else None
            hooks = [tf.train.StopAtStepHook(last_step=last)]
            with tf.train.MonitoredTrainingSession(
                server.target, IS_CHIEF, folder, hooks=hooks, save_checkpoint_steps=100, config=config
            ) as sess:
                while not sess.should_stop():
                    losses.append(float(sess.run(loss)))
    return seen


def tables(folder: str) -> list[float]:
    """The sum of a variable and the size of a table as a monitored session of three steps begins."""
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    config, spec = strategy.update_config_proto(tf.ConfigProto()), tf.train.ClusterSpec(JOBS)
    server = tf.train.Server(spec, job_name=TASK["type"], task_index=TASK["index"])
    with strategy.scope():
        step = tf.train.get_or_create_global_step()
        v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
        table = tf.contrib.lookup.MutableHashTable(tf.int64, tf.int64, -1, name="counts")

        def replica() -> Any:
            with tf.control_dependencies([table.insert(step, step)]):
                return tf.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(v), step)

        train, begin = strategy.experimental_run_v2(replica), [tf.reduce_sum(v), table.size()]
        hooks = [tf.train.StopAtStepHook(num_steps=3)]
        with tf.train.MonitoredTrainingSession(server.target, IS_CHIEF, folder, hooks=hooks, config=config) as sess:
            seen = [float(each) for each in sess.run(begin)]
            while not sess.should_stop():
                sess.run(train)
    return seen


def main() -> None:
    answers = {}
    for what in WHAT:
        if what == "session":
            answers[what] = session()
        elif what == "monitored":
            answers[what] = monitored()
        elif what in ("tables", "own_tables"):
            answers[what] = tables(os.path.join(DIRECTORY, what if what == "tables" else f"{what}_{TASK['index']}"))
        else:
            answers[what] = trained(what, uneven if what == "uneven" else inputs)
    print("ANSWER", json.dumps(answers), flush=True)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    main()
