"""Programs with the rarer ops of TensorFlow 1.15: fractional pooling, patches of volumes, simulated quantisation."""

from __future__ import annotations

import collections
import importlib
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.round(np.random.RandomState(seed).uniform(-2, 2, shape), 3).astype(np.float32)


@program
def fractional_pooling_by_seed(tf: Any) -> Any:
    x = tf.constant(_numbers(1, 9, 11, 2))
    found = []
    for pool, pseudo, overlapping in itertools.product((tf.nn.fractional_max_pool, tf.nn.fractional_avg_pool),
                                                       (False, True), (False, True)):  # fmt: skip
        out = pool(x, [1.0, 1.44, 1.73, 1.0], pseudo, overlapping, deterministic=True, seed=7, seed2=3)
        (grad,) = tf.gradients(out.output, [x], tf.constant(_numbers(1, 6, 6, 2, seed=1)))
        found.append([out.output, out.row_pooling_sequence, out.col_pooling_sequence, grad])
    types = [op.type for op in x.graph.get_operations()]
    return run(tf, found), [item[0].shape.as_list() for item in found], types


@program
def bounds_of_fractional_windows(tf: Any) -> Any:
    found = []
    for rows, columns, pseudo, seed in itertools.product((5, 13, 40), (6, 29), (False, True), (1, 2)):
        x = tf.constant(np.arange(rows * columns, dtype=np.int64).reshape(1, rows, columns, 1) - 20)
        for pool in (tf.nn.fractional_max_pool, tf.nn.fractional_avg_pool):
            found += pool(x, [1, 1.3, 2.7, 1], pseudo, deterministic=True, seed=seed, seed2=seed + 4)
    return run(tf, found)


@program
def fractional_pooling_of_version_2(tf: Any) -> Any:
    x, nn = tf.constant(_numbers(2, 8, 8, 1)), tf.compat.v2.nn
    found = [nn.fractional_max_pool(x, ratio, seed=5) for ratio in (1.5, [1.5], [1.2, 2.2], [1, 1.7, 1.7, 1])]
    found += [nn.fractional_avg_pool(x, [1, 1.6, 1.2, 1], True, True, seed=9)]
    attrs = [[out[0].op.get_attr(name) for name in ("deterministic", "seed", "seed2", "overlapping")] for out in found]
    tf.set_random_seed(4)
    attrs.append([nn.fractional_max_pool(x, 1.5, seed=seed)[0].op.get_attr("seed2") for seed in (0, 3)])
    refused = [outcome(lambda pool=pool, ratio=ratio: pool(x, ratio))
               for pool, ratio in ((nn.fractional_max_pool, [1, 2, 3]), (nn.fractional_avg_pool, 1.5),
                                   (tf.nn.fractional_max_pool, [1.0, 2.0]))]  # fmt: skip
    return run(tf, found), attrs, refused


@program
def patches_of_volumes(tf: Any) -> Any:
    found = []
    for shape, ksizes, strides, padding in (((2, 3, 4, 5, 2), (2, 2, 3), (1, 2, 2), "SAME"),
                                            ((1, 4, 3, 6, 1), (2, 1, 3), (2, 1, 1), "VALID"),
                                            ((1, 5, 5, 5, 1), (3, 3, 2), (2, 3, 3), "SAME")):  # fmt: skip
        x = tf.constant(_numbers(*shape))
        y = tf.extract_volume_patches(x, [1, *ksizes, 1], [1, *strides, 1], padding)
        weights = tf.constant(_numbers(*y.shape.as_list(), seed=2))
        found += [y, *tf.gradients(y, [x], weights)]
    return run(tf, found), [y.shape.as_list() for y in found]


@program
def simulated_quantisation(tf: Any) -> Any:
    x, quantization = tf.constant(_numbers(3, 2, 4) * 4), tf.quantization
    found = []
    for low, high, bits, narrow in ((-6.0, 6.0, 8, False), (0.5, 3.0, 4, False), (-5.0, -1.0, 3, True),
                                    (-2.3, 4.1, 5, True), (-2.3, 4.1, 16, False)):  # fmt: skip
        lows, highs = tf.constant(low), tf.constant(high)
        y = quantization.fake_quant_with_min_max_args(x, low, high, bits, narrow)
        z = quantization.fake_quant_with_min_max_vars(x, lows, highs, bits, narrow_range=narrow)
        found += [y, z, *tf.gradients(y, [x]), *tf.gradients(z, [x, lows, highs], tf.constant(_numbers(3, 2, 4)))]
    lows, highs = tf.constant([-1.0, 0, -3.2, 0.4]), tf.constant([2.0, 0, -0.1, 3])
    for bits, narrow in ((8, False), (4, True)):
        y = quantization.fake_quant_with_min_max_vars_per_channel(x, lows, highs, bits, narrow)
        found += [y, *tf.gradients(y, [x, lows, highs], tf.constant(_numbers(3, 2, 4)))]
    found += [quantization.fake_quant_with_min_max_vars(x, 0.0, 0.0),
              *quantization.fake_quant_with_min_max_vars_gradient(x, x, 0.0, 0.0)]  # fmt: skip
    odd = [outcome(lambda bits=bits: run(tf, tf.fake_quant_with_min_max_args(x, num_bits=bits))) for bits in (1, 17)]
    odd += [outcome(lambda: run(tf, tf.fake_quant_with_min_max_args(x, min=1, max=1)))]
    odd += [outcome(lambda: tf.fake_quant_with_min_max_vars_per_channel(x, [1.0], [2.0]))]
    return run(tf, found), odd, [[y.shape.as_list(), y.op.type, y.name] for y in found]


