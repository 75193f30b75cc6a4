"""Samples of the ops in tfmini/ops/training: each update rule in its forms, with references and resources."""

from tests.ops.samples.variables import held as held
from tests.ops.samples.variables import stored as stored

_DECAY = "lr=0.1, rho=0.9, momentum=0.5, epsilon=0.001"
_ADAM = "beta1_power=0.81, beta2_power=0.98, lr=0.1, beta1=0.9, beta2=0.99, epsilon=0.001"
_SHRINK = "l1=0.02, l2=0.1"
_FTRL = "lr=0.3, l1=0.05, l2=0.2, lr_power=-0.5"

# The rule, its slots, its numbers and attrs, and its forms: r for references, R for resources, s and S for sparse ones.
_RULES = (
    ("ApplyGradientDescent", "", "alpha=0.1", "rR"),
    ("ApplyMomentum", "accum", "lr=0.1, momentum=0.9", "rRsS"),
    ("ApplyMomentum", "accum", "lr=0.1, momentum=0.9, use_nesterov=True", "rRsS"),
    ("ApplyKerasMomentum", "accum", "lr=0.1, momentum=0.9", "RS"),
    ("ApplyKerasMomentum", "accum", "lr=0.1, momentum=0.9, use_nesterov=True", "RS"),
    ("ApplyAdagrad", "accum", "lr=0.1", "rRsS"),
    ("ApplyAdagrad", "accum", "lr=0.1, update_slots=False", "rRsS"),
    ("ApplyAdagradV2", "accum", "lr=0.1, epsilon=0.01", "rRsS"),
    ("ApplyAdadelta", "accum accum_update", "lr=0.7, rho=0.9, epsilon=0.001", "rRsS"),
    ("ApplyAdam", "m v", _ADAM, "rR"),
    ("ApplyAdam", "m v", f"{_ADAM}, use_nesterov=True", "rR"),
    ("ApplyAdamWithAmsgrad", "m v vhat", _ADAM, "R"),
    ("ApplyAdaMax", "m v", _ADAM.replace("beta2_power=0.98, ", ""), "rR"),
    ("ApplyRMSProp", "ms mom", _DECAY, "rRsS"),
    ("ApplyCenteredRMSProp", "mg ms mom", _DECAY, "rRsS"),
    ("ApplyProximalGradientDescent", "", f"alpha=0.2, {_SHRINK}", "rRsS"),
    ("ApplyProximalAdagrad", "accum", f"lr=0.2, {_SHRINK}", "rRsS"),
    ("ApplyAdagradDA", "gradient_accumulator gradient_squared_accumulator",
     "lr=0.3, l1=0.1, l2=0.2, global_step=int64(3)", "rRsS"),
    ("ApplyFtrl", "accum linear", _FTRL, "rRsS"),
    ("ApplyFtrl", "accum linear", _FTRL.replace("-0.5", "-0.7"), "rRsS"),
    ("ApplyFtrlV2", "accum linear", f"{_FTRL}, l2_shrinkage=0.1", "rRsS"),
    ("ApplyAddSign", "m", "lr=0.1, alpha=1.0, sign_decay=0.9, beta=0.8", "rR"),
    ("ApplyPowerSign", "m", "lr=0.1, logbase=1.0, sign_decay=0.9, beta=0.8", "rR"),
)  # fmt: skip


def _row(rule: str, slots: str, numbers: str, form: str) -> str:
    """Variables with values, two updates of them, and what they hold then."""
    names = ["var", *slots.split()]
    # Averages of squares are positive, and larger than the square of the average of gradients.
    values = ["f32(4, 2)", *("f32(4, 2, low=0, high=0.1)" if s == "mg" else "f32(4, 2, low=1)" for s in names[1:])]
    op = ("Resource" if form in "RS" else "") + ("Sparse" if form in "sS" else "") + rule
    gradient = "delta" if rule.endswith("GradientDescent") and form in "rR" else "grad"
    grad = f"{gradient}=f32(3, 2), indices=[3, 0, 3]" if form in "sS" else f"{gradient}=f32(4, 2)"
    update = f"{op}({', '.join(f'{n}=v[{i}]' for i, n in enumerate(names))}, {numbers}, {grad})"
    make = "stored" if form in "RS" else "held"
    return f"v, start, now = {make}(op, {', '.join(values)}); start; {update}; {update}; now\n"


SAMPLES = "".join(_row(rule, slots, numbers, form) for rule, slots, numbers, forms in _RULES for form in forms)
