"""Tells a script its task: `TF_CONFIG`, role flags and placeholders.

Old distributed scripts have the role flags `--job_name`, `--task_index` (or `--task_id`), `--ps_hosts` and
`--worker_hosts`. The launcher passes those that the script defines and the user has not given, before the user's own
arguments. The script's source shows its flags: calls of `DEFINE_…("job_name", …)`, `add_argument("--job_name", …)` and
click's `option("--job-name", …)`. If it defines none, those of the modules count that it imports from its own folder
and PYTHONPATH: `DEFINE_…` calls first, else the others. For other interfaces, `{job}`, `{task}`, `{ps_hosts}` and
`{worker_hosts}` in the arguments are replaced.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tfmini.cluster import ClusterSpec
from tfmini.program import ProgramModule

_MOST_MODULES = 500  # of a script: PYTHONPATH may name a folder of large packages
ROLE_FLAGS = ("job_name", "task_index", "task_id", "ps_hosts", "worker_hosts")

_FLAGS = "|".join(flag.replace("_", "[_-]") for flag in ROLE_FLAGS)
_FLAG_IN_TEXT = re.compile(rf"""["'](?:--?)?({_FLAGS})["']""")
_NAMES_A_FLAG = re.compile(_FLAGS)
_LIBRARY = Path(__file__).resolve().parents[1]


def _canonical(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def defined_role_flags(source: str) -> dict[str, str]:
    """The role flags that a script defines: canonical name -> spelling on the command line, such as `--job-name`.

    In a source that this Python cannot parse (Python 2, say) it searches for quoted flag names.
    """
    if not _NAMES_A_FLAG.search(source):  # to parse hundreds of modules takes seconds
        return {}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # ValueError: null bytes
        return {_canonical(word): f"--{word}" for word in _FLAG_IN_TEXT.findall(source)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    spellings = (spelling for call in calls for spelling in _flags_of_call(call))
    return {_canonical(spelling): spelling for spelling in spellings if _canonical(spelling) in ROLE_FLAGS}


def imported_modules(source: str) -> list[str]:
    """The dotted names of the modules that a source imports; none if this Python cannot parse it.

    Those of relative imports begin with a dot for each level.
    """
    names: list[str] = []
    for node in _statements(source, nested=True):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            head = f"{package}." if node.module else package
            names += [*([package] if node.module else []), *(f"{head}{alias.name}" for alias in node.names)]
    return names


def module_role_flags(source: str) -> dict[str, str]:
    """The role flags that a module defines when it is imported: its ``DEFINE_…`` calls outside functions."""
    found = _statements(source) if _NAMES_A_FLAG.search(source) else ()
    calls = (node.value for node in found if isinstance(node, ast.Expr))
    named = (call for call in calls if isinstance(call, ast.Call) and "DEFINE_" in ast.unparse(call.func))
    spellings = (spelling for call in named for spelling in _flags_of_call(call))
    return {_canonical(spelling): spelling for spelling in spellings if _canonical(spelling) in ROLE_FLAGS}


def _statements(source: str, nested: bool = False) -> Iterator[ast.AST]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return iter(())
    return ast.walk(tree) if nested else iter(tree.body)


def _flags_of_call(call: ast.Call) -> Iterator[str]:
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    named = (keyword.value for keyword in call.keywords if keyword.arg in ("name", "flag_name"))
    words = [arg.value for arg in (*call.args, *named) if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if name.startswith("DEFINE_"):
        yield from (f"--{word}" for word in words[:1])
    elif name in ("add_argument", "add_option", "option"):
        yield from (word for word in words if word.startswith("--"))


def role_arguments(job: str, task: int, cluster: ClusterSpec, flags: dict[str, str], args: Sequence[str]) -> list[str]:
    """The command line of one task after the script's name: role flags, then `args` with placeholders replaced.

    `flags` is the result of `defined_role_flags`.
    """
    values = _role_values(job, task, cluster)
    given = {_canonical(arg) for arg in args if arg.startswith("-")}
    ours = [f"{spelling}={values[flag]}" for flag, spelling in flags.items() if flag not in given]
    return ours + [_fill(arg, values) for arg in args]


def _role_values(job: str, task: int, cluster: ClusterSpec) -> dict[str, str]:
    return {
        "job_name": job,
        "task_index": str(task),
        "task_id": str(task),
        "ps_hosts": ",".join(_addresses(cluster, "ps")),
        "worker_hosts": ",".join(_addresses(cluster, "worker")),
    }


def _addresses(cluster: ClusterSpec, job: str) -> Iterable[str]:
    return (task.address for task in cluster.tasks() if task.job == job)


def _fill(arg: str, values: dict[str, str]) -> str:
    # Not str.format: an argument may be JSON or the script's own template.
    arg = arg.replace("{job}", values["job_name"]).replace("{task}", values["task_index"])
    return arg.replace("{ps_hosts}", values["ps_hosts"]).replace("{worker_hosts}", values["worker_hosts"])


def tf_config(job: str, task: int, cluster: ClusterSpec) -> str:
    """The value of the environment variable TF_CONFIG for one task."""
    return json.dumps({"cluster": cluster.as_dict(), "task": {"type": job, "index": task}})


# ---- Reads a script's source as text, in any encoding and for any version of Python --------------------------------


def script_text(path: str | Path) -> str:
    """The text of a script, decoded as its coding line says, or else as Latin-1.

    Raises:
      OSError: when the file cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")


# ---- Finds the role flags of a script: its own, or those of modules of its own ----------------------------------


def role_flags_of(script: str | Path) -> dict[str, str]:
    """The role flags of a script; if it has none, those of the modules of its own that it imports.

    Returns:
      Canonical name -> spelling on the command line, as `defined_role_flags`.
    """
    own, *others = texts_of(script)
    return defined_role_flags(own) or _of_all(module_role_flags, others) or _of_all(defined_role_flags, others)


def _of_all(flags_of: Callable[[str], dict[str, str]], texts: Sequence[str]) -> dict[str, str]:
    return {flag: spelling for text in texts for flag, spelling in flags_of(text).items()}


def texts_of(script: str | Path) -> list[str]:
    """The text of a script and those of the modules of its own that it imports, also by one another.

    Its own modules are those in its directory and in the folders of PYTHONPATH, but for the library's.
    """
    path = Path(script).resolve()
    texts, paths = [script_text(script)], [path]
    first = Path(script.folder) if isinstance(script, ProgramModule) else path.parent
    folders = [first, *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]
    for text, place in zip(texts, paths):  # both grow meanwhile
        for name in imported_modules(text):
            found = _module_path(name, place, folders)
            is_known = found is None or found in paths or _LIBRARY in found.parents
            if found is not None and not is_known and len(paths) < _MOST_MODULES:
                paths.append(found)
                texts.append(script_text(found))
    return texts


def _module_path(name: str, importer: Path, folders: Sequence[Path]) -> Path | None:
    words = name.lstrip(".")
    level = len(name) - len(words)
    for folder in importer.parents[level - 1 : level] if level else folders:
        path = folder.joinpath(*words.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate.resolve()
    return None


def defined_options(script: str | Path, words: Iterable[str]) -> set[str]:
    """Which of some options, such as ``--ps``, a script or a module beside it defines or looks for in its arguments."""
    texts = texts_of(script)
    found = set()
    for word in words:
        name = re.escape(word.lstrip("-")).replace(r"\-", "[-_]")
        pattern = re.compile(rf"""["']--?{name}[=: "']|DEFINE_\w+\(\s*(?:\w+\s*=\s*)?["']{name}["']""")
        if any(pattern.search(text) for text in texts):
            found.add(word)
    return found