@program
def ngrams_of_strings(tf: Any) -> Any:
    words = ["aa", "bb", "cc", "dd"]
    # No empty row: where there is padding, 1.15.5 reads a string that is not the row's.
    ragged = tf.ragged.constant([["a", "b", "c"], ["d"], ["e", "f"]])
    deep = tf.ragged.constant([[["a", "b", "c"], ["d"]], [["e", "f"]]])
    options = [(2,), (3, "|"), ([1, 2], ""), (3, "-", "P"), (3, "-", ("L", "R")), (4, "-", ("L", "R"), 1),
               (5, " ", None, None, True), (4, " ", "p", 1, True)]  # fmt: skip
    found = [tf.strings.ngrams(data, *each) for each in options for data in (words, [words, words[::-1]])]
    rows = [tf.strings.ngrams(data, *each) for each in options for data in (ragged, deep)]
    bad = [outcome(lambda each=each: tf.strings.ngrams(words, *each)) for each in
           ((0,), (2, "", 3), (2, "", None, 1), (2, "", "a", 0), (2, "", ("a", 1)))]  # fmt: skip
    bad += [outcome(lambda data=data: tf.strings.ngrams(data, 2)) for data in ("a", tf.placeholder(tf.string))]
    values = run(tf, found + [row.flat_values for row in rows] + [row.nested_row_splits for row in rows])
    return values, bad, [y.shape.as_list() for y in found]


@program
def images_in_a_frame(tf: Any) -> Any:
    found = []
    for shape, target in (((4, 6, 2), (5, 5)), ((2, 7, 3, 1), (4, 8)), ((3, 3, 1), (7, 4)), ((5, 9, 1), (3, 3))):
        x = tf.constant(_numbers(*shape))
        fed = tf.placeholder_with_default(x, [None] * len(shape))
        for image in (x, fed):
            y = tf.image.resize_image_with_pad(image, *target)
            found += [y, *tf.gradients(y, [image])]
        found += [tf.image.resize_image_with_pad(x, *target, method=tf.image.ResizeMethod.NEAREST_NEIGHBOR),
                  tf.image.resize_image_with_pad(x, *map(tf.constant, target), align_corners=True)]  # fmt: skip
    found.append(tf.image.resize_image_with_pad(tf.placeholder_with_default(_numbers(4, 6, 2), None), 3, 5))
    bad = [outcome(lambda: tf.image.resize_image_with_pad(x, 0, 3)),
           outcome(lambda: tf.image.resize_image_with_pad(tf.zeros([3]), 1, 3))]  # fmt: skip
    return run(tf, found), bad, [str(y.shape) for y in found[::4]]


@program
def likeness_of_several_scales(tf: Any) -> Any:
    x = tf.constant(np.abs(_numbers(2, 45, 39, 2)) / 2)
    y = x * 0.9 + tf.constant(np.abs(_numbers(2, 45, 39, 2, seed=1))) * 0.05
    two = tf.image.ssim_multiscale(x, y, 1.0, power_factors=(0.3, 0.7))
    three = tf.image.ssim_multiscale(x[0], y[0], 1.0, [0.2, 0.3, 0.5], filter_size=5, filter_sigma=1.0, k1=0.02)
    whole = tf.cast(x * 255, tf.uint8)
    found = [two, three, tf.image.ssim_multiscale(whole, whole[::-1], 255, [0.5, 0.5])]
    return run(tf, [*found, tf.reduce_sum(tf.abs(tf.gradients(two, [x])[0]))]), [y.shape.as_list() for y in found]


@program
def jpeg_qualities(tf: Any) -> Any:
    ramp = np.linspace(0, 1, 16 * 16 * 3).reshape(16, 16, 3).astype(np.float32)
    image, whole = tf.constant(ramp), tf.constant((ramp * 255).astype(np.uint8))
    tf.set_random_seed(5)
    found = [tf.image.adjust_jpeg_quality(image, 90), tf.image.adjust_jpeg_quality(whole, tf.constant(40)),
             tf.image.random_jpeg_quality(image, 20, 80, seed=3)]  # fmt: skip
    uniform = [op for op in image.graph.get_operations() if op.type == "RandomUniformInt"]
    bad = [outcome(lambda low=low, high=high: tf.image.random_jpeg_quality(image, low, high))
           for low, high in ((-1, 5), (5, 101), (7, 7))]  # fmt: skip
    bounds = run(tf, [tf.image.adjust_jpeg_quality(whole, quality) for quality in (-5, 0, 100, 101)])
    bounded = [bool((a == b).all()) for a, b in zip(bounds, bounds[1:])]
    values = run(tf, [*found, uniform[0].outputs[0]])
    means = [[float(np.mean(np.abs(value - base))) < limit for value, base, limit in
              zip(values, (ramp, ramp * 255, ramp), (0.02, 9, 0.06))]]  # fmt: skip
    return (means, int(values[3]), uniform[0].get_attr("seed2"), bad, [str(y.shape) + y.dtype.name for y in found],
            bounded)  # fmt: skip


