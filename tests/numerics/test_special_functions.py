"""Special functions."""

from __future__ import annotations

import math

import numpy as np

from tfmini.numerics import special_functions


def test_values_are_those_of_pythons_math_module() -> None:
    x = np.linspace(-4.6, 25.3, 997)
    for ours, exact in ((special_functions.erf, math.erf), (special_functions.erfc, math.erfc)):
        np.testing.assert_allclose(ours(x), [exact(v) for v in x], rtol=5e-13)
    np.testing.assert_allclose(special_functions.lgamma(x), [math.lgamma(v) for v in x], rtol=1e-12, atol=1e-13)
