"""Programs with linear operators, a part of `tests.programs.era`: it is Python 3.7 without tfmini."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _numbers(*shape: int) -> Any:
    count = np.arange(np.prod(shape, dtype=int))
    return (np.cos(count * 1.7 + count**2) + 0.1).reshape(shape).astype(np.float32)


def _definite(*batch: int, size: int = 3) -> Any:
    a = _numbers(*batch, size, size)
    return a @ np.swapaxes(a, -1, -2) + np.eye(size, dtype=np.float32)


def _made(tf: Any) -> Any:
    """An operator of each kind, by its name; the tensors that make it are the graph's."""
    la = tf.linalg
    full = la.LinearOperatorFullMatrix(_numbers(2, 3, 3))
    tril = la.LinearOperatorLowerTriangular(_numbers(3, 3) + 2 * np.eye(3, dtype=np.float32))
    diag = la.LinearOperatorDiag(np.abs(_numbers(2, 3)) + 0.5, is_positive_definite=True)
    definite = la.LinearOperatorFullMatrix(_definite(2), is_self_adjoint=True, is_positive_definite=True)
    wide = la.LinearOperatorFullMatrix(_numbers(2, 3))
    spectrum = np.complex64(_numbers(3) + 1j * np.float32([0, 1, -1])) + 3
    both = {"is_self_adjoint": True, "is_positive_definite": True}
    return {
        "full": full, "definite": definite, "wide": wide, "tril": tril, "diag": diag,
        "complex": la.LinearOperatorDiag(np.complex64([1 + 2j, 3 - 1j])),
        "identity": la.LinearOperatorIdentity(3), "identities": la.LinearOperatorIdentity(3, [2], tf.float32),
        "scaled": la.LinearOperatorScaledIdentity(3, np.float32([2.0, -3.0])),
        "zeros": la.LinearOperatorZeros(3), "flat zeros": la.LinearOperatorZeros(2, 3, is_square=False,
                                                                                  is_self_adjoint=False),
        "house": la.LinearOperatorHouseholder(_numbers(2, 3)), "adjoint": la.LinearOperatorAdjoint(full),
        "inversion": la.LinearOperatorInversion(tril), "composition": la.LinearOperatorComposition([full, tril]),
        "flat composition": la.LinearOperatorComposition([wide, tril]),
        "blocks": la.LinearOperatorBlockDiag([diag, tril]),
        "kronecker": la.LinearOperatorKronecker([tril, definite]),
        "kronecker definite": la.LinearOperatorKronecker([diag, definite], **both),
        "flat kronecker": la.LinearOperatorKronecker([wide, tril]),
        "low rank": la.LinearOperatorLowRankUpdate(diag, _numbers(3, 2), np.float32([1.0, 2.0]),
                                                   is_diag_update_positive=True),
        "low rank u v": la.LinearOperatorLowRankUpdate(tril, _numbers(2, 3, 1), None, 0.3 * _numbers(3, 1)[::-1]),
        "circulant": la.LinearOperatorCirculant(spectrum), "real circulant": la.LinearOperatorCirculant(
            np.float32([4.0, 1.5, 1.5]), tf.float32, is_positive_definite=True),
        "circulant 2": la.LinearOperatorCirculant2D(np.abs(_numbers(2, 2, 2)) + 1, tf.complex64),
        "circulant 3": la.LinearOperatorCirculant3D(np.abs(_numbers(2, 2, 2)) + 1, tf.complex64),
        "toeplitz": la.LinearOperatorToeplitz(np.float32([4.0, 1.0, 0.5]), np.float32([4.0, -1.0, 0.25])),
    }  # fmt: skip


def _facts(one: Any) -> Any:
    hints = [one.is_non_singular, one.is_self_adjoint, one.is_positive_definite, one.is_square]
    return [one.name, one.dtype.name, str(one.shape), str(one.batch_shape), one.tensor_rank, *hints]


def _values(tf: Any, one: Any) -> Any:
    """What the methods of an operator give, or the class of the error."""
    rows, columns = one.range_dimension.value, one.domain_dimension.value
    kind = one.dtype.as_numpy_dtype
    right, left = kind(_numbers(columns, 2)), kind(_numbers(rows, 2))
    methods = {
        "dense": one.to_dense, "det": one.determinant, "log det": one.log_abs_determinant, "diag": one.diag_part,
        "trace": one.trace, "shape": one.shape_tensor, "matmul": lambda: one.matmul(right),
        "of adjoint": lambda: one.matmul(left, adjoint=True), "vector": lambda: one.matvec(right[:, 0]),
        "by adjoint": lambda: one.matmul(right.T, adjoint_arg=True), "solve": lambda: one.solve(left),
        "solve adjoint": lambda: one.solve(right, adjoint=True), "solve vector": lambda: one.solvevec(left[:, 0]),
        "solve by adjoint": lambda: one.solve(left.T, adjoint_arg=True),
        "in a batch": lambda: one.matmul(kind(_numbers(2, columns, 1))),
    }  # fmt: skip
    if "Zeros" not in one.name:  # whose add_to_tensor fails in TensorFlow
        methods["sum"] = lambda: one.add_to_tensor(np.ones(one.shape.as_list(), kind))
    return {name: outcome(lambda method=method: _run(tf, method())) for name, method in methods.items()}