@program
def boxes_of_several_classes(tf: Any) -> Any:
    corners, scores = np.abs(_numbers(2, 8, 3, 4)) / 2, np.abs(_numbers(2, 8, 3, seed=1))
    found = []
    for options in ({}, {"iou_threshold": 0.1, "score_threshold": 0.7}, {"pad_per_class": True, "clip_boxes": False}):
        for boxes in (corners, corners[:, :, :1] * 1.4):
            found += tf.image.combined_non_max_suppression(boxes, scores, 2, 7, **options)
    choose = tf.image.combined_non_max_suppression
    bad = [outcome(lambda args=args: run(tf, choose(corners, scores, *args)[0])) for args in
           ((1, 5, 1.5), (1, [5]))]  # fmt: skip
    bad.append(outcome(lambda: tf.image.combined_non_max_suppression(corners[:, :, :2], scores, 2, 2)))
    sizes = ((0, 3, False), (0, 3, True), (-1, 3, False), (1, 0, False), (1, -1, True))
    bad += [outcome(lambda sizes=sizes: run(tf, choose(corners, scores, *sizes[:2], pad_per_class=sizes[2])))
            for sizes in sizes]  # fmt: skip
    none = tf.placeholder_with_default(0, [])
    found += choose(corners, scores, none, 2, pad_per_class=True) + choose(corners, scores, none, 2)
    return run(tf, found), [str(y.shape) for y in (*found[:4], *found[20:24])], found[0].name, bad


@program
def sliding_windows_of_elements(tf: Any) -> Any:
    found, contrib = [], tf.contrib.data
    for options in ({"window_size": 3}, {"window_size": 2, "stride": 3},
                    {"window_size": 3, "window_shift": 2, "window_stride": 2},
                    {"window_size": 20}, {"window_size": 1, "window_shift": 5}):  # fmt: skip
        data = tf.data.Dataset.range(9).map(lambda x: {"n": x, "s": (tf.as_string(x), [x, x])})
        data = data.apply(contrib.sliding_window_batch(**options))
        found.append([str(data.output_shapes), _elements(tf, data)])
    bad = [outcome(lambda args=args: _elements(tf, tf.data.Dataset.range(3).apply(contrib.sliding_window_batch(*args))))
           for args in ((0,), (2, 0), (2, None, 1, 0), (2, 1, 1))]  # fmt: skip
    ragged = tf.data.Dataset.from_tensor_slices([1, 2]).map(lambda n: tf.range(n))
    bad.append(outcome(lambda: _elements(tf, ragged.apply(contrib.sliding_window_batch(2)))))
    return found, bad


@program
def shapes_of_elements_that_are_asserted(tf: Any) -> Any:
    contrib, shape = tf.contrib.data, tf.TensorShape
    pair = tf.data.Dataset.from_tensor_slices((np.ones((3, 4), np.float32), np.zeros((3, 2, 1), np.int32)))
    unknown = pair.map(lambda x, y: (tf.py_func(lambda v: v, [x], tf.float32), y))
    found = []
    wanted = [(shape([4]), shape([2, 1])), (shape([4]), shape([None, 1])), (shape(None), shape([2, None])),
              (shape([None]), shape(None))]  # fmt: skip
    for data, shapes in zip((pair, unknown, unknown, unknown), wanted):
        data = data.apply(contrib.assert_element_shape(shapes))
        found.append([str(data.output_shapes), _elements(tf, data)])
    other = contrib.assert_element_shape((shape([5]), shape([2, 1])))
    bad = [outcome(lambda: pair.apply(other)), outcome(lambda: _elements(tf, unknown.apply(other)))]
    named = tf.data.Dataset.from_tensors({"a": [1, 2], "b": 3})
    named = named.apply(contrib.assert_element_shape({"a": shape([2]), "b": shape([])}))
    return found, bad, _elements(tf, named), str(named.output_shapes)


