"""`python -m tfmini` is the `tfmini` command."""

from tfmini.tools.cli import main

if __name__ == "__main__":
    main()
