"""Runs notebooks without Jupyter: their code cells in order, in a process of their own.

``python -m tests.notebook_runner FILE...`` writes the outputs into the notebooks. Pages (HTML) are left out: each has
half a megabyte, and a reader without Jupyter would not see it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VARIES = "varies"
"""The tag of a cell whose output is not the same each time."""

_PROGRAM = "import sys; from tests.notebook_runner import in_this_process; in_this_process(sys.argv[1])"


def outputs(path: Path, timeout_s: float = 120.0) -> list[dict[str, str]]:
    """Per code cell: the printed ``text``, the last ``value`` as text, and the type of a value that shows a ``page``.

    Raises:
      RuntimeError: a cell has failed; with its traceback.
    """
    command = [sys.executable, "-c", _PROGRAM, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{path.name} has failed:\n{done.stderr}")
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def code_cells(path: Path) -> list[dict[str, Any]]:
    """The code cells of a notebook file."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def in_this_process(path: str) -> None:
    """Runs a notebook and prints the outputs as one line of JSON."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for number, cell in enumerate(code_cells(Path(path)), 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _run("".join(cell["source"]), f"cell {number}", names)
        page = value._repr_html_() if hasattr(value, "_repr_html_") else ""
        about = {"value": "" if value is None else repr(value), "page": type(value).__name__ if page else ""}
        found.append({"text": printed.getvalue(), **about})
    print(json.dumps(found))


def _run(source: str, name: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last expression, as Jupyter shows it."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), names)


def shown(output: dict[str, str], number: int) -> list[dict[str, Any]]:
    """The outputs of the n-th code cell, as a notebook file has them."""
    found: list[dict[str, Any]] = []
    if output["text"]:
        found.append({"name": "stdout", "output_type": "stream", "text": output["text"].splitlines(keepends=True)})
    if output["value"]:
        data = {"text/plain": output["value"].splitlines(keepends=True)}
        found.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def write(path: Path) -> None:
    """Runs a notebook and writes its outputs into the file."""
    notebook, results = json.loads(path.read_text()), outputs(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, output) in enumerate(zip(code, results, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, shown(output, number)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for file in sys.argv[1:]:
        begun = time.monotonic()
        write(Path(file))
        print(f"{file}: {time.monotonic() - begun:.1f} s")