@program
def scores_of_several_tags(tf: Any) -> Any:
    crf, found = tf.contrib.crf, []
    transitions = tf.constant(_numbers(3, 3, seed=4))
    allowed = np.random.RandomState(2).randint(0, 2, (4, 5, 3)).astype(bool) | (np.arange(3) == 1)
    for steps, lengths in ((5, [5, 3, 1, 0]), (1, [1, 1, 0, 1])):
        x = tf.constant(_numbers(4, steps, 3))
        for inputs in (x, tf.placeholder_with_default(x, [None, None, 3])):
            score = crf.crf_multitag_sequence_score(inputs, allowed[:, :steps], tf.constant(lengths), transitions)
            found += [score, *tf.gradients(score[:3], [inputs])]
        tags = np.argmax(allowed[:, :steps], 2)
        one = crf.crf_multitag_sequence_score(x, np.arange(3) == tags[..., None], tf.constant(lengths), transitions)
        found += [one, crf.crf_sequence_score(x, tf.constant(tags, tf.int32), tf.constant(lengths), transitions)]
    return run(tf, found)


def _elements(tf: Any, data: Any) -> Any:
    """All elements, of a dataset that ends."""
    element, found = data.make_one_shot_iterator().get_next(), []
    with tf.Session() as session:
        while True:
            try:
                found.append(session.run(element))
            except tf.errors.OutOfRangeError:
                return found


@program
def types_by_names_and_numpys(tf: Any) -> Any:
    named: Any = [int, float, str, bool, bytes, complex, object, list, None, "i4", "f4", "S5", "<i4", ">i4", "int",
        "float", "str"]  # fmt: skip
    named += ["half", "int32_ref", "Int32", "long", "complex", "intc", "unicode", "object", "d", "?", "", b"int32", 1,
        3, 0, 20]  # fmt: skip
    named += [101, 121, 127, -1, True, 1.0, 2.5, np.int32, np.dtype("S3"), np.dtype("U3"), np.dtype(">i4"), np.str_,
        np.number]  # fmt: skip
    named += [np.dtype([("a", "i4")]), np.datetime64, np.longlong, np.ulonglong, np.intc, np.longdouble, np.object_,
        np.int32(3)]  # fmt: skip
    named += [tf.qint8.as_numpy_dtype, tf.bfloat16.as_numpy_dtype, (), [], {}, np.array([1]), "i4,i4", tf.float32]
    return [outcome(lambda value=value: tf.as_dtype(value).name) for value in named]


@program
def equality_of_shapes(tf: Any) -> Any:
    shape, x, y = tf.TensorShape, tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None, 2])
    s, data = shape([None, 2]), tf.data.Dataset.from_tensors(tf.placeholder_with_default([1.0], [None]))
    pairs: Any = [
        (shape([None]), shape([None])),
        (s, s),
        (shape(s), s),
        (shape(s.dims), s),
        (shape(list(s)), s),
        (s, None),
    ]
    pairs += [(shape(d for d in s), s), (shape(s.as_list()), s), (s[:1], s[:1]), (s[1:], s[1:]), (s[:], s), (s, [None,
        2])]  # fmt: skip
    pairs += [(s[:1].concatenate(s[1:]), s), (s + [3], s + [3]), (s.merge_with([None, None]), s), (s, shape(None))]
    pairs += [(shape(None).merge_with(s), s), (s.with_rank(2), s), (s.with_rank_at_least(1), s), (x.shape,
        x.get_shape())]  # fmt: skip
    pairs += [(x.shape, y.shape), (tf.identity(x).shape, x.shape), (shape([2]), [2.0]), (shape([2]), [-1]),
        (shape([2]), 2.5)]  # fmt: skip
    pairs += [(shape([2]), ["2"]), (shape([2]), "2"), (shape([2]), [[2]]), (shape([2]), 2), (shape([2]), ["a"]),
        (shape([]), [])]  # fmt: skip
    pairs += [(shape(None), None), (shape(None), shape(None)), (data.output_shapes, data.repeat().output_shapes)]
    found = [(outcome(lambda a=a, b=b: a == b), outcome(lambda a=a, b=b: a != b)) for a, b in pairs]
    sizes: Any = ["3", b"3", 2.5, 2.0, np.float32(3), float("nan"), float("inf"), "x", [], tf.int32, 1j, -1, True]
    found += [
        (outcome(lambda size=size: str(shape([size]))), outcome(lambda size=size: str(shape(size)))) for size in sizes
    ]
    spec = tf.TensorSpec([None])
    return found, [s.dims is s.dims, [s[0]] == [s[0]], shape([None]) in [shape([None])], spec == tf.TensorSpec([None])]


@program
def false_as_the_type_of_zeros(tf: Any) -> Any:
    x, unknown = tf.constant([1.0, 2.0]), tf.placeholder(tf.float32)
    made = [
        lambda: tf.zeros_like(x, False), lambda: tf.zeros_like([1, 2], 0), lambda: tf.zeros_like(x, np.dtype("int32")),
        lambda: tf.zeros_like(x, True), lambda: tf.zeros_like(unknown, False), lambda: tf.ones_like(x, False),
        lambda: tf.zeros_like(x, False, optimize=False), lambda: tf.zeros([2], False),
    ]  # fmt: skip
    return [outcome(lambda: one().dtype.name) for one in made]  # noqa: B023 - called at once


