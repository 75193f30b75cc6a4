"""What dropped functions did, where no function of today does the same."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# ---- Python ----------------------------------------------------------------------------------------------------------

ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(func: Callable[..., Any]) -> Any:
    """Its arguments (``inspect.getargspec``).

    Raises:
      ValueError: it has keyword-only arguments or annotations, which the result has no place for.
    """
    args, varargs, keywords, defaults, keyword_only, _, annotations = inspect.getfullargspec(func)
    if keyword_only or annotations:
        raise ValueError("Function has keyword-only parameters or annotations, use inspect.signature()")
    return ArgSpec(args, varargs, keywords, defaults)


def formatargspec(args: Any, varargs: Any = None, varkw: Any = None, defaults: Any = None, *_: object) -> str:
    """The arguments as they are written in a definition (``inspect.formatargspec``)."""
    first = len(args) - len(defaults or ())
    shown = [name if i < first else f"{name}={defaults[i - first]!r}" for i, name in enumerate(args)]
    shown += [f"*{varargs}"] if varargs else []
    return f"({', '.join(shown + ([f'**{varkw}'] if varkw else []))})"


def linux_distribution(*_: object, **__: object) -> tuple[str, str, str]:
    """Name, version and code name of the distribution (``platform.linux_distribution``)."""
    import platform

    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "", "", ""
    return release.get("NAME", ""), release.get("VERSION_ID", ""), release.get("VERSION_CODENAME", "")


# ---- numpy -----------------------------------------------------------------------------------------------------------

NINF, PZERO, NZERO = -np.inf, 0.0, -0.0
typeDict = np.sctypeDict  # noqa: N816 - numpy's name
sctypes = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble],
    "others": [bool, object, bytes, str, np.void],
}


def asscalar(a: Any) -> Any:
    """The only element of an array (``np.asscalar``)."""
    return a.item()


def asfarray(a: Any, dtype: Any = np.float64) -> np.ndarray:
    """An array of floating-point numbers (``np.asfarray``)."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> np.ndarray:
    """Which elements of a flat array are in another (``np.in1d``)."""
    return np.asarray(np.isin(np.ravel(ar1), ar2, assume_unique, invert))


def msort(a: Any) -> np.ndarray:
    """A copy that is sorted along the first axis (``np.msort``)."""
    return np.asarray(np.sort(a, axis=0))


# ---- scipy -----------------------------------------------------------------------------------------------------------

rand, randn = np.random.rand, np.random.randn


def binom_test(x: Any, n: int | None = None, p: float = 0.5, alternative: str = "two-sided") -> float:
    """The p-value of a binomial test (``scipy.stats.binom_test``)."""
    from scipy.stats import binomtest

    successes, trials = (int(x[0]), int(sum(x))) if n is None else (int(x), n)
    return float(binomtest(successes, trials, p, alternative).pvalue)


def median_absolute_deviation(x: Any, axis: int | None = 0, center: Any = np.median, scale: float = 1.4826) -> Any:
    """The median of the distances from the median (``scipy.stats.median_absolute_deviation``)."""
    from scipy.stats import median_abs_deviation

    return median_abs_deviation(x, axis, center, 1 / scale)


_RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}  # pillow's numbers


def imread(name: Any, flatten: bool = False, mode: str | None = None) -> np.ndarray:
    """The image of a file, as uint8; float32 with ``flatten``, which makes it grey (``scipy.misc.imread``)."""
    from PIL import Image

    return fromimage(Image.open(name), flatten, mode)


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> np.ndarray:
    """The values of a pillow image (``scipy.misc.fromimage``)."""
    if mode is not None and mode != im.mode:
        im = im.convert(mode)
    elif im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    made: np.ndarray = np.array(im.convert("F") if flatten else im.convert("L") if im.mode == "1" else im)
    return made


