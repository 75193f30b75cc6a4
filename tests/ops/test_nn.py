"""The nn families against TensorFlow, case by case, and their errors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini.graph.building  # noqa: F401 - installs the building of ops
from tests.ops import nn_oracle_cases as cases
from tests.ops.evaluate import evaluate
from tfmini.errors import InvalidArgumentError
from tfmini.graph.graph import Graph
from tfmini.ops import (
    array_sets,  # noqa: F401 - registers
    math_segments,  # noqa: F401 - registers
    math_sums,  # noqa: F401 - registers
    nn_activation,
    nn_batch_norm,
    nn_bias,
    nn_convolution,
    nn_cross_entropy,
    nn_embedding,
    nn_norm,
    nn_pooling,
    nn_topk,
    operators,  # noqa: F401 - registers
)
from tfmini.ops.constant import constant
from tfmini.ops.gradients import gradients
from tfmini.ops.sparse_tensor import SparseTensor

MODULES = (
    nn_activation,
    nn_batch_norm,
    nn_bias,
    nn_convolution,
    nn_cross_entropy,
    nn_embedding,
    nn_norm,
    nn_pooling,
    nn_topk,
)
nn = SimpleNamespace(**{k: v for m in MODULES for k, v in vars(m).items() if callable(v) and not k.startswith("_")})
nn.lrn = nn_norm.local_response_normalization
tf = SimpleNamespace(nn=nn, constant=constant, gradients=gradients, SparseTensor=SparseTensor)


@pytest.fixture(autouse=True)
def graph() -> Any:
    with Graph().as_default() as made:
        yield made


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    python = os.environ.get("TFMINI_ORACLE")
    if not python:
        pytest.skip("TFMINI_ORACLE is not set")
    path = tmp_path_factory.mktemp("nn") / "expected.npz"
    subprocess.run(
        [python, str(Path(cases.__file__)), str(path)],
        check=True, timeout=900, capture_output=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    return np.load(path)


@pytest.mark.oracle
@pytest.mark.parametrize("case", cases.CASES)
def test_same_as_tensorflow(expected: Any, case: str) -> None:
    values = evaluate(cases.build(tf, cases.CASES[case]))
    wanted = [expected[f"{case}|{i}"] for i in range(len([k for k in expected.files if k.startswith(case + "|")]))]
    assert len(values) == len(wanted)
    for value, want in zip(values, wanted):
        assert value.dtype == want.dtype
        assert value.shape == want.shape
        np.testing.assert_allclose(value, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", cases.CASES)
def test_static_shape_is_the_real_one(case: str) -> None:
    for tensor in cases.build(tf, cases.CASES[case]):
        assert tensor.shape.is_compatible_with(np.shape(evaluate(tensor)))


def test_nchw_convolution_is_the_transposed_nhwc_one() -> None:
    image, filters = cases.data(2, 7, 6, 3), cases.data(3, 3, 3, 4)
    last = nn.conv2d(image, filters, 1, "SAME")
    first = nn.conv2d(image.transpose(0, 3, 1, 2), filters, 1, "SAME", data_format="NCHW")
    last, first = evaluate([last, first])
    np.testing.assert_allclose(first, last.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)


def test_label_out_of_range_names_the_label() -> None:
    loss = nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 9], logits=cases.data(2, 3))
    with pytest.raises(InvalidArgumentError, match=r"label value of 9 which is outside the valid range of \[0, 3\)"):
        evaluate(loss)


def test_rank_mismatch_of_labels() -> None:
    with pytest.raises(ValueError, match=r"Rank mismatch: Rank of labels \(received 2\)"):
        nn.sparse_softmax_cross_entropy_with_logits(labels=[[0]], logits=cases.data(2, 3))


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="Only call `softmax_cross_entropy_with_logits` with named arguments"):
        nn.softmax_cross_entropy_with_logits(cases.data(2, 3), cases.data(2, 3))


def test_window_larger_than_image() -> None:
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 5 from 3"):
        nn.max_pool(cases.data(1, 3, 3, 1), 5, 1, "VALID")


def test_dropout_scales_what_it_keeps() -> None:
    kept = evaluate(nn.dropout(np.ones(1000, np.float32), rate=0.25, seed=1))
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 650 < np.count_nonzero(kept) < 850


def test_dropout_of_nothing_is_the_input() -> None:
    x = constant(cases.data(3))
    assert nn.dropout(x, keep_prob=1.0) is x
    with pytest.raises(ValueError, match="You must provide a rate"):
        nn.dropout(x)


def test_pool_gradient_goes_to_the_first_of_equals() -> None:
    x = constant(np.ones((1, 2, 2, 1), np.float32))
    grad = evaluate(gradients(nn.max_pool(x, 2, 2, "VALID"), [x])[0])
    assert grad.ravel().tolist() == [1, 0, 0, 0]