@program
def sounds(tf: Any) -> Any:
    audio, audio_ops = tf.audio, importlib.import_module("tensorflow.contrib.framework.python.ops.audio_ops")
    waves = tf.constant(_numbers(50, 2) * 0.6)
    file = audio.encode_wav(waves, 16000)
    found = [file, *audio_ops.decode_wav(file)]
    for channels, samples in ((1, -1), (3, -1), (2, 20), (2, 60), (1, 55), (0, 0)):
        found += audio.decode_wav(file, desired_channels=channels, desired_samples=samples)
    spectrograms = [
        audio_ops.audio_spectrogram(waves[:, :1], window_size=window, stride=stride, magnitude_squared=squared)
        for window, stride, squared in ((10, 4, False), (16, 16, True), (50, 10, True), (51, 10, True), (2, 3, True))
    ]
    squares = audio_ops.audio_spectrogram(tf.constant(_numbers(400, 1)), 100, 50, magnitude_squared=True)
    found += [*spectrograms, audio_ops.mfcc(squares, 16000), audio_ops.mfcc(squares, 8000, 3000, 100, 20, 8)]
    unknown = audio_ops.decode_wav(tf.placeholder(tf.string, []), desired_samples=7)
    return run(tf, found), [str(value.shape) for value in [*found, unknown.audio, unknown.sample_rate]]


@program
def bad_sounds(tf: Any) -> Any:
    audio_ops = importlib.import_module("tensorflow.contrib.framework.python.ops.audio_ops")
    waves = _numbers(5, 2)
    good: bytes = run(tf, tf.audio.encode_wav(waves, 16000))
    files = [
        b"",
        b"abc",
        b"RIFX" + good[4:],
        good[:8] + b"WAVX" + good[12:],
        good[:36] + b"datx" + good[40:],
        good[:-1],
    ]
    files += [
        good[:at] + bytes([value]) + good[at + 1 :]
        for at, value in ((16, 17), (16, 18), (20, 3), (22, 0), (22, 1), (28, 1), (32, 3), (34, 8), (40, 1))
    ]
    for size in (5, 6, 200, 2**32 - 1):
        files.append(good[:36] + b"LIST" + size.to_bytes(4, "little") + b"abcdef"[:size] + good[36:])
    made = [lambda file=file: tf.audio.decode_wav(file).audio for file in files]
    made += [
        lambda: tf.audio.decode_wav(good, desired_channels=-2)[0], lambda: tf.audio.decode_wav([good])[0],
        lambda: tf.audio.encode_wav(waves[:0], 16000), lambda: tf.audio.encode_wav(waves[0], 16000),
        lambda: tf.audio.encode_wav(waves, 0), lambda: tf.audio.encode_wav(waves, [1]),
        lambda: audio_ops.audio_spectrogram(waves, 1, 1), 
         lambda: audio_ops.mfcc(waves, 16000),
        lambda: audio_ops.mfcc(waves[None], 16000, dct_coefficient_count=50),
        lambda: audio_ops.mfcc(waves[None], 16000, filterbank_channel_count=0),
        lambda: audio_ops.mfcc(waves[None], 16000, lower_frequency_limit=5000), lambda: audio_ops.mfcc(waves[None], 0),
    ]  # fmt: skip
    loudest = np.array([[0.5], [1.5], [-0.5], [-2.5], [40000], [-40000], [np.nan], [np.inf]], np.float32) / 32768
    return [outcome(lambda one=one: run(tf, one())) for one in made], run(tf, tf.audio.encode_wav(loudest, 8000))


@program
def draws_without_state(tf: Any) -> Any:
    stateless = tf.contrib.stateless
    found = [
        stateless.stateless_random_uniform([2, 3], [1, 2]), stateless.stateless_random_normal([3], seed=[3, 4]),
        stateless.stateless_truncated_normal([4], [5, 6], mean=1.0, stddev=2.0),
        stateless.stateless_multinomial([[0.1, 0.7, 0.2]], 5, seed=[7, 8]),
    ]  # fmt: skip
    return run(tf, found)


@program
def images_at_any_places(tf: Any) -> Any:
    resampler = tf.contrib.resampler.resampler
    warp = _numbers(2, 7, 3, 2) * 2.5 + 1.5
    warp[0, 0] = [[-1, 0], [4, 3], [5, 3]]
    warp[1, 0] = [[0, -1], [np.nan, 1], [-0.5, 3.5]]
    data, places, weights = tf.constant(_numbers(2, 4, 5, 3)), tf.constant(warp), tf.constant(_numbers(2, 7, 3, 3))
    y = resampler(data, places)
    half = resampler(tf.cast(data, tf.float64), tf.cast(places, tf.float64))
    found = [y, half, *tf.gradients(y, [data, places], weights)]
    fed = tf.placeholder(tf.float32)
    shapes = [str(resampler(*pair).shape) for pair in ((fed, places), (data, fed), (data, places))]

    def run_fed(a: Any, b: Any) -> Any:
        with tf.Session() as session:
            return session.run(resampler(a, b), {fed: _numbers(4, 5, 3)})

    refused = [outcome(lambda pair=pair: run_fed(*pair)) for pair in (
        (data[0], places), (data, places[..., :1]), (data, places[:1]), (data, tf.ones([2])), (fed, places),
        (data, tf.ones([2, 2], tf.float64)), (data, tf.ones([2, 2])))]  # fmt: skip
    return run(tf, found), shapes, refused, y.name, y.op.type


