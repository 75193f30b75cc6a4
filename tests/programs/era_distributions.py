"""Programs with distributions and bijectors, a part of `tests.programs.era`: it is Python 3.7 without tfmini."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run

TWO = np.float32([[0.5, -0.3, 1.0], [2.0, 0.1, -1.0]])
SCALES = np.float32([[0.7, 1.5, 2.0]])
# Class -> (arguments, values at which densities are asked for). A scalar is one of the parameters that broadcast.
SCALARS = {
    "Cauchy": ((TWO, SCALES), [[-2.0], [0.3]]), "Logistic": ((TWO, SCALES), [[-2.0], [0.3]]),
    "HalfNormal": ((SCALES,), [[0.2], [1.4]]), "Chi2": (([1.0, 2.5, 7.0],), [[0.2], [3.0]]),
    "InverseGamma": (([1.5, 2.5, 0.5], [[2.0], [0.7]]), [[0.2], [3.0]]),
    "Poisson": (([1.5, 4.0, 0.3],), [[0.0], [3.0]]),
    "Geometric": ((None, [0.2, 0.5, 0.9]), [[0.0], [3.0]]), "NegativeBinomial": (([3.0], TWO), [[0.0], [3.0]]),
    "Binomial": (([5.0], TWO), [[0.0], [3.0]]), "Deterministic": (([1.0, 2.0],), [[1.0], [2.5]]),
    "BetaWithSoftplusConcentration": ((TWO, SCALES), [[0.2], [0.7]]), "Chi2WithAbsDf": (([-3.2, 2.0],), [[0.2], [3.0]]),
    "ExponentialWithSoftplusRate": ((TWO,), [[0.2], [3.0]]), "Beta": ((SCALES, SCALES + 1), [[0.2], [0.7]]),
    "GammaWithSoftplusConcentrationRate": ((TWO, SCALES), [[0.2], [3.0]]), "Exponential": ((SCALES,), [[0.2], [3.0]]),
    "InverseGammaWithSoftplusConcentrationRate": ((TWO, SCALES), [[0.2], [3.0]]),
    "LaplaceWithSoftplusScale": ((TWO, TWO), [[-2.0], [0.3]]), "NormalWithSoftplusScale": ((TWO, TWO), [[-2.0], [0.3]]),
    "StudentTWithAbsDfSoftplusScale": ((SCALES * 3, TWO, TWO), [[-2.0], [0.3]]),
    "Kumaraswamy": ((SCALES, SCALES + 1), [[0.2], [0.7]]), "RelaxedBernoulli": ((0.5, TWO), [[0.2], [0.7]]),
    "SinhArcsinh": ((TWO, SCALES, 0.3, 1.2), [[-2.0], [0.3]]),
}  # fmt: skip
VECTORS = {
    "VectorDeterministic": ((TWO,), TWO), "OneHotCategorical": ((TWO,), [[0, 1, 0], [1, 0, 0]]),
    "ExpRelaxedOneHotCategorical": ((0.7, TWO), np.log(np.float32([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]))),
    "RelaxedOneHotCategorical": ((0.7, TWO), [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]),
    "DirichletMultinomial": ((4.0, np.exp(TWO)), [[1.0, 2.0, 1.0], [0.0, 3.0, 1.0]]),
    "MultivariateNormalDiag": ((TWO, SCALES), [[0.1, 0.2, 0.3]]),
    "MultivariateNormalDiagWithSoftplusScale": ((TWO, TWO), [[0.1, 0.2, 0.3]]),
    "MultivariateNormalTriL": ((TWO, np.eye(3, dtype=np.float32) + 0.3), [[0.1, 0.2, 0.3]]),
    "MultivariateNormalFullCovariance": ((TWO, np.eye(3, dtype=np.float32) + 0.3), [[0.1, 0.2, 0.3]]),
    "MultivariateNormalDiagPlusLowRank": ((TWO, SCALES[0], None, TWO.T[:, :1] + 0.2), [[0.1, 0.2, 0.3]]),
    "VectorExponentialDiag": ((TWO, SCALES[0]), [[3.1, 2.2, 1.3]]),
    "VectorLaplaceDiag": ((TWO, SCALES[0]), [[0.1, 0.2, 0.3]]),
}  # fmt: skip
METHODS = ("log_prob", "prob", "cdf", "log_cdf", "survival_function", "log_survival_function")
NUMBERS = ("mean", "mode", "variance", "stddev", "entropy", "covariance")


def _answers(tf: Any, one: Any, value: Any) -> Any:
    value = np.asarray(value, one.dtype.as_numpy_dtype)
    if not one.event_shape.ndims:  # as large as the batch: betainc does not broadcast in TensorFlow
        value = value + np.zeros(one.batch_shape.as_list(), value.dtype)
    name = one.name.replace("_1", "").split("/")[0]
    found = {"shapes": [str(one.batch_shape), str(one.event_shape), one.dtype.name, name],
             "tensors": run(tf, [one.batch_shape_tensor(), one.event_shape_tensor()]),
             "flows": str(one.reparameterization_type), "sample": str(one.sample([2, 3]).shape) if
             type(one).__name__ != "Binomial" else outcome(one.sample)}  # fmt: skip
    narrow = ("Beta", "NegativeB", "StudentT")  # by betainc, whose shapes must be the same in TensorFlow
    for name in METHODS[:2] if type(one).__name__.startswith(narrow) else METHODS:
        found[name] = outcome(lambda name=name: run(tf, getattr(one, name)(value)))
    for name in NUMBERS:
        found[name] = outcome(lambda name=name: run(tf, getattr(one, name)()))
    return found


def _of_table(tf: Any, table: Any) -> Any:
    ds = tf.contrib.distributions
    return {name: _answers(tf, getattr(ds, name)(*arguments), value) for name, (arguments, value) in table.items()}


@program
def distributions_of_scalars(tf: Any) -> Any:
    return _of_table(tf, SCALARS)


@program
def distributions_of_vectors(tf: Any) -> Any:
    return _of_table(tf, VECTORS)


@program
def gradients_of_distributions(tf: Any) -> Any:
    found = {}
    for name, (arguments, value) in list(SCALARS.items()) + list(VECTORS.items()):
        if "Deterministic" in name or name == "OneHotCategorical":
            continue
        given = [None if one is None else tf.constant(one, tf.float32) for one in arguments]
        one = getattr(tf.contrib.distributions, name)(*given)
        x = tf.constant(value, one.dtype)
        slopes = tf.gradients(one.log_prob(x), [g for g in given if g is not None] + [x])
        found[name] = [None if slope is None else run(tf, slope) for slope in slopes]
    return found


@program
def samples_have_their_moments(tf: Any) -> Any:
    """Whether the means and deviations of samples are those of the distribution."""
    found = {}
    for name, (arguments, _) in list(SCALARS.items()) + list(VECTORS.items()):
        if name in ("Cauchy", "Binomial", "InverseGamma") or "WithSoftplusC" in name or "Student" in name:
            continue
        one = getattr(tf.contrib.distributions, name)(*arguments)
        moments = outcome(lambda one=one: [one.mean(), one.stddev()])
        if isinstance(moments, str):
            continue
        drawn = tf.cast(one.sample(4000, seed=3), tf.float32)
        mean, deviation, wanted, spread = run(tf, [tf.reduce_mean(drawn, 0), tf.math.reduce_std(drawn, 0)] + moments)
        near = (
            np.all(np.abs(mean - wanted) < 0.1 * (spread + 0.01)),
            np.all(np.abs(deviation - spread) < 0.2 * spread + 0.01),
        )
        found[name] = [bool(part) for part in near]
    return found


@program
def divergences(tf: Any) -> Any:
    ds = tf.contrib.distributions
    tril = np.eye(3, dtype=np.float32) + np.tril(np.full([3, 3], 0.3, np.float32))
    pairs = {
        "OneHotCategorical": [(TWO,), (TWO[::-1].copy(),)], "Laplace": [(TWO, SCALES), (TWO, SCALES)],
        "MultivariateNormalTriL": [(TWO, tril), (TWO + 1, tril.T.copy())],
        "MultivariateNormalDiag": [(TWO, SCALES), (TWO + 1, SCALES + 1)],
        "Normal": [(TWO, SCALES), (TWO + 1, SCALES + 1)],
    }  # fmt: skip
    return {
        name: outcome(
            lambda name=name, a=a, b=b: run(tf, ds.kl_divergence(getattr(ds, name)(*a), getattr(ds, name)(*b)))
        )
        for name, (a, b) in pairs.items()
    }


@program
def functions_of_distributions(tf: Any) -> Any:
    ds = tf.contrib.distributions
    x = tf.constant(np.float32([0.1, 1.0, 30.0]))
    logs, weights = tf.constant(TWO), tf.constant(np.float32([[1.0, -1.0, 0.5], [-2.0, 1.0, 1.0]]))
    found = [ds.softplus_inverse(x), tf.gradients(ds.softplus_inverse(x), x),
             ds.reduce_weighted_logsumexp(logs, weights, axis=1, return_sign=True),
             ds.reduce_weighted_logsumexp(logs, axis=0, keep_dims=True),
             ds.fill_triangular(np.arange(6.0)), ds.fill_triangular(np.arange(12.0).reshape(2, 6), upper=True),
             ds.fill_triangular_inverse(ds.fill_triangular(np.arange(6.0))), ds.tridiag([1.0], [2.0, 3.0], [4.0]),
             ds.matrix_diag_transform(TWO[:, :2], tf.exp)]  # fmt: skip
    found += [ds.percentile(TWO, q, axis=axis, interpolation=how) for q in (30.0, 50.0) for axis in (None, 0, [1])
              for how in ("lower", "higher", "nearest")]  # fmt: skip
    return run(tf, found)


BIJECTORS = {
    "AffineScalar": ((0.5, -2.0), TWO), "Exp": ((), TWO), "Gumbel": ((0.3, 1.5), TWO), "Identity": ((), TWO),
    "Kumaraswamy": ((1.5, 0.7), np.float32([0.2, 0.7])), "PowerTransform": ((0.5,), TWO), "Sigmoid": ((), TWO),
    "SinhArcsinh": ((0.3, 1.2), TWO), "Softplus": ((), TWO), "Softsign": ((), TWO), "Square": ((), np.abs(TWO)),
    "Affine": ((TWO, None, SCALES[0]), TWO), "SoftmaxCentered": ((), TWO), "Permute": (([2, 0, 1],), TWO),
    "FillTriangular": ((), TWO), "Ordered": ((), TWO),
    "ScaleTriL": ((), TWO), "CholeskyOuterProduct": ((), np.float32([[1.0, 0.0], [0.5, 2.0]])),
    "MatrixInverseTriL": ((), np.float32([[1.0, 0.0], [0.5, 2.0]])),
}  # fmt: skip


@program
def bijectors_map(tf: Any) -> Any:
    bijectors, found = tf.contrib.distributions.bijectors, {}
    for name, (arguments, value) in BIJECTORS.items():
        one = getattr(bijectors, name)(*arguments)
        x = tf.constant(value)
        y = one.forward(x)
        again = tf.constant(run(tf, y))
        low, high = one.forward_min_event_ndims, one.inverse_min_event_ndims
        tensors = [y, one.inverse(again), one.forward_log_det_jacobian(x, low),
                   one.inverse_log_det_jacobian(again, high),
                   one.forward_event_shape_tensor(x.shape.as_list()[x.shape.ndims - low :])]  # fmt: skip
        more = outcome(lambda one=one, x=x, low=low: run(tf, one.forward_log_det_jacobian(x, low + 1)))
        slopes = tf.gradients(tf.reduce_sum(tf.sin(y)) + tf.reduce_sum(tensors[2]), x)
        found[name] = [run(tf, tensors), more, run(tf, slopes), one.name, low, high, one.is_constant_jacobian]
    return found


@program
def bijectors_of_bijectors(tf: Any) -> Any:
    b = tf.contrib.distributions.bijectors
    chain = b.Chain([b.Exp(), b.AffineScalar(1.0, 2.0), b.Softplus()])
    inverse = b.Invert(
        b.Chain([b.Softplus(), b.Affine(scale_tril=np.float32([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.1, 0.2, 1.5]]))])
    )
    inline = b.Inline(forward_fn=tf.exp, inverse_fn=tf.log, forward_min_event_ndims=0,
                      inverse_log_det_jacobian_fn=lambda y: -tf.log(y), name="mine")  # fmt: skip
    x = np.abs(TWO) + 0.1
    found = [[one.forward(x), one.inverse(one.forward(tf.identity(x))), one.forward_log_det_jacobian(x, 1),
              one.inverse_log_det_jacobian(x, 1)] for one in (chain, inverse, inline)]  # fmt: skip
    return run(tf, found), [chain.name, inverse.name, inline.name, chain.forward_min_event_ndims]


@program
def transformed_distributions(tf: Any) -> Any:
    ds = tf.contrib.distributions
    b, found = ds.bijectors, {}
    log_normal = ds.TransformedDistribution(ds.Normal(TWO, SCALES), b.Exp(), name="LogNormal")
    found["log normal"] = _answers(tf, log_normal, np.abs(TWO) + 0.1)
    wide = ds.TransformedDistribution(ds.Normal(0.0, 1.0), b.Affine(shift=TWO, scale_diag=SCALES[0]), [2], [3])
    found["wide"] = _answers(tf, wide, TWO + 0.2)
    del found["wide"]["mean"]  # which TensorFlow has not
    found["independent"] = _answers(tf, ds.Independent(ds.Normal(TWO, SCALES)), TWO + 0.2)
    found["all independent"] = _answers(tf, ds.Independent(ds.Normal(TWO, SCALES), 2), TWO + 0.2)
    mixture = ds.Mixture(ds.Categorical(probs=[0.3, 0.7]), [ds.Normal(0.0, 1.0), ds.Normal(2.0, 0.5)])
    found["mixture"] = _answers(tf, mixture, [0.3, 1.2])
    family = ds.MixtureSameFamily(ds.Categorical(logits=TWO), ds.Normal(TWO, SCALES))
    found["family"] = _answers(tf, family, [0.3, 1.2])
    vectors = ds.MixtureSameFamily(ds.Categorical(probs=[0.3, 0.7]), ds.MultivariateNormalDiag(TWO, SCALES))
    found["vectors"] = _answers(tf, vectors, [0.1, 0.2, 0.3])
    found["quantized"] = _answers(tf, ds.QuantizedDistribution(ds.Normal(2.0 * TWO, SCALES), -1.0, 3.0), [[0.0], [1.0]])
    return found


@program
def jacobians_where_the_rank_is_unknown(tf: Any) -> Any:
    """One that is constant counts the axes of an event when it runs."""
    bijectors = tf.contrib.distributions.bijectors
    found = []
    for bijector in (bijectors.Identity(), bijectors.AffineScalar(scale=2.0), bijectors.Exp()):
        for event_ndims in (0, 1, 2):
            x = tf.placeholder_with_default(np.abs(TWO) + 0.5, None)
            slopes = (
                bijector.forward_log_det_jacobian(x, event_ndims),
                bijector.inverse_log_det_jacobian(x, event_ndims),
            )
            found.append(run(tf, slopes))
    return found


@program
def arguments_and_copies_of_distributions_made_of_others(tf: Any) -> Any:
    made, tril = tf.contrib.distributions, [[1.0, 0.0], [1.0, 2.0]]

    class Mine(made.MultivariateNormalDiag):
        pass

    class Other(made.MultivariateNormalDiag):
        def __init__(self, size: int) -> None:
            super().__init__([0.5] * size, name="Other")

    given = [
        Mine([0.0, 1.0], [1.0, 2.0]), Other(2), made.MultivariateNormalDiagWithSoftplusScale([0.0], [1.0]),
        made.MultivariateNormalDiagPlusLowRank([0.0, 1.0], [1.0, 2.0]), made.MultivariateNormalTriL([0.0, 1.0], tril),
        made.MultivariateNormalFullCovariance([0.0, 1.0], np.eye(2, dtype=np.float32)), made.SinhArcsinh(0.0, 1.0),
        made.VectorExponentialDiag([0.0, 1.0], [1.0, 2.0]), made.VectorLaplaceDiag([0.0, 1.0], [1.0, 2.0]),
        made.RelaxedBernoulli(0.5, logits=[0.0, 1.0]), made.BatchReshape(made.Normal([0.0], [1.0]), [1, 1]),
        made.Exponential(1.0), made.Chi2(3.0),
        made.TransformedDistribution(made.Normal(0.0, 1.0), made.bijectors.Exp()),
    ]  # fmt: skip
    found = []
    for one in given:
        arguments = one.parameters
        other = outcome(lambda: one.copy(validate_args=True))  # noqa: B023 - called at once
        name = arguments.pop("name")
        found.append(
            [type(one).__name__, sorted(arguments), name, other if other == "TypeError" else type(other).__name__]
        )
    moved = given[0].copy(loc=[2.0, 3.0])
    with tf.Session() as session:
        return found, session.run(
            [moved.mean(), moved.log_prob([2.0, 3.0]), given[0].parameters["scale_diag"] * tf.ones([])]
        )


@program
def shapes_of_vectors_in_batches_of_unknown_size(tf: Any) -> Any:
    made = tf.contrib.distributions
    m = s = tf.placeholder(tf.float32, [None, 5, 1])
    three, any_rank = tf.placeholder(tf.float32, [None, 3, 3]), tf.placeholder(tf.float32)
    unit, tril = made.Normal(0.0, 1.0), [[1.0, 0.0], [1.0, 1.0]]
    given = [
        made.MultivariateNormalDiag(m, s), made.MultivariateNormalDiag(m, [2.0]), made.VectorLaplaceDiag(m, s),
        made.MultivariateNormalTriL(None, three), made.MultivariateNormalTriL([1.0, 2.0, 3.0], three),
        made.MultivariateNormalDiag(any_rank, s), made.TransformedDistribution(
            unit, made.bijectors.Affine(scale_tril=tril), event_shape=[2], batch_shape=tf.shape(m)[:1]),
        made.TransformedDistribution(unit, made.bijectors.Exp(), batch_shape=tf.stack([tf.shape(m)[0], 3])),
        made.BatchReshape(made.Normal(m, s), [-1, 1, 5, 1]),
    ]  # fmt: skip
    samples = [one.sample(2) for one in given]
    shapes = [[one.event_shape, sample.shape, one.log_prob(sample).shape] for one, sample in zip(given, samples)]
    values = (
        given[0].log_prob(m),
        given[0].mean(),
        given[4].log_prob(three[:, 0]),
        made.kl_divergence(given[0], given[1]),
        given[-1].batch_shape_tensor(),
    )
    fed = {m: np.full([2, 5, 1], 0.5), three: [[[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 2.0]]] * 2}
    with tf.Session() as session:
        return [[str(shape) for shape in row] for row in shapes], session.run(values, fed)


@program
def moving_and_conjugate_statistics(tf: Any) -> Any:
    d = tf.contrib.distributions
    value, found = tf.placeholder(tf.float32, [2]), []
    moving = d.moving_mean_variance(value, 0.9)
    log = tf.Variable([0.5, -1.0], name="log")
    kept = d.assign_log_moving_mean_exp(log, value, 0.8)
    names = [variable.op.name for variable in tf.global_variables()], len(tf.trainable_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for now in ([1.0, 2.0], [3.0, -1.0], [0.5, 0.5]):
            found.append(session.run([*moving, kept], {value: now}))
            found.append(session.run(tf.global_variables()))
    prior = d.Normal(loc=[0.0, 1.0], scale=[1.0, 2.0])
    sums, count = tf.constant([3.0, 4.0]), 5
    posterior = d.normal_conjugates_known_scale_posterior(prior, 0.5, sums, count)
    predictive = d.normal_conjugates_known_scale_predictive(prior, tf.constant([0.5, 2.0]), sums, count)
    refused = [
        outcome(lambda: d.normal_conjugates_known_scale_posterior(d.Bernoulli(0.0), 0.5, sums, count)),
        outcome(lambda: d.normal_conjugates_known_scale_posterior(prior, 0.5, tf.constant([1, 2]), count)),
        outcome(lambda: d.moving_mean_variance(tf.constant([1, 2]), 0.9)),
    ]
    with tf.Session() as session:
        after = session.run([posterior.loc, posterior.scale, predictive.loc, predictive.scale, predictive.prob(1.0)])
    return found, names, after, refused


@program
def shapes_of_parameters(tf: Any) -> Any:
    """What `param_shapes` of each class says, and `param_static_shapes` of one of other forms of shapes."""
    known = tf.contrib.distributions
    base = known.Distribution
    classes = {name: one for name, one in vars(known).items() if isinstance(one, type) and issubclass(one, base)}
    made = tf.distributions.Normal
    found = {
        name: [
            outcome(lambda one=one: run(tf, one.param_shapes([3, 2]))),
            outcome(lambda one=one: {key: str(shape) for key, shape in one.param_static_shapes([3, 2]).items()}),
        ]
        for name, one in sorted(classes.items())
        if name in {*SCALARS, *VECTORS, "Bernoulli", "Categorical", "Gamma", "Mixture", "Normal", "StudentT", "Uniform"}
    }
    for given in (7, tf.constant([2, 3]), tf.TensorShape([2]), tf.TensorShape([None]), tf.placeholder(tf.int32, [2])):
        shapes = outcome(lambda given=given: made.param_static_shapes(given))
        found[str(given)] = shapes if isinstance(shapes, str) else [str(shape) for shape in shapes.values()]
    return found
