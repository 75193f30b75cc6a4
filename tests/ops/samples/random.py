"""Samples of the ops in tfmini/ops/random: with the same seeds, the numbers are TensorFlow's."""

from tests.ops.samples.notation import each

SAMPLES = (
    each("RandomUniform RandomStandardNormal TruncatedNormal", "shape=[2, 3], dtype=float32, seed=1, seed2=2",
         "shape=i64([5]), dtype=float64, seed=7", "shape=[4], dtype=half, seed2=3", "shape=[4], dtype=bfloat16, seed=3")
    + each("RandomUniformInt", "shape=[6], minval=-3, maxval=9, seed=1, seed2=2",
           "shape=[4], minval=int64(0), maxval=int64(2**40), seed=5")
    + each("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal", "shape=[2, 3], seed=[1, 2]",
           "shape=i64([5]), seed=i64([2**40, -3]), dtype=float64", "shape=[4], seed=[1, 2], dtype=half",
           "shape=[4], seed=[1, 2], dtype=bfloat16")
    + each("StatelessRandomUniformInt", "shape=[6], seed=[1, 2], minval=-3, maxval=9",
           "shape=[4], seed=[5, 6], minval=int64(0), maxval=int64(2**40)")
    + r"""
r = RandomUniform(shape=[2], dtype=float32, seed=4); r; r
RandomShuffle(value=list(range(8)), seed=1, seed2=2)
RandomShuffle(value=f32(4, 2), seed=3)
Multinomial(logits=f32(2, 4), num_samples=6, seed=1, seed2=2)
Multinomial(logits=f64(1, 3), num_samples=4, seed=3, output_dtype=int32)
StatelessMultinomial(logits=f32(2, 4), num_samples=6, seed=[1, 2])
StatelessMultinomial(logits=f32(1, 3), num_samples=3, seed=i64([3, 4]), output_dtype=int32)
"""
)  # fmt: skip

# The same distributions from streams of their own.
SHAPES = r"""
RandomGamma(shape=[5], alpha=[0.5, 2.0, 30.0], seed=1, seed2=2)
RandomGamma(shape=[3], alpha=float64(2.5), seed=3)
RandomPoissonV2(shape=[4], rate=[0.5, 4.0, 50.0], seed=1, seed2=2, dtype=float32)
RandomPoissonV2(shape=[3], rate=float64(2), seed=3)
ParameterizedTruncatedNormal(shape=[2, 4], means=[0.0, 5.0], stdevs=[1.0, 2.0], minvals=[-1.0, 6.0],
    maxvals=[2.0, 9.0], seed=1, seed2=2)
ParameterizedTruncatedNormal(shape=[5], means=float64(0), stdevs=float64(1), minvals=float64(3),
    maxvals=float64(5), seed=3)
"""
