"""Runs the `tfmini` command as `python -m tfmini`."""

from tfmini.tools.cli import main

if __name__ == "__main__":
    main()
