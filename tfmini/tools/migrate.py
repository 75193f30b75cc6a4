"""`tfmini migrate`: lists what of a program will not run on tfmini and today's Python, before its first run."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from tfmini.command_line import HELP, Command
from tfmini.compat.roles import script_text
from tfmini.exit_codes import ExitCode
from tfmini.terminal import Rows, console, plain
from tfmini.tools.migration import checks, known
from tfmini.tools.migration.sources import DIVISION, MAYBE, MENDED, STOPS, Obstacle, Parsed, floored, parse, rewritten
from tfmini.tools.migration.uses import Found, uses

_NO_SOURCES = {"__pycache__", "node_modules", "site-packages", "build", "dist"}
_SHOWN = 8  # lines of one thing
_MARKS = {STOPS: "", MENDED: "(mended) ", MAYBE: "(perhaps) "}


@dataclass(frozen=True)
class Report:
    """What was found in a file.

    Attributes:
      path: the file.
      is_python_2: whether Python 3 cannot parse it, and Python 2 can.
      findings: by line.
    """

    path: Path
    is_python_2: bool
    findings: tuple[Obstacle, ...]

    def count(self, level: str) -> int:
        """How many findings are of a level."""
        return sum(finding.level == level for finding in self.findings)


def migrate(target: Path) -> list[Report]:
    """What will not run of a script and the modules beside it that it imports, or of all sources of a folder.

    Raises:
      OSError: a source cannot be read.
    """
    sources = _folder(target) if target.is_dir() else _script(target)
    defined = frozenset(name for _, found in sources.values() for name in found.defined)
    modules = _own_modules(target, sources)
    return [
        Report(
            path,
            parsed.is_python_2,
            tuple(checks.check(parsed, found, checks.Project(modules, _siblings(path), defined))),
        )
        for path, (parsed, found) in sources.items()
    ]


def _folder(folder: Path) -> dict[Path, tuple[Parsed, Found]]:
    return {path: _read(path) for path in sorted(_files(folder)) if path.suffix == ".py"}


def _read(path: Path) -> tuple[Parsed, Found]:
    parsed = parse(script_text(path))
    return parsed, checks.read(parsed)


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder, without those of virtual environments, of builds and of hidden folders."""
    for at, folders, files in os.walk(folder):
        kept = (name for name in folders if name not in _NO_SOURCES and name[0] != ".")
        folders[:] = sorted(name for name in kept if not Path(at, name, "pyvenv.cfg").exists())
        yield from (Path(at, name) for name in files)


def _script(script: Path) -> dict[Path, tuple[Parsed, Found]]:
    """The script and those modules beside it that it imports, also by one another."""
    sources: dict[Path, tuple[Parsed, Found]] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop(0)
        if path not in sources:
            sources[path] = _read(path)
            waiting += _imported(path, sources[path][1], script.parent)
    return sources


def _imported(path: Path, found: Found, folder: Path) -> Iterator[Path]:
    """The files below the script's folder that a source imports."""
    named = [(folder, use.path) for use in found.uses if use.is_import]
    named += [(path.parents[level - 1], dotted) for level, dotted in found.relative if level <= len(path.parents)]
    for start, dotted in named:
        at = start
        for part in dotted.split("."):
            at = at / part
            yield from (each for each in (at.with_suffix(".py"), at / "__init__.py") if each.is_file())


def _own_modules(target: Path, sources: Iterable[Path]) -> frozenset[str]:
    """The names of modules and packages that a program can import of its own: those beside it, and outside packages."""
    folder = target if target.is_dir() else target.parent
    tops = {_top(path) for path in sources} | {_top(folder / "__init__.py")}
    beside = (path for top in {folder, *(top.parent for top in tops if folder in top.parents or top == folder)}
              for path in top.iterdir())  # fmt: skip
    return frozenset({top.stem for top in tops} | {p.stem for p in beside if p.suffix == ".py" or p.is_dir()})


def _top(path: Path) -> Path:
    """The outermost package around a source; the source itself if it is in none."""
    path = path.resolve()
    top = path
    while (top.parent / "__init__.py").exists():
        top = top.parent
    return top


def _siblings(path: Path) -> frozenset[str]:
    """The modules beside a source of a package, less itself: a source that imports its own name means a package."""
    folder = path.parent
    if not (folder / "__init__.py").exists():
        return frozenset()
    return frozenset(each.stem for each in folder.iterdir() if each.suffix == ".py" or each.is_dir()) - {
        "__init__",
        path.stem,
    }


# ---- What is shown ---------------------------------------------------------------------------------------------------


