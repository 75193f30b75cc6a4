"""`tfmini inspect`: shows what each task does and sends in a step of a graph, without running the step."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from tfmini import errors
from tfmini.inspection import picture
from tfmini.inspection.api import inspect as inspected
from tfmini.inspection.difference import Difference, difference
from tfmini.inspection.findings import Inspection
from tfmini.inspection.page_html import page
from tfmini.inspection.svg import svg as drawn
from tfmini.inspection.text import VIEWS, view
from tfmini.printable import printable
from tfmini.suggestions import similar
from tfmini.terminal import console
from tfmini.tools.progress_bars import shown
from tfmini.tools.usage import OptionalArgument, OutputFile, WithScript, one_line_errors, write_text

_FINDINGS = 1  # the exit code of --view lint with findings
_LINES = 50  # lines of a difference without --full


class _Refusal(click.ClickException):
    """With --view lint: the graph cannot be inspected, or a session would refuse it."""

    exit_code = 2


@click.command(cls=WithScript, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--ps", type=click.IntRange(0), metavar="N", help="Number of ps tasks.")
@click.option("--workers", type=click.IntRange(0), metavar="M", help="Number of worker tasks.")
@click.option("--cluster", type=click.Path(exists=True, dir_okay=False), help="JSON or YAML file with a cluster.")
@click.option("--master", metavar="TASK", help="The client's task.  [default: the worker of the graph's devices]")
@click.option("--fetch", multiple=True, metavar="NAME", help="Tensor or op to run.  [default: the training op]")
@click.option("--feed", multiple=True, metavar="NAME", help="Tensor to feed.  [default: the placeholders]")
@click.option("--batch", type=click.IntRange(1), metavar="B", help="Size of unknown first dimensions.")
@click.option("--entry", metavar="MODULE:FUNCTION", help="Build the graph with a function.")
@click.option("--view", "views", multiple=True, type=click.Choice(VIEWS), help="Table to show.  [default: summary]")
@click.option("--why", multiple=True, metavar="OP", help="Show the reasons for the placement of this op.")
@click.option("--full", is_flag=True, help="All rows, with producers, consumers and rendezvous keys.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--diff", type=click.Path(exists=True), help="Show the changes since another graph or script, or an earlier --json."
)
@click.option("--trace", type=click.Path(exists=True, dir_okay=False),
              help="Add the times and bytes of a run: a timeline of `tfmini trace`, or a RunMetadata.")  # fmt: skip
@click.option("--dot", type=OutputFile(), help="Write a Graphviz file.")
@click.option("--svg", type=OutputFile(), help="Write a picture.")
@click.option("--html", type=OutputFile(), help="Write an interactive page.")
@click.argument("source", cls=OptionalArgument, type=click.Path(exists=True), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def inspect(
    views: tuple[str, ...],
    why: tuple[str, ...],
    full: bool,
    as_json: bool,
    diff: str | None,
    dot: str | None,
    svg: str | None,
    html: str | None,
    source: str | None,
    **options: Any,
) -> None:
    """Inspect SOURCE: a Python script (it runs up to its first Session.run), or a GraphDef, MetaGraphDef or
    SavedModel, binary or text. ARGUMENTS (after --) are passed to the script.

    The cluster comes from --ps and --workers, --cluster, TF_CONFIG, the script's server, or the graph's devices.

    With --view lint, the exit code is 0 without findings, 1 with findings, and 2 if the graph cannot be inspected or a
    session would refuse it.
    """
    if source is None and options["entry"] is None:
        raise click.UsageError("Give a SOURCE, or --entry MODULE:FUNCTION.")
    if source is not None and options["entry"] is not None:
        raise click.UsageError(f"Give a SOURCE or --entry, not both: {source} and --entry {options['entry']}.")
    gates = "lint" in views
    with shown():
        try:
            found = _inspected(source, options)
        except click.ClickException as error:
            if gates:
                raise _Refusal(error.message) from None
            raise
        for path, make in ((dot, picture.dot), (svg, drawn), (html, page)):
            if path:
                write_text(path, make(found))
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    elif diff:
        lines = _difference(diff, found, options).lines() or ["no difference"]
        hidden = 0 if full else len(lines) - _LINES
        lines = [*lines[:_LINES], f"… {hidden} more (--full)"] if hidden > 0 else lines
        click.echo("\n".join(map(printable, lines)))
    elif views or why or not (dot or svg or html):
        _print(found, views, why, full)
    if gates:
        _judge(found)


def _judge(found: Inspection) -> None:
    """Ends the command with the exit code of its findings."""
    refusals = found.refusals()
    if refusals:
        more = f" ({len(refusals) - 1} more)" if len(refusals) > 1 else ""
        raise _Refusal(f"A session would refuse this step{more}: {refusals[0].text}")
    if found.problems():
        sys.exit(_FINDINGS)


def _difference(path: str, found: Inspection, options: dict[str, Any]) -> Difference:
    if not path.endswith(".json"):
        return difference(_inspected(path, options), found)
    try:
        with errors.reading("not the output of tfmini inspect --json", ValueError):
            return difference(json.loads(Path(path).read_text()), found)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None


def _inspected(source: str | None, options: dict[str, Any]) -> Inspection:
    # The output of the script must not mix with the answer.
    with one_line_errors(), contextlib.redirect_stdout(sys.stderr):
        return inspected(
            source, ps=options["ps"], workers=options["workers"], cluster=options["cluster"],
            master=options["master"], fetches=options["fetch"], feeds=options["feed"] or None,
            batch=options["batch"], entry=options["entry"], arguments=options["arguments"], trace=options["trace"],
        )  # fmt: skip


def _print(found: Inspection, views: tuple[str, ...], why: tuple[str, ...], full: bool) -> None:
    unknown = [op for op in why if op not in found.placement]
    if unknown:
        near = [name for op in unknown for name in similar(op, found.placement)]
        hint = f" There is {', '.join(near)}." if near else ""
        raise click.ClickException(f"The graph has no op {', '.join(unknown)}.{hint}")
    answer = console()
    if why:
        answer.print(view(found, "why", ops=why))
    for name in views or (() if why else ("summary",)):
        answer.print(view(found, name, full=full))
