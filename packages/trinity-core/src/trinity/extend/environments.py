"""Virtual environments of plugins: where one lies, and whether it is what the plugin wants."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.extend.component import EnvironmentSpec

__all__ = [
    "ENVIRONMENTS",
    "environment_folder",
    "environment_python",
    "missing_environment",
    "python_in",
    "setup_line",
    "write_note",
]

ENVIRONMENTS = "TRINITY_ENVIRONMENTS"  # the folder of all environments, where it is set
_NOTE = "trinity-environment.json"  # written last: without it the folder is half made


def environment_folder(spec: EnvironmentSpec, *, env: Mapping[str, str] | None = None) -> Path:
    """Return where the environment lies, or will lie.

    That is below ``TRINITY_ENVIRONMENTS``, else below ``trinity/environments`` of the user's data
    folder (``XDG_DATA_HOME``, ``~/.local/share``).

    Args:
        spec: the environment.
        env: the environment variables to read; None: the process's.
    """
    env = os.environ if env is None else env  # noqa: TID251 -- style rule 47
    data = Path(env.get("XDG_DATA_HOME") or "~/.local/share", "trinity", "environments")
    return Path(env.get(ENVIRONMENTS) or data).expanduser().absolute() / spec.name


def environment_python(spec: EnvironmentSpec, *, env: Mapping[str, str] | None = None) -> Path:
    """Return the interpreter of the environment.

    Args:
        spec: the environment.
        env: the environment variables to read; None: the process's.

    Raises:
        PluginError: it is not there; the message holds the command that makes it.
    """
    missing = missing_environment(spec, env=env)
    if missing:
        raise PluginError(
            f"plugin {spec.name} needs {spec.what} in an environment of its own, and {missing}. "
            f"{setup_line(spec)}"
        )
    return python_in(environment_folder(spec, env=env))


def missing_environment(spec: EnvironmentSpec, *, env: Mapping[str, str] | None = None) -> str:
    """Return what is wrong with the environment, in words; empty: it is there, as it must be."""
    folder = environment_folder(spec, env=env)
    try:
        noted = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"there is none in {folder}"
    except (OSError, ValueError) as error:
        return f"{folder / _NOTE} cannot be read ({type(error).__name__})"
    if noted != _note(spec):
        packages = noted.get("packages", ()) if isinstance(noted, dict) else ()
        return f"the one in {folder} holds {', '.join(map(str, packages)) or 'other packages'}"
    if not python_in(folder).exists():  # also where it is a link to a Python that is gone
        return f"the Python of {folder} is gone"
    return ""


def setup_line(spec: EnvironmentSpec) -> str:
    """Return what to do for an environment that is missing."""
    return f"Run: trinity plugins setup {spec.name} --environment"


def python_in(folder: Path) -> Path:
    """Return where a virtual environment has its interpreter."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def write_note(spec: EnvironmentSpec, folder: Path) -> None:
    """Note that the folder holds the whole environment."""
    (folder / _NOTE).write_text(json.dumps(_note(spec), indent=2) + "\n", encoding="utf-8")


def _note(spec: EnvironmentSpec) -> dict[str, object]:
    return {"packages": list(spec.packages), "python": spec.python}