@program
def strings_of_any_bytes(tf: Any) -> Any:
    a = tf.constant(b"a\0")
    fed = tf.placeholder_with_default(b"f\0\0", [])
    read = tf.decode_base64(tf.encode_base64(fed))
    labels = tf.map_fn(lambda i: tf.cond(i > 1, lambda: a, lambda: fed), tf.range(3), dtype=tf.string)
    sparse = tf.SparseTensor([[0, 0], [2, 1]], ["x", "y"], [3, 2])
    filled_rows, was_empty = tf.sparse_fill_empty_rows(sparse, a)
    dataset = tf.data.Dataset.from_tensors([b"d\0"]).map(lambda x: (x[0], tf.py_func(lambda: b"p\0", [], tf.string)))
    rows = dataset.concatenate(dataset.map(lambda x, y: (y, x))).batch(2)
    ragged = tf.data.Dataset.range(1, 4).map(lambda n: tf.fill([n], b"e\0")).padded_batch(3, [None], b"-\0")
    elements = [tf.data.make_one_shot_iterator(each).get_next() for each in (rows, ragged)]
    lists = [tf.dynamic_stitch([[0], [2]], [["a"], ["b"]]), tf.dynamic_stitch([0, 1], [a, fed]), labels]
    spread = [
        tf.fill([2], a), tf.constant(b"c\0", shape=[3]), tf.one_hot([1], 3, b"on\0", b"off\0"),
        tf.pad(["v"], [[1, 1]], constant_values=b"w\0"),
        tf.sparse_tensor_to_dense(sparse, b"-\0"), filled_rows.values, tf.sparse_to_dense([1], [3], ["s"], b"t\0"),
        tf.ragged.constant([["r"], [], ["s", "t"]]).to_tensor(b"q\0"), tf.where_v2([True, False], a, read),
    ]  # fmt: skip
    taken = [read[None], read[...], read[tf.newaxis, tf.newaxis], tf.transpose(read), labels[1:], labels[2]]
    outputs = [tf.py_func(lambda value=value: value, [], tf.string)
               for value in (b"1\0", [[b"2\0", b"3"]], [["4", "5"]], np.array([b"6\0"], object))]  # fmt: skip
    numbers = tf.decode_raw(tf.py_func(lambda: np.array([1.0, 0.0], np.float32).tobytes(), [], tf.string), tf.float32)
    joined = [tf.reduce_join(strings) for strings in (*lists, *spread)] + [tf.string_join([labels, "!"])]
    lengths = [tf.strings.length(strings) for strings in (*lists, *spread, *taken, *outputs)]
    return run(tf, [lists, spread, taken, outputs, numbers, joined, lengths, was_empty, elements])


@program
def computations_for_xla(tf: Any) -> Any:
    made = tf.xla.experimental.compile
    found: list[Any] = []
    for computation, inputs in [
        (lambda: tf.constant(1.0), None), (lambda: 2, []), (lambda: None, None), (tf.no_op, None),
        (lambda x, y: (x + y, x - y), [1.0, 2.0]), (lambda x: {"a": x, "b": [x + 1.0]}, [1.0]),
        (lambda x: x["a"], [{"a": 3.0}]), (lambda x: (x, tf.no_op()), (1.0,)), (lambda x: [x], [1.0]),
        (lambda x: (tf.no_op(), x), [1.0]), (lambda x: x, 1.0), (lambda x: x, {"x": 1.0}), (lambda x: (), [1.0]),
        (lambda x: {"a": tf.no_op()}, [1.0]), (lambda: object(), None), (lambda x: made(lambda y: y, [x]), [1.0]),
        (lambda x: tf.get_variable("v", [], initializer=tf.ones_initializer()).assign_add(x), [2.0]),
        (lambda x: (tf.summary.scalar("s", x), x)[1], [4.0]),
    ]:  # fmt: skip
        with tf.Graph().as_default() as graph, tf.name_scope("in"):
            try:
                result = made(computation, inputs)
                names = [op.name for op in graph.get_operations() if op.type not in ("Const", "ScalarSummary")]
                flat = [one.name for one in tf.nest.flatten(result)]
                found.append([run(tf, result), flat, names if "in/v" not in names else ""])
                found.append([tf.get_variable_scope().use_resource, len(tf.get_collection("summaries"))])
            except Exception as error:
                found.append([type(error).__name__, str(error).split("0x")[0]])
    x = tf.constant(3.0)
    inside, through = made(lambda x: [tf.gradients(x * x, x)[0], x * x], [x])
    return found, run(tf, inside), outcome(lambda: tf.gradients(through, x))


