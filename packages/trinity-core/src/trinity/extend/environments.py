"""Virtual environments of plugins: where one lies, and whether it is what the plugin wants."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import PluginError
from trinity.extend.as_here import build_as_here, words_as_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.extend.component import EnvironmentSpec

__all__ = [
    "ENVIRONMENTS",
    "environment_folder",
    "environment_python",
    "missing_environment",
    "program_in",
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
    return Path(env.get(ENVIRONMENTS) or data).expanduser().absolute() / (spec.folder or spec.name)


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
        return f"the one in {folder} {_how_it_differs(noted, _note(spec))}"
    if not python_in(folder).exists():  # also where it is a link to a Python that is gone
        return f"the Python of {folder} is gone"
    return ""


def setup_line(spec: EnvironmentSpec) -> str:
    """Return what to do for an environment that is missing."""
    return f"Run: trinity plugins setup {spec.name} --environment"


def python_in(folder: Path) -> Path:
    """Return where a virtual environment has its interpreter."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def program_in(folder: Path) -> Path:
    """Return where a virtual environment that holds Trinity has its command."""
    return python_in(folder).with_name("trinity.exe" if os.name == "nt" else "trinity")


def write_note(spec: EnvironmentSpec, folder: Path) -> None:
    """Note that the folder holds the whole environment."""
    (folder / _NOTE).write_text(json.dumps(_note(spec), indent=2) + "\n", encoding="utf-8")


def _how_it_differs(noted: object, wanted: Mapping[str, object]) -> str:
    noted = noted if isinstance(noted, dict) else {}
    others = {key for key in {*noted, *wanted} if noted.get(key) != wanted.get(key)}
    if others == {"builds"}:
        before = _words(noted.get("builds"))
        names = [one.split()[0] for one in _words(wanted.get("builds")) if one not in before]
        return f"holds another build of {', '.join(names)}"
    if not others & {"packages", "as_here"}:
        return "was made for other versions of Python, or leaves out other packages"
    held = [*_words(noted.get("packages")), *_words(noted.get("as_here"))]
    return f"holds {', '.join(held) or 'other packages'}"


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _note(spec: EnvironmentSpec) -> dict[str, object]:
    here = [" ".join(words_as_here(requirement)) for requirement in spec.as_here]
    builds = [build_as_here(requirement) for requirement in spec.as_here]
    further = {"as_here": here, "builds": builds, "left_out": list(spec.left_out)}
    note: dict[str, object] = {"packages": list(spec.packages), "python": spec.python}
    return note | {key: words for key, words in further.items() if words}
