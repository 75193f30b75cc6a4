"""The base class of distributions: shapes of samples, copies, classes of a library, the registry of divergences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

tfd = tf.distributions


def test_samples_have_the_shapes_of_samples_batch_and_event() -> None:
    dirichlet = tfd.Dirichlet(tf.ones([2, 3]))
    assert dirichlet.sample([4, 5]).shape.as_list() == [4, 5, 2, 3]
    assert run(dirichlet.sample(tf.placeholder_with_default(4, []))).shape == (4, 2, 3)
    assert run(dirichlet.sample()).shape == (2, 3)
    unknown = tfd.Normal(tf.placeholder_with_default([0.0, 1.0], None), 1.0)
    assert run(unknown.batch_shape_tensor()).tolist() == [2] and run(unknown.sample(3)).shape == (3, 2)


def test_a_subclass_gets_the_number_of_samples_as_a_number() -> None:
    numbers: list[Any] = []

    class Own(tfd.Normal):
        def _sample_n(self, n: Any, seed: Any = None) -> Any:
            numbers.append(n)
            return super()._sample_n(n, seed)

    own = Own(0.0, 1.0)
    assert own.sample().shape == () and own.sample([2, 3]).shape == (2, 3)
    own.sample(tf.placeholder_with_default(4, []))
    assert numbers[:2] == [1, 6] and isinstance(numbers[2], tf.Tensor)


def test_a_copy_has_other_arguments() -> None:
    copy = tfd.Normal(0.0, 2.0, name="other").copy(loc=3.0)
    assert run([copy.mean(), copy.stddev()]) == [3.0, 2.0] and copy.name == "other_1/"


def test_the_ops_of_a_distribution_are_in_its_scope() -> None:
    with tf.name_scope("outer"):
        normal = tfd.Normal(0.0, 2.0)
    assert normal.name == "outer/Normal/" and normal.prob(1.0).op.name.startswith("outer/Normal/prob/")


def test_libraries_derive_classes_and_divergences() -> None:
    class Point(tfd.Distribution):
        def __init__(self, at: Any) -> None:
            self.at = tf.convert_to_tensor(at)
            super().__init__(self.at.dtype, tfd.FULLY_REPARAMETERIZED, parameters=dict(locals()))

        def _batch_shape(self) -> Any:
            return self.at.shape

        def _sample_n(self, n: Any, seed: int | None = None) -> Any:
            return self.at + tf.zeros(tf.concat([[n], tf.shape(self.at)], 0))

        def _prob(self, value: Any) -> Any:
            return tf.cast(tf.equal(value, self.at), tf.float32)

    point = Point([1.0, 2.0])
    assert run(point.sample(2)).tolist() == [[1, 2], [1, 2]]
    assert run([point.prob(1.0), point.log_prob(1.0)])[1].tolist() == [0.0, -np.inf]
    with pytest.raises(NotImplementedError, match="entropy"):
        point.entropy()
    with pytest.raises(NotImplementedError, match="No KL"):
        tfd.kl_divergence(point, point)
    tfd.RegisterKL(Point, Point)(lambda a, b: tf.abs(a.at - b.at))
    assert run(tfd.kl_divergence(point, Point([3.0, 2.0]))).tolist() == [2, 0]
    with pytest.raises(ValueError, match="already been registered"):
        tfd.RegisterKL(Point, Point)(max)
