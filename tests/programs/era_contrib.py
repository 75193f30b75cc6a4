"""Programs with small parts of ``tf.contrib``: a part of `tests.programs.era`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


@program
def differential_equations(tf: Any) -> Any:
    solve, y0, found = tf.contrib.integrate.odeint, np.array([1.0, 2.0]), []
    own = {"first_step": 0.3, "safety": 0.5, "ifactor": 2.0, "dfactor": 0.5, "max_num_steps": 99}
    cases = [
        (lambda y, t: -y, y0, [0.0, 1.0, 2.5]), (lambda y, t: tf.sin(t * 3) * y * 5, np.float64(1.0), [0.0, 3.0]),
        (lambda y, t: tf.stack([y[1] * 4, -y[0] * 4]), tf.constant([1.0, 0.0]), np.array([0.0, 0.3, 0.5])),
        (lambda y, t: y * 1j, np.array([1.0, 1j]), [0, 1]), (lambda y, t: y * 0, 1.0, [0.0, 1.0, 2.0]),
        (lambda y, t: tf.matmul(y, y) * tf.cast(t, tf.float32), tf.fill([2, 2], 0.2), [1.0, 1.2]),
    ]  # fmt: skip
    ways: list[dict[str, Any]] = [
        {"rtol": 1e-3, "atol": 1e-3}, {"method": "dopri5", "options": own, "rtol": 1e-3}, {},
    ]  # fmt: skip
    for i, case in enumerate(cases):
        for kwargs in ways[: 3 if i < 2 else 1]:
            y, info = solve(*case, full_output=True, **kwargs)
            found.append([tf.real(y), tf.imag(y), [info[key] for key in sorted(info)]])
    single = solve(lambda y, t: -y, 1.0, tf.constant([0.0, 1.0]), rtol=1e-4, full_output=True)
    found.append([single[0], single[1]["num_func_evals"], single[1]["integrate_points"]])

    def failed(*args: Any, **kwargs: Any) -> Any:
        return outcome(lambda: run(tf, solve(lambda y, t: -y, *args, **kwargs)))

    wrong = [(1, [1.0, 2]), (1.0, tf.constant([1, 2])), (1.0, [2.0, 1.0]), (1.0, [1.0, 1.0]), (1.0, 1.0)]
    bad: list[dict[str, Any]] = [
        {"method": "rk4"}, {"options": {}}, {"method": "dopri5", "options": {"a": 1}}, {"rtol": 0.0, "atol": 0.0},
        {"method": "dopri5", "options": {"max_num_steps": 1}},
    ]  # fmt: skip
    errors = [failed(*args) for args in wrong] + [failed(1.0, [0.0, 1.0], **kwargs) for kwargs in bad]
    errors += [outcome(lambda: run(tf, solve(lambda y, t: y * y, 1.0, [0.0, 2.0])))]
    shapes = [solve(lambda y, t: -y, tf.placeholder(tf.float64, shape), tf.placeholder(tf.float64, times))
              for shape, times in ((None, [2]), ([None, 3], None), ([2, 3], [None]), ([2], [4]))]  # fmt: skip
    return run(tf, found), errors, [str(y.shape) for y in shapes], [single[0].dtype, found[2][2][1].shape]


@program
def differential_equations_on_a_grid(tf: Any) -> Any:
    solve, y0, t = tf.contrib.integrate.odeint_fixed, np.array([1.0, 2.0]), [0.0, 1.0, 2.5]

    def slope(y: Any, t: Any) -> Any:
        return tf.sin(tf.cast(t, y.dtype) * 3) * tf.stack([y[1], -y[0]])

    ways: list[dict[str, Any]] = [{"dt": dt, "method": method} for method in ("rk4", "midpoint")
                                  for dt in (None, 0.3, [0.3, 0.1], [0.1], 10.0)]  # fmt: skip
    found = [solve(slope, y0, t, **way) for way in ways]
    found += [tf.real(solve(slope, np.array([1.0, 1j], np.complex64), t, 0.5)), solve(slope, y0, tf.constant([0.0, 1]))]
    wrong: list[dict[str, Any]] = [
             {"dt": [0.1, 0.2, 0.3]}, {"dt": [[0.1, 0.2]]}, {"method": "euler"}, {"t": [2.0, 1.0]}, {"t": [[1.0, 2.0]]},
             {"t": tf.constant([1, 2, 3])}, {"y0": np.array([1, 2])}, {"t": tf.constant([0.0, 1.0, 2.0]), "dt": 0.2},
             {"t": 1.0}, {"t": [1.0]}]  # fmt: skip

    def failed(way: dict[str, Any]) -> Any:
        return outcome(lambda: run(tf, solve(slope, **{"y0": y0, "t": t, **way})))

    shapes = [solve(slope, tf.placeholder(tf.float64, shape), tf.placeholder(tf.float64, times))
              for shape, times in (([None, 3], [None]), ([2, 3], [4]))]  # fmt: skip
    return run(tf, found), [failed(way) for way in wrong], [str(y.shape) for y in shapes], [y.dtype for y in found[-2:]]


@program
def gradients_of_differential_equations(tf: Any) -> Any:
    rate, y0 = tf.constant([0.5, 2.0], tf.float64), tf.constant([1.0, 2.0], tf.float64)
    t, found = tf.constant([0.0, 0.7, 1.3], tf.float64), []
    for make in (lambda f: tf.contrib.integrate.odeint(f, y0, t, 1e-4, 1e-5),
                 lambda f: tf.contrib.integrate.odeint_fixed(f, y0, t, 0.2),
                 lambda f: tf.contrib.integrate.odeint_fixed(f, y0, t, method="midpoint")):  # fmt: skip
        y = make(lambda y, t: -rate * y * y + tf.sin(t))
        found.append([y, *tf.gradients(y * y, [rate, y0, t])])
    return run(tf, found)
