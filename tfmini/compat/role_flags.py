"""Finds the role flags of a script: its own, or those of the modules beside it."""

from __future__ import annotations

from pathlib import Path

from tfmini.compat.roles import defined_role_flags, imported_modules, module_role_flags
from tfmini.compat.script_text import script_text


def role_flags_of(script: str | Path) -> dict[str, str]:
    """The role flags of a script; if it has none, those of the modules in its directory that it imports.

    Returns:
      Canonical name -> spelling on the command line, as `defined_role_flags`.
    """
    text = script_text(script)
    own = defined_role_flags(text)
    if own:
        return own
    folder = Path(script).resolve().parent
    seen: dict[Path, str] = {}
    waiting = [text]
    while waiting:
        for name in imported_modules(waiting.pop()):
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            if path not in seen and path.is_file():
                seen[path] = script_text(path)
                waiting.append(seen[path])
    return {flag: spelling for source in seen.values() for flag, spelling in module_role_flags(source).items()}
