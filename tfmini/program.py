"""A program as the commands get it: the path of a script, or a module of packages as ``python -m NAME`` runs it."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path


class ProgramModule(str):
    """The path of a module's source, which also knows the module.

    Attributes:
      name: of the module; of a package, that of its ``__main__``.
    """

    name: str

    @classmethod
    def named(cls, name: str) -> ProgramModule:
        """The module that Python would run, in the working folder or on the path.

        Nothing is imported: packages may want a TensorFlow that is not there yet.

        Raises:
          ModuleNotFoundError: when there is none.
        """
        spec = _spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = _spec(name)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            wanted = name.removesuffix(".__main__")
            raise ModuleNotFoundError(
                f"there is no module {wanted}, and no package of that name with a __main__, here or on PYTHONPATH"
            )
        found = cls(spec.loader.path)
        found.name = name
        return found

    @property
    def package(self) -> str:
        """The package in which its relative imports begin; "": none."""
        return self.name.rpartition(".")[0]

    @property
    def folder(self) -> str:
        """Where the outermost package is."""
        return str(Path(self).parents[self.name.count(".")])


def _spec(name: str) -> ModuleSpec | None:
    spec, path = None, [os.getcwd(), *sys.path]
    for part in name.split("."):
        spec = PathFinder.find_spec(part, path)  # with the whole name, it would ask for parents that are imported
        if spec is None:
            return None
        path = [*(spec.submodule_search_locations or ())]
    return spec


def words(program: str) -> list[str]:
    """The words of a command line that name a program."""
    return ["-m", program.name] if isinstance(program, ProgramModule) else [program]
