"""A program as the commands get it: the path of a script, or a module of packages as ``python -m NAME`` runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class ProgramModule(str):
    """The path of a module's source, which also knows the name by which it is run.

    Attributes:
      name: as after ``python -m``; the package, if what runs is its ``__main__``.
      package: of the module, in which its relative imports begin; "": none.
      folder: where the outermost package is.
    """

    name: str
    package: str
    folder: str

    @classmethod
    def named(cls, name: str) -> ProgramModule | None:
        """The module of that name, in the working folder or on the path; None if there is none.

        Nothing is imported: packages may want a TensorFlow that is not there yet.
        """
        for folder in (os.getcwd(), *filter(None, sys.path)):
            place = Path(folder).joinpath(*name.split("."))
            for path, package in (
                (place / "__main__.py", name),
                (place.with_name(f"{place.name}.py"), name.rpartition(".")[0]),
            ):
                if path.is_file():
                    found = cls(path)
                    found.name, found.package, found.folder = name, package, folder
                    return found
        return None


def words(program: str) -> list[str]:
    """The words of a command line that name a program."""
    return ["-m", program.name] if isinstance(program, ProgramModule) else [program]
