"""What both namespaces run for the differential tests; see `tests.oracle`."""

from __future__ import annotations

import glob
import os
import tempfile

import numpy as np

from tests.estimator import models


def trained_evaluated_predicted(tf, steps):
    """Metrics, predictions, variables and files after a training of so many steps."""
    with tempfile.TemporaryDirectory() as directory:
        made = models.estimator(tf, directory, save_checkpoints_steps=10, save_summary_steps=5)
        made.train(models.inputs(tf, epochs=None), steps=steps)
        made.train(models.inputs(tf, epochs=None), max_steps=steps + 5)
        whole = made.evaluate(models.inputs(tf))
        part = made.evaluate(models.inputs(tf), steps=2, name="part")
        found = list(made.predict(models.inputs(tf, batch=50)))
        return {
            "whole": whole,
            "part": part,
            "types": [type(value).__name__ for _, value in sorted(whole.items())],
            "probabilities": np.array([row["probabilities"] for row in found]),
            "variables": {name: made.get_variable_value(name) for name in sorted(made.get_variable_names())},
            "checkpoint": os.path.basename(made.latest_checkpoint()),
            "directories": sorted(name for name in os.listdir(directory) if name.startswith("eval")),
            # Without steps: TensorFlow reads the step beside the op that counts it, so it may be one less.
            "tags": sorted({tag for _, tag in _tags(tf, directory)}),
            "eval tags": _tags(tf, os.path.join(directory, "eval")),
        }


def _tags(tf, directory):
    """(step, tag) of each summary value in a directory's event files."""
    found = set()
    for path in glob.glob(os.path.join(directory, "*.tfevents.*")):
        for event in tf.train.summary_iterator(path):
            found |= {(event.step, value.tag) for value in event.summary.value}
    return sorted([step, tag] for step, tag in found if tag != "global_step/sec")


def exported(tf):
    """The signatures of an export, and what it computes when it is loaded."""
    with tempfile.TemporaryDirectory() as directory:
        made = models.estimator(tf, directory)
        made.train(models.inputs(tf, epochs=None), steps=3)
        spec = {"x": tf.FixedLenFeature([4], tf.float32)}
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
        path = made.export_saved_model(os.path.join(directory, "export"), receiver, assets_extra={"a/b": __file__})
        assert os.path.exists(os.path.join(path, b"assets.extra/a/b"))
        raw = tf.estimator.export.build_raw_serving_input_receiver_fn(
            {"x": tf.placeholder(tf.float32, [None, 4], name="points")}, default_batch_size=2
        )
        second = made.export_savedmodel(os.path.join(directory, "raw"), raw)
        xs = models.points()[0][:2]
        value = tf.train.Feature(float_list=tf.train.FloatList(value=xs[0]))
        example = tf.train.Example(features=tf.train.Features(feature={"x": value})).SerializeToString()
        return {"parsed": _served(tf, path, [example]), "raw": _served(tf, second, xs), "type": type(path).__name__}


def _served(tf, path, value):
    with tf.Session(graph=tf.Graph()) as session:
        loaded = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], path.decode())
        signatures = {
            name: {
                "method": signature.method_name,
                "inputs": {k: [v.dtype, [d.size for d in v.tensor_shape.dim]] for k, v in signature.inputs.items()},
                "outputs": {k: [v.dtype, [d.size for d in v.tensor_shape.dim]] for k, v in signature.outputs.items()},
            }
            for name, signature in loaded.signature_def.items()
        }
        default = loaded.signature_def["serving_default"]
        (fed,) = default.inputs.values()
        out = session.run({key: info.name for key, info in default.outputs.items()}, {fed.name: value})
    return {"signatures": signatures, "out": out}


def in_turns(tf):
    """What `train_and_evaluate` of one process returns, and the steps that it evaluated."""
    with tempfile.TemporaryDirectory() as directory:
        made = models.estimator(tf, directory, save_checkpoints_steps=5)
        train = tf.estimator.TrainSpec(models.inputs(tf, epochs=None), max_steps=12)
        spec = tf.estimator.EvalSpec(models.inputs(tf), steps=None, throttle_secs=0, exporters=_exporters(tf))
        metrics, exports = tf.estimator.train_and_evaluate(made, train, spec)
        steps = [step for step, tag in _tags(tf, os.path.join(directory, "eval")) if tag == "loss"]
        kept = {name: len(os.listdir(os.path.join(directory, "export", name))) for name in ("latest", "final", "best")}
        return {"metrics": metrics, "exports": [type(path).__name__ for path in exports], "steps": steps, "kept": kept}


def _exporters(tf):
    features = {"x": tf.placeholder(tf.float32, [None, 4], name="points")}
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn(features)
    return [
        tf.estimator.LatestExporter("latest", receiver, exports_to_keep=1),
        tf.estimator.FinalExporter("final", receiver),
        tf.estimator.BestExporter("best", receiver, exports_to_keep=1),
    ]


def settings(tf, tf_config):
    """What a RunConfig says for a TF_CONFIG, or its error."""
    os.environ["TF_CONFIG"] = tf_config
    try:
        found = tf.estimator.RunConfig()
    except (TypeError, ValueError):
        return "refused"
    finally:
        del os.environ["TF_CONFIG"]
    names = (
        *("task_type", "task_id", "master", "evaluation_master", "is_chief", "num_ps_replicas", "num_worker_replicas"),
        *("global_id_in_cluster", "model_dir", "save_checkpoints_secs", "service"),
    )
    config = found.session_config
    filters = None if config is None else list(config.device_filters)
    cluster = found.cluster_spec.as_dict()
    return {**{name: getattr(found, name) for name in names}, "filters": filters, "cluster": cluster}


def all_settings(tf, tf_configs):
    """`settings` of several TF_CONFIGs."""
    return [settings(tf, tf_config) for tf_config in tf_configs]
