"""Commands whose errors about mistyped options and arguments name the option or argument that was meant."""

from __future__ import annotations

from collections.abc import Collection

import click

from tfmini.suggestions import similar


class Command(click.Command):
    """A command that suggests an option for an unknown one.

    Attributes:
      hint: a sentence that follows the error about an unknown option.
    """

    hint = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [spelling for option in self.get_params(ctx) for spelling in option.opts]
            raise click.UsageError(no_such("option", error.option_name, known, self.hint), ctx) from None


class OptionalArgument(click.Argument):
    """An argument that errors call by its name, without the brackets of the usage line."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{(self.name or '').upper()}'"


def no_such(kind: str, name: str, known: Collection[str], hint: str = "") -> str:
    """The error about a name that a command line does not know, with a suggestion if there is one."""
    near = similar(name, known)
    meant = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return " ".join(filter(None, [f"No such {kind} '{name}'.", meant, hint]))
