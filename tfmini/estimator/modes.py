"""``tf.estimator.ModeKeys``: what a model function is called for."""

from __future__ import annotations

from tfmini.export import export


@export("tf.estimator.ModeKeys")
class ModeKeys:
    """The names of the modes of a model function (``tf.estimator.ModeKeys``)."""

    TRAIN, EVAL, PREDICT = "train", "eval", "infer"