@program
def marks_of_ops_for_xla(tf: Any) -> Any:
    scope, given = tf.xla.experimental.jit_scope, []
    with scope():
        tf.constant(1.0, name="a")
        with scope(compile_ops=False, separate_compiled_gradients=True):
            tf.constant(1.0, name="b")
        with scope(lambda node: given.append(node.op) or node.op == "Const"):
            tf.identity(tf.constant(1.0, name="c"), name="d")
    with tf.contrib.compiler.jit.experimental_jit_scope():
        tf.no_op(name="e")
    tf.no_op(name="f")
    marks = {op.name: [(name, str(value)) for name, value in sorted(op.node_def.attr.items()) if name[:4] == "_Xla"]
             for op in tf.get_default_graph().get_operations()}  # fmt: skip
    return marks, given


@program
def lists_of_tensors_in_checkpoints(tf: Any) -> Any:
    from tensorflow.python.ops import list_ops as ways  # type: ignore[import-not-found]

    def made(values: Any, shape: Any, dtype: Any, limit: int = -1) -> Any:
        found = ways.empty_tensor_list(shape, dtype, limit)
        for value in values:
            found = ways.tensor_list_push_back(found, tf.constant(value, dtype))
        return found

    reserved = ways.tensor_list_reserve([2, None], 3, tf.int32)
    lists = {
        "a": made([1.0, 2.0], [], tf.float32),
        "b": ways.tensor_list_set_item(reserved, 1, [[1, 2], [3, 4]]),
        "c": made(["x", "yz"], None, tf.string),
        "d": made([], [3], tf.float32, 1),
        "e": made([[True]], [1], tf.bool),
        "f": made([[1.5] * 40, [2.0]], [None], tf.float64),
        "g": tf.stack([made([[1] * n], [None], tf.int64) for n in range(4)]),
        "h": tf.stack([made([[1j]], None, tf.complex64, 7), made([[2.0]], [1], tf.float16)]),
        "i": tf.constant(3.0),
    }
    with tempfile.TemporaryDirectory() as folder, tf.Session() as session:
        names, types = sorted(lists), [lists[name].dtype for name in sorted(lists)]
        path, whole = folder + "/lists", [""] * len(names)
        session.run(tf.raw_ops.SaveV2(prefix=path, tensor_names=names, shape_and_slices=whole,
                                      tensors=[lists[name] for name in names]))  # fmt: skip
        read = tf.raw_ops.RestoreV2(prefix=path, tensor_names=names, shape_and_slices=whole, dtypes=types)
        found = dict(zip(names, read))
        values = session.run([
            ways.tensor_list_stack(found["a"], tf.float32, element_shape=[]),
            ways.tensor_list_get_item(found["b"], 1, tf.int32, element_shape=[2, 2]),
            ways.tensor_list_get_item(found["b"], 2, tf.int32, element_shape=[2, 2]),
            ways.tensor_list_stack(found["c"], tf.string, element_shape=[]),
            ways.tensor_list_element_shape(found["d"], tf.int32),
            ways.tensor_list_length(ways.tensor_list_push_back(found["d"], tf.zeros([3]))),
            ways.tensor_list_stack(found["g"][2], tf.int64, element_shape=[2]),
        ])  # fmt: skip
        full = ways.tensor_list_push_back(ways.tensor_list_push_back(found["d"], tf.zeros([3])), tf.zeros([3]))
        kinds = {
            name: str(tf.train.load_checkpoint(path).get_variable_to_dtype_map()[name]) for name in ("a", "g", "i")
        }
        (data,) = Path(folder).glob("*data*")
        return values, outcome(lambda: session.run(ways.tensor_list_length(full))), kinds, data.read_bytes().hex()


@program
def upper_parts_of_structures(tf: Any) -> Any:
    """What a function lets through, and the parts and paths at the leaves of a shallower structure."""
    nest = importlib.import_module("tensorflow.python.util.nest")
    pair = collections.namedtuple("pair", "a b")  # noqa: PYI024
    upper: list[Any] = [
        (lambda part: True, [1, [2, 3]]), (lambda part: not isinstance(part, tuple), [1, (2, 3), {"a": [1]}]),
        (lambda part: [True, False], [[1, 2], [3]]), (lambda part: isinstance(part, list), 3), (lambda part: 3, [1]),
        (lambda part: {"a": True, "b": False} if isinstance(part, dict) else True, {"b": [1, 2], "a": [3]}),
        (lambda part: [True], [[1], [2]]), (lambda part: pair(True, False) if isinstance(part, pair) else True,
                                            pair([1], [2])),
        (lambda part: False, [1, 2]), (lambda part: ["x"], [[1]]), (lambda part: True, "abc"), (lambda part: True, ()),
    ]  # fmt: skip
    shallow, deep = {"b": 0, "a": (0, 0)}, {"b": [1, 2], "a": ([3], {"c": 4})}
    return {
        "upper": [outcome(lambda: nest.get_traverse_shallow_structure(*each)) for each in upper],  # noqa: B023
        "paths": nest.flatten_with_tuple_paths_up_to(shallow, deep),
        "mapped": nest.map_structure_with_tuple_paths_up_to(
            shallow, lambda path, one, other: [list(path), one, other], deep, deep
        ),
    }