def _run(tf: Any, tensor: Any) -> Any:
    value = run(tf, tensor)
    return str(tensor.shape), [np.real(value), np.imag(value)] if np.iscomplexobj(value) else value


@program
def operators_say_what_they_are(tf: Any) -> Any:
    return {name: _facts(one) for name, one in _made(tf).items()}


@program
def operators_compute(tf: Any) -> Any:
    return {name: _values(tf, one) for name, one in _made(tf).items()}


@program
def operators_make_operators(tf: Any) -> Any:
    made = _made(tf)
    kind = lambda make: outcome(lambda: [type(make()).__name__, str(make().shape), make().is_non_singular])  # noqa: E731
    alone = {
        name: [kind(one.adjoint), kind(lambda one=one: one.H), kind(one.inverse), kind(one.cholesky)]
        for name, one in made.items()
    }
    square = ("full", "definite", "tril", "identity", "house", "inversion", "low rank u v")
    pairs = [(a, b) for a in square for b in square]
    x = _numbers(3, 1)
    products = {f"{a} {b}": outcome(lambda a=a, b=b: run(tf, made[a].matmul(made[b]).matmul(x))) for a, b in pairs}
    quotients = {f"{a} {b}": outcome(lambda a=a, b=b: run(tf, made[a].solve(made[b]).matmul(x))) for a, b in pairs}
    simple = ("diag diag", "full tril", "identity full", "full identity", "definite diag", "identity identity")
    kinds = [kind(lambda a=a, b=b: made[a].matmul(made[b])) for a, b in map(str.split, simple)]
    return alone, products, quotients, kinds


@program
def values_of_made_operators(tf: Any) -> Any:
    made, found = _made(tf), {}
    for name in ("full", "definite", "tril", "diag", "scaled", "house", "blocks", "kronecker definite", "low rank"):
        one = made[name]
        for method in ("adjoint", "inverse", "cholesky"):
            found[f"{name} {method}"] = outcome(
                lambda one=one, method=method: _run(tf, getattr(one, method)().to_dense())
            )
    found["quotient"] = _run(tf, made["definite"].solve(made["tril"]).matmul(_numbers(3, 1)))
    return found


@program
def gradients_of_operators(tf: Any) -> Any:
    la, found = tf.linalg, {}
    base = {"m": _definite(), "d": np.abs(_numbers(3)) + 1, "u": _numbers(3, 2), "s": np.float32([4.0, 1.5, 1.5])}
    make = {
        "full": lambda t: la.LinearOperatorFullMatrix(t["m"], is_self_adjoint=True, is_positive_definite=True),
        "tril": lambda t: la.LinearOperatorLowerTriangular(t["m"]), "diag": lambda t: la.LinearOperatorDiag(t["d"]),
        "house": lambda t: la.LinearOperatorHouseholder(t["d"]),
        "low rank": lambda t: la.LinearOperatorLowRankUpdate(la.LinearOperatorDiag(t["d"]), t["u"]),
        "composition": lambda t: la.LinearOperatorComposition(
            [la.LinearOperatorFullMatrix(t["m"]), la.LinearOperatorDiag(t["d"])]),
        "blocks": lambda t: la.LinearOperatorBlockDiag(
            [la.LinearOperatorDiag(t["d"]), la.LinearOperatorLowerTriangular(t["m"])]),
        "kronecker": lambda t: la.LinearOperatorKronecker(
            [la.LinearOperatorDiag(t["d"]), la.LinearOperatorLowerTriangular(t["m"])]),
        "circulant": lambda t: la.LinearOperatorCirculant(t["s"], tf.float32),
    }  # fmt: skip
    for name, making in make.items():
        tensors = {key: tf.constant(value) for key, value in base.items()}
        one = making(tensors)
        x = _numbers(one.domain_dimension.value, 2)
        for what, y in (("matmul", one.matmul(x)), ("solve", one.solve(x)), ("log det", one.log_abs_determinant())):
            slopes = tf.gradients(tf.reduce_sum(y * _numbers(*y.shape.as_list())), list(tensors.values()))
            found[f"{name} {what}"] = run(tf, [slope for slope in slopes if slope is not None])
    return found