def bytescale(data: Any, cmin: Any = None, cmax: Any = None, high: int = 255, low: int = 0) -> Any:
    """Values as uint8, the smallest as ``low``, the largest as ``high`` (``scipy.misc.bytescale``)."""
    data = np.asarray(data)
    if data.dtype == np.uint8:
        return data
    least, most = (data.min() if cmin is None else cmin), (data.max() if cmax is None else cmax)
    if most < least:
        raise ValueError("`cmax` should be larger than `cmin`.")
    scaled = (data - least) * (float(high - low) / ((most - least) or 1)) + low
    return (np.clip(scaled, low, high) + 0.5).astype(np.uint8)


def toimage(arr: Any, high: int = 255, low: int = 0, cmin: Any = None, cmax: Any = None, mode: Any = None) -> Any:
    """A pillow image of an array of rank 2 or 3, with its values scaled to bytes (``scipy.misc.toimage``)."""
    from PIL import Image

    data = np.asarray(arr)
    if data.ndim == 3 and data.shape[2] not in (3, 4) and data.shape[0] in (3, 4):
        data = data.transpose(1, 2, 0)
    if mode == "F":
        return Image.fromarray(data.astype(np.float32))
    image = Image.fromarray(bytescale(data, cmin, cmax, high, low))
    return image if mode is None else image.convert(mode)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:
    """Writes an array to a file, with its values scaled to bytes (``scipy.misc.imsave``)."""
    toimage(arr).save(name, format)


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> np.ndarray:
    """An image in another size: per cent, a fraction, or height and width (``scipy.misc.imresize``)."""
    image = toimage(arr, mode=mode)
    if isinstance(size, (int, np.integer)):
        size = size / 100
    if isinstance(size, (float, np.floating)):
        wanted = tuple((np.array(image.size) * size).astype(int).tolist())
    else:
        wanted = (int(size[1]), int(size[0]))
    return fromimage(image.resize(wanted, resample=_RESAMPLING[interp]))


def imrotate(arr: Any, angle: float, interp: str = "bilinear") -> np.ndarray:
    """An image, turned by degrees against the clock (``scipy.misc.imrotate``)."""
    return fromimage(toimage(arr).rotate(angle, resample=_RESAMPLING[interp]))


def imshow(arr: Any) -> None:
    """Shows an array in the viewer of the system (``scipy.misc.imshow``)."""
    toimage(arr).show()


# ---- networkx 1.x ----------------------------------------------------------------------------------------------------


def from_numpy_matrix(A: Any, **options: Any) -> Any:
    """The graph of an adjacency matrix (``networkx.from_numpy_matrix``)."""
    import networkx

    return networkx.from_numpy_array(np.asarray(A), **options)


def to_numpy_matrix(G: Any, *args: Any, **options: Any) -> Any:
    """The adjacency matrix, as np.matrix (``networkx.to_numpy_matrix``)."""
    import networkx

    return np.asmatrix(networkx.to_numpy_array(G, *args, **options))


def from_scipy_sparse_matrix(A: Any, **options: Any) -> Any:
    """The graph of a sparse adjacency matrix (``networkx.from_scipy_sparse_matrix``)."""
    import networkx

    return networkx.from_scipy_sparse_array(A, **options)


def to_scipy_sparse_matrix(G: Any, *args: Any, format: str = "csr", **options: Any) -> Any:
    """The sparse adjacency matrix, as a matrix, whose ``*`` is a matrix product (``to_scipy_sparse_matrix``)."""
    import networkx
    from scipy import sparse

    made = networkx.to_scipy_sparse_array(G, *args, format="csr", **options)
    return sparse.csr_matrix(made).asformat(format)


def connected_component_subgraphs(G: Any, copy: bool = True) -> Iterator[Any]:
    """The connected parts of a graph, as graphs (``networkx.connected_component_subgraphs``)."""
    import networkx

    for nodes in networkx.connected_components(G):
        yield G.subgraph(nodes).copy() if copy else G.subgraph(nodes)