@program
def shapes_by_values_of_unknown_length(tf: Any) -> Any:
    """Sizes that follow from constants through ops whose results have no known length."""
    x = tf.zeros([4, 10, 2, 10])
    kept = tf.setdiff1d(tf.range(0, tf.rank(x)), [1]).out
    places = tf.reshape(tf.where([False, True, True]), [-1])
    vectors = [
        tf.gather(tf.shape(x), kept), tf.boolean_mask([3, 4, 5], [True, False, True]), tf.gather([3, 4, 5], places) + 1,
        tf.unique([7, 7, 8]).y, tf.concat([tf.gather(tf.shape(x), kept)[:-1], [5]], 0), tf.reverse(kept, [0]),
    ]  # fmt: skip
    apart = tf.sparse.to_dense(tf.sets.set_difference(tf.range(4)[tf.newaxis], [[1, 3]]))[0]
    shapes = [str(tf.zeros(vector).shape) for vector in [*vectors, tf.gather(tf.shape(x), apart)]]
    number = tf.reduce_prod(tf.gather(tf.shape(x), kept))
    return [shapes, str(tf.zeros([number]).shape), str(tf.reduce_sum(x, kept).shape)]


@program
def images_of_integers_and_of_unknown_size(tf: Any) -> Any:
    found = []
    for dtype in (np.uint8, np.int32, np.float32, np.float64):
        image = np.int64([7, 8, 7, 8, 9, 7, 200, 8, 7, 8, 8, 7]).reshape(2, 2, 3).astype(dtype)
        found += [tf.image.per_image_standardization(image), tf.image.psnr(image, image + 1, 255.0),
                  tf.image.per_image_standardization(tf.placeholder_with_default(image, [None, None, 3]))]  # fmt: skip
    wrong = [outcome(lambda turn=turn, rank=rank: str(turn(tf.ones([2] * rank)).shape)) for rank in (2, 5) for turn in (
        tf.image.flip_left_right, tf.image.flip_up_down, tf.image.rot90, tf.image.transpose_image,
        tf.image.per_image_standardization)]  # fmt: skip
    sizes = [outcome(lambda size=size: str(tf.image.resize_images(tf.ones([1, 4, 4, 1]), size).shape)) for size in (
        (2,), (2.0, 2.0), (2, 2, 2), (2, 3))]  # fmt: skip
    return run(tf, found), [str(each.dtype) for each in found], wrong, sizes


@program
def pieces_of_empty_texts(tf: Any) -> Any:
    texts, found = ["a b", "", " x ", "a  b c ", "abc", " ", "a b c d"], []
    for most in (-1, 0, 1, 2, 3):
        found += [tf.strings.split(texts, maxsplit=most), tf.strings.split(texts, sep=" ", maxsplit=most)]
    for delimiter in ("", " ", "ab", ","):
        found += [tf.string_split(texts, delimiter, skip_empty=skip) for skip in (True, False)]
    found.append(tf.string_split(["", ""], ",", skip_empty=False))
    return [list(map(np.ndarray.tolist, map(np.asarray, each))) for each in run(tf, found)]


@program
def patterns_of_files_that_are_not_there(tf: Any) -> Any:
    folder = tempfile.mkdtemp()
    for name in ("one", ".two"):
        Path(folder, name).touch()

    def found(find: Any, pattern: str) -> Any:
        return outcome(lambda: sorted(Path(os.fsdecode(name)).name for name in find(f"{folder}/{pattern}")))

    patterns = "none/x", "none/*", "none/a/*/b", "none*", "*", "*/x"
    finds = tf.gfile.Glob, lambda pattern: run(tf, tf.matching_files(pattern))
    return [[found(find, pattern) for find in finds] for pattern in patterns]


@program
def arguments_that_have_two_names(tf: Any) -> Any:
    x, sparse = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.SparseTensor([[1, 0], [0, 1]], [1.0, 2.0], [2, 2])
    wrong = [
        outcome(lambda: str(tf.reduce_join(["a"], axis=0, reduction_indices=0).shape)),
        outcome(lambda: str(tf.sparse_concat(0, [sparse], concat_dim=0).shape)),
        outcome(lambda: str(tf.reverse_sequence(x, [1, 2], seq_axis=1, seq_dim=1).shape)),
        outcome(lambda: str(tf.losses.cosine_distance(x, x, 0, dim=0).shape)),
    ]
    return wrong, list(map(np.ndarray.tolist, map(np.asarray, run(tf, tf.sparse_concat(0, [sparse, sparse])))))
