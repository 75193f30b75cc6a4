"""Names that modules had: module -> name -> what it was, as ``module:attribute``, or a module to import."""

from __future__ import annotations

_HERE = "tfmini.compat.old_python.replacements"


def _same(module: str, names: str) -> dict[str, str]:
    """Names that another module has under the same name, or under another: ``old=new``."""
    pairs = (entry.partition("=") for entry in names.split())
    return {old: f"{module}:{new or old}" for old, _, new in pairs}


def _parts(package: str, names: str) -> dict[str, str]:
    """Modules of a package that TensorFlow imported, so that scripts found them after importing the package alone."""
    return {name: f"{package}.{name}" for name in names.split()}


NAMES: dict[str, dict[str, str]] = {
    "multiprocessing": _parts("multiprocessing", "pool"),
    "urllib": _parts("urllib", "error request response"),
    "http": _parts("http", "client"),
    "unittest": _parts("unittest", "mock"),
    "xml": _parts("xml", "dom sax"),
    "xml.dom": _parts("xml.dom", "minidom"),
    "email": _parts("email", "parser"),
    "collections": _same(
        "collections.abc",
        "Awaitable ByteString Callable Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView "
        "Mapping MappingView MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized ValuesView",
    ),
    "inspect": _same(_HERE, "getargspec ArgSpec formatargspec"),
    "time": _same("time", "clock=perf_counter"),
    "fractions": _same("math", "gcd"),
    "cgi": _same("html", "escape"),
    "platform": _same(_HERE, "linux_distribution dist=linux_distribution"),
    "base64": _same("base64", "decodestring=decodebytes encodestring=encodebytes"),
    "numpy": {
        **_same("builtins", "bool int float complex object str long=int unicode=str"),
        **_same(
            "numpy",
            "bool8=bool_ float_=float64 complex_=complex128 int0=intp uint0=uintp object0=object_ str0=str_ "
            "string_=bytes_ unicode_=str_ singlecomplex=complex64 cfloat=complex128 longfloat=longdouble "
            "clongfloat=clongdouble longcomplex=clongdouble Inf=inf Infinity=inf infty=inf PINF=inf NaN=nan "
            "product=prod cumproduct=cumprod alltrue=all sometrue=any round_=round row_stack=vstack trapz=trapezoid "
            "mat=asmatrix rank=ndim",
        ),
        **_same(_HERE, "NINF PZERO NZERO asscalar asfarray in1d msort typeDict sctypes"),
        **_same("numpy.exceptions", "VisibleDeprecationWarning ComplexWarning AxisError RankWarning TooHardError"),
    },
    "numpy.lib": _same("numpy", "pad"),
    "PIL.Image": _same("PIL.Image", "ANTIALIAS=LANCZOS LINEAR=BILINEAR CUBIC=BICUBIC"),
    "scipy": {
        **_same("numpy", "interp"),
        **_same(
            "numpy",
            "absolute arange array arccos arcsin arctan array_equal asarray ceil concatenate cos cosh cov dot empty "
            "exp eye floor hstack inf isnan linspace log log10 log2 loadtxt logspace max mean mod nan newaxis ones pi "
            "polyfit polyval random repeat reshape shape sign sin sinh sqrt std stack sum tan tanh tile transpose "
            "unique var vstack where zeros zeros_like",
        ),
        **_same(_HERE, "randn rand"),
    },
    "scipy.misc": {
        **_same(_HERE, "imread imsave imresize imrotate imshow toimage fromimage bytescale"),
        **_same("scipy.special", "logsumexp factorial comb"),
        **_same("scipy.datasets", "face ascent"),
    },
    "scipy.ndimage": _same(_HERE, "imread"),
    "scipy.signal": _same(
        "scipy.signal.windows",
        "barthann bartlett blackman blackmanharris bohman boxcar chebwin cosine exponential flattop gaussian "
        "general_gaussian hamming hann hanning=hann kaiser nuttall parzen triang tukey",
    ),
    "scipy.integrate": _same("scipy.integrate", "simps=simpson trapz=trapezoid cumtrapz=cumulative_trapezoid"),
    "scipy.linalg": _same("scipy.linalg", "pinv2=pinv"),
    "scipy.stats": _same(_HERE, "binom_test median_absolute_deviation"),
    "networkx": _same(
        _HERE,
        "from_numpy_matrix to_numpy_matrix from_scipy_sparse_matrix to_scipy_sparse_matrix "
        "connected_component_subgraphs",
    ),
}
