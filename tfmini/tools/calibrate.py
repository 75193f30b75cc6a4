"""`tfmini calibrate`: measures this machine and writes its profile."""

from __future__ import annotations

import datetime
import platform

import click

from tfmini.terminal import console
from tfmini.tools.progress_bars import shown
from tfmini.tools.usage import Command, OutputFile, write_text


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", type=OutputFile(), default="profile.toml",
              show_default=True, help="File for the profile.")  # fmt: skip
@click.option("--name", default="here", show_default=True, help="Name of the machine in the profile.")
def calibrate(output: str, name: str) -> None:
    """Measure what kernels, steps and messages cost on this machine, for `tfmini simulate` and `tfmini place`.

    It takes about seven minutes. The machine should do nothing else meanwhile.
    """
    import tfmini as tf
    from tfmini.simulation import calibration
    from tfmini.simulation.profile import format_profile

    with shown():
        try:
            profile = calibration.calibrate(tf, name)
        except RuntimeError as error:
            raise click.ClickException(str(error)) from None
    today = datetime.datetime.now(datetime.UTC).date()
    comment = f"Measured by tfmini calibrate on {platform.node()}, {today}.\n[links.tcp]: rate and latency are assumed."
    write_text(output, format_profile(profile, comment))
    console(piped_width=None).print(f"the profile is in {output}: tfmini simulate --profile {output} SCRIPT")
