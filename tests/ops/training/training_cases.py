"""Update ops to compare with TensorFlow, without importing either: both sides read this table."""

from __future__ import annotations

from typing import Any

import numpy as np

SHAPE = (5, 3)
ROWS = [3, 0, 3, 4]
STEPS = 4

_RMS = {"lr": 0.1, "rho": 0.9, "momentum": 0.5, "epsilon": 1e-3}
_ADAM = {"beta1_power": 0.81, "beta2_power": 0.98, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3}
_FTRL = {"lr": 0.3, "l1": 0.05, "l2": 0.2, "lr_power": -0.5}
_SHRINK = {"l1": 0.02, "l2": 0.1}
_DA = {"lr": 0.3, "l1": 0.1, "l2": 0.2, "global_step": 3}
_DELTA = {"lr": 0.7, "rho": 0.9, "epsilon": 1e-3}

# Name without "Resource" and "Sparse": slots, scalars, attrs, whether there is a sparse form.
CASES: list[tuple[str, list[str], dict[str, Any], dict[str, Any], bool]] = [
    ("ApplyGradientDescent", [], {"alpha": 0.1}, {}, False),
    ("ApplyMomentum", ["accum"], {"lr": 0.1, "momentum": 0.9}, {"use_nesterov": False}, True),
    ("ApplyMomentum", ["accum"], {"lr": 0.1, "momentum": 0.9}, {"use_nesterov": True}, True),
    ("ApplyKerasMomentum", ["accum"], {"lr": 0.1, "momentum": 0.9}, {"use_nesterov": False}, True),
    ("ApplyKerasMomentum", ["accum"], {"lr": 0.1, "momentum": 0.9}, {"use_nesterov": True}, True),
    ("ApplyAdagrad", ["accum"], {"lr": 0.1}, {"update_slots": True}, True),
    ("ApplyAdagrad", ["accum"], {"lr": 0.1}, {"update_slots": False}, True),
    ("ApplyAdagradV2", ["accum"], {"lr": 0.1, "epsilon": 0.01}, {"update_slots": True}, True),
    ("ApplyAdadelta", ["accum", "accum_update"], _DELTA, {}, True),
    ("ApplyAdam", ["m", "v"], _ADAM, {"use_nesterov": False}, False),
    ("ApplyAdam", ["m", "v"], _ADAM, {"use_nesterov": True}, False),
    ("ApplyAdamWithAmsgrad", ["m", "v", "vhat"], _ADAM, {}, False),
    ("ApplyAdaMax", ["m", "v"], {k: v for k, v in _ADAM.items() if k != "beta2_power"}, {}, False),
    ("ApplyRMSProp", ["ms", "mom"], _RMS, {}, True),
    ("ApplyCenteredRMSProp", ["mg", "ms", "mom"], _RMS, {}, True),
    ("ApplyProximalGradientDescent", [], {"alpha": 0.2, **_SHRINK}, {}, True),
    ("ApplyProximalGradientDescent", [], {"alpha": 0.2, "l1": 0.0, "l2": 0.1}, {}, True),
    ("ApplyProximalAdagrad", ["accum"], {"lr": 0.2, **_SHRINK}, {}, True),
    ("ApplyProximalAdagrad", ["accum"], {"lr": 0.2, "l1": 0.0, "l2": 0.1}, {}, True),
    ("ApplyAdagradDA", ["gradient_accumulator", "gradient_squared_accumulator"], _DA, {}, True),
    ("ApplyFtrl", ["accum", "linear"], _FTRL, {}, True),
    ("ApplyFtrl", ["accum", "linear"], {**_FTRL, "lr_power": -0.7, "l1": 0.0}, {}, True),
    ("ApplyFtrlV2", ["accum", "linear"], {**_FTRL, "l2_shrinkage": 0.1}, {}, True),
    ("ApplyAddSign", ["m"], {"lr": 0.1, "alpha": 1.0, "sign_decay": 0.9, "beta": 0.8}, {}, False),
    ("ApplyPowerSign", ["m"], {"lr": 0.1, "logbase": 1.0, "sign_decay": 0.9, "beta": 0.8}, {}, False),
]


def variants() -> list[tuple[str, str, int]]:
    """(label, op type, index into CASES) for every form of every case."""
    found = []
    for index, (name, _, _, _, sparse) in enumerate(CASES):
        for form in ("Sparse" + name, name) if sparse else (name,):
            if "Keras" not in name and "Amsgrad" not in name:
                found.append((f"{form}-{index}", form, index))
            found.append((f"Resource{form}-{index}", "Resource" + form, index))
    return found


def gradient_name(op_type: str) -> str:
    return "delta" if op_type.endswith("GradientDescent") and "Sparse" not in op_type else "grad"


def initial_values(index: int, dtype: Any) -> list[Any]:
    """The variable, then its slots: positive, for they are averages of squares, but for small averages of gradients."""
    rng = np.random.default_rng(index)
    slots = CASES[index][1]
    return [rng.normal(size=SHAPE).astype(dtype), *[_slot(rng, name, dtype) for name in slots]]


def _slot(rng: Any, name: str, dtype: Any) -> Any:
    return ((rng.random(SHAPE) + 1) * (0.1 if name == "mg" else 1)).astype(dtype)


def gradients(index: int, sparse: bool, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(1000 + index)
    shape = (len(ROWS), *SHAPE[1:]) if sparse else SHAPE
    return [rng.normal(size=shape).astype(dtype) for _ in range(STEPS)]


def outcomes(tf: Any) -> dict[str, list[Any]]:
    """ "dtype/label" -> the variable and its slots after the last step."""
    kinds = [(dtype, *variant) for dtype in ("float32", "float64") for variant in variants()]
    return {f"{dtype}/{label}": run(tf, op_type, index, dtype) for dtype, label, op_type, index in kinds}


def run(tf: Any, op_type: str, index: int, dtype: str) -> list[Any]:
    """The variable and its slots after the steps of one case, in a session."""
    _, slots, scalars, attrs, _ = CASES[index]
    resource, sparse = op_type.startswith("Resource"), "Sparse" in op_type
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [tf.Variable(v, use_resource=resource) for v in initial_values(index, dtype)]
        states = [v.handle if resource else v.op.outputs[0] for v in variables]
        grad = tf.placeholder(dtype, None)
        inputs = dict(zip(["var", *slots], states))
        inputs[gradient_name(op_type)] = grad
        if sparse:
            inputs["indices"] = tf.constant(ROWS)
        for name, value in scalars.items():
            inputs[name] = tf.constant(value, tf.int64 if name == "global_step" else dtype)
        update = getattr(tf.raw_ops, op_type)(**inputs, **attrs)
        session.run(tf.global_variables_initializer())
        for value in gradients(index, sparse, dtype):
            session.run(update, {grad: value})
        return session.run(variables)