def _as_json(reports: Sequence[Report], root: str) -> dict[str, Any]:
    files = [
        {"path": str(report.path), "python": 2 if report.is_python_2 else 3, "findings": [
            {**asdict(finding), "fixable": bool(finding.fixer)} for finding in report.findings]}
        for report in reports
    ]  # fmt: skip
    counts = {level: sum(report.count(level) for report in reports) for level in (STOPS, MENDED, MAYBE)}
    return {"target": root, "files": files, "summary": {"files": len(reports), **counts}}


def _lines(report: Report, levels: Sequence[str]) -> Iterator[str]:
    """A line for each thing, with the first line where it is and the others."""
    places: dict[Obstacle, list[int]] = {}
    for finding in report.findings:
        if finding.level in levels:
            places.setdefault(replace(finding, line=0), []).append(finding.line)
    for finding, lines in places.items():
        more = f" (also {', '.join(map(str, lines[1:_SHOWN]))}{', …' if len(lines) > _SHOWN else ''})"
        told = f"{finding.what}: {finding.remedy}" if finding.remedy else finding.what
        yield f"{report.path}:{lines[0]}: {_MARKS[finding.level]}{told}{more if len(lines) > 1 else ''}"


def _show(reports: Sequence[Report]) -> None:
    answer = console()
    for report in reports:
        for line in _lines(report, (STOPS, MENDED, MAYBE)):
            answer.print(plain(line), soft_wrap=True)
    table = Rows.of("file", ">to change", ">mended by run", ">perhaps", "Python", spare=("Python",))
    for report in reports:
        if report.findings:
            python = "2" if report.is_python_2 else "3"
            table.add_row(str(report.path), *(str(report.count(level)) for level in (STOPS, MENDED, MAYBE)), python)
    if any(report.findings for report in reports):
        answer.print(table)
    answer.print(plain(_conclusion(reports)), soft_wrap=True)


def _conclusion(reports: Sequence[Report]) -> str:
    stopped = [report for report in reports if report.count(STOPS)]
    files = "1 file" if len(reports) == 1 else f"{len(reports)} files"
    mended = sum(report.count(MENDED) for report in reports)
    given = f" `tfmini run` mends {_places(mended)} by itself." if mended else ""
    if not stopped:
        return f"{files}: nothing to change.{given}"
    places = sum(report.count(STOPS) for report in reports)
    fixable = sum(f.level == STOPS and bool(f.fixer) for report in reports for f in report.findings)
    fix = f" --fix rewrites {fixable} of them." if fixable else ""
    return f"{len(stopped)} of {files}: {_places(places)} to change.{fix}{given}"


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


# ---- Rewrites --------------------------------------------------------------------------------------------------------


def _fix(reports: Sequence[Report]) -> None:
    """Rewrites the sources that have Python 2 in them; the text before the first time stays in NAME.py.orig."""
    for report in reports:
        if not any(finding.fixer for finding in report.findings):
            continue
        before = script_text(report.path)
        after = rewritten(before, report.findings)
        if after is not None and any(finding.fixer == DIVISION for finding in report.findings):
            after = floored(after, uses(ast.parse(after), known.public_names).whole)
        if after is None:
            click.echo(f"tfmini: {report.path} stays as it is: it cannot be parsed as Python 2.", err=True)
        elif after != before:
            kept = report.path.with_name(report.path.name + ".orig")
            if not kept.exists():
                kept.write_bytes(report.path.read_bytes())
            report.path.write_text(after, encoding="utf-8")
            click.echo(f"tfmini: rewrote {report.path}; the former text is in {report.path.name}.orig.", err=True)


@click.command(cls=Command, context_settings=HELP)
@click.argument("target", metavar="SCRIPT|FOLDER", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--fix", is_flag=True, help="Rewrite Python 2 as Python 3 first; FILE.orig keeps the former text.")
def migrate_command(target: Path, as_json: bool, fix: bool) -> None:
    """List what of a program will not run on tfmini and this Python. Nothing of it is run.

    Of a SCRIPT, the modules beside it that it imports are looked at, too; of a FOLDER, all its sources. Each place is
    told with its file and line, what it is, and whether `tfmini run` mends it by itself or what to write.

    The exit code is 1 if there is anything to change.
    """
    try:
        reports = migrate(target)
        if fix:
            _fix(reports)
            reports = migrate(target)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(_as_json(reports, str(target)), indent=1))
    else:
        _show(reports)
    if any(report.count(STOPS) for report in reports):
        sys.exit(ExitCode.FAILED)