@program
def operators_of_unknown_sizes(tf: Any) -> Any:
    la, rows = tf.linalg, tf.placeholder_with_default(3, [])
    u = tf.placeholder_with_default(_numbers(2, 3, 2), [None, None, None])
    d = tf.placeholder_with_default(np.abs(_numbers(2, 3)) + 1, [None, None])
    diag = la.LinearOperatorDiag(d, is_positive_definite=True)
    m = la.LinearOperatorFullMatrix(tf.placeholder_with_default(_definite(2), [None, None, None]), is_square=True)
    several = {
        "diag": diag, "full": m, "identity": la.LinearOperatorIdentity(rows), "scaled": la.LinearOperatorScaledIdentity(
            rows, np.float32([1.0, 2.0])), "low rank": la.LinearOperatorLowRankUpdate(diag, u),
        "blocks": la.LinearOperatorBlockDiag([diag, m]), "composition": la.LinearOperatorComposition([diag, m]),
        "kronecker": la.LinearOperatorKronecker([diag, m]), "house": la.LinearOperatorHouseholder(d),
        "circulant": la.LinearOperatorCirculant(d, tf.float32), "toeplitz": la.LinearOperatorToeplitz(d, d),
    }  # fmt: skip
    found = {}
    for name, one in several.items():
        size = run(tf, one.domain_dimension_tensor())
        x = tf.placeholder_with_default(_numbers(2, int(size), 2), [None, None, 2])
        found[name] = run(tf, [one.shape_tensor(), one.matmul(x), one.solve(x), one.trace(), one.log_abs_determinant()])
    return found


@program
def refusals_of_operators(tf: Any) -> Any:
    la, square, wide = tf.linalg, _numbers(3, 3), _numbers(2, 3)
    full = la.LinearOperatorFullMatrix
    cases = {
        "contradiction": lambda: full(square, is_positive_definite=True, is_non_singular=False),
        "no square": lambda: full(wide, is_non_singular=True, is_square=False),
        "integers": lambda: full([[1, 2], [3, 4]]),
        "real diagonal": lambda: la.LinearOperatorDiag(square, is_self_adjoint=False),
        "identity": lambda: la.LinearOperatorIdentity(3, is_non_singular=False),
        "zeros": lambda: la.LinearOperatorZeros(3, is_positive_definite=True),
        "nothing": lambda: la.LinearOperatorComposition([]),
        "dtypes": lambda: la.LinearOperatorBlockDiag([full(square), full(np.float64(square))]),
        "sizes": lambda: full(square).matmul(wide),
        "other dtype": lambda: full(square).matmul(tf.ones([3, 1], tf.float64)),
        "no inverse": lambda: full(wide).inverse(), "no solution": lambda: full(wide).solve(wide),
        "no factor": lambda: full(square).cholesky(), "no determinant": lambda: full(wide).determinant(),
        "product": lambda: full(wide).matmul(full(wide)),
    }  # fmt: skip
    return {name: outcome(lambda make=make: type(make()).__name__) for name, make in cases.items()}


@program
def assertions_of_operators(tf: Any) -> Any:
    la, found = tf.linalg, {}
    diagonals = {"positive": [1.0, 2.0], "negative": [-1.0, 2.0], "zero": [0.0, 1.0]}
    for name, diag in diagonals.items():
        one = la.LinearOperatorDiag(diag)
        for method in ("assert_non_singular", "assert_positive_definite"):
            found[f"{name} {method}"] = outcome(lambda one=one, method=method: run(tf, getattr(one, method)()) is None)
    full = la.LinearOperatorFullMatrix([[1.0, 2.0], [2.0, 4.5]])
    found["full"] = [outcome(lambda m=m: run(tf, getattr(full, m)()) is None) for m in
                     ("assert_non_singular", "assert_self_adjoint")]  # fmt: skip
    return found


@program
def sizes_of_operators_that_are_known(tf: Any) -> Any:
    """Which sizes of an operator have a static value, and how their ops are called."""
    la = tf.linalg
    diag, unknown = la.LinearOperatorDiag(tf.ones([2, 3])), la.LinearOperatorDiag(tf.placeholder(tf.float32, [None, 3]))
    operators = [
        diag, la.LinearOperatorIdentity(3, [2]), la.LinearOperatorBlockDiag([diag, diag]), diag.adjoint(), unknown,
        la.LinearOperatorLowRankUpdate(diag, tf.ones([3, 1])), la.LinearOperatorComposition([diag, unknown]),
    ]  # fmt: skip
    methods = ["batch_shape", "shape", "tensor_rank", "domain_dimension", "range_dimension"]
    found = [[getattr(one, f"{method}_tensor")() for method in methods] for one in operators]
    values = [[tf.get_static_value(size) for size in each] for each in found]
    return [[None if value is None else np.asarray(value) for value in each] for each in values], found[0][0].name
