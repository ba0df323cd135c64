"""Virtual environments of plugins: where one lies, and whether it is right."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from trinity.errors import PluginError
from trinity.extend.discovery import direct_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import Distribution

    from trinity.extend.component import EnvironmentSpec

_TOLD = ("/METADATA", "/entry_points.txt")  # of a dist-info; the rest says how it was installed


def words_as_here(requirement: str) -> list[str]:
    """Return the words of a command line that install a distribution as it is installed here.

    From a checkout that is edited in place it is that folder again; from a file, a folder or a
    repository that; else this version.

    Args:
        requirement: ``name`` or ``name[extra,extra]``.

    Raises:
        PluginError: it is not installed here.
    """
    name, bracket, rest = requirement.partition("[")
    extras = bracket + rest
    found = _found(name)
    origin = direct_url(found)
    url = origin.get("url", "")
    if not url:
        return [f"{name}{extras}=={found.version}"]
    if origin.get("dir_info", {}).get("editable"):
        return ["-e", unquote(url).removeprefix("file://") + extras]
    version_control = origin.get("vcs_info", {})
    if version_control:
        url = f"{version_control.get('vcs')}+{url}@{version_control.get('commit_id')}"
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    return [f"{name}{extras} @ {url}{part}"]


def build_as_here(requirement: str) -> str:
    """Return what tells builds of one place apart: the version, and a digest where it is a copy.

    Args:
        requirement: ``name`` or ``name[extra,extra]``.

    Raises:
        PluginError: it is not installed here.
    """
    name = requirement.partition("[")[0]
    found = _found(name)
    origin = direct_url(found)
    is_copy = "url" in origin and not origin.get("dir_info", {}).get("editable")
    digest = f" {_digest(found)}" if is_copy and "vcs_info" not in origin else ""
    return f"{name} {found.version}{digest}"


def _found(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise PluginError(
            f"{name} is to be in the environment as it is here, and it is not installed here. "
            f"Run: python -m pip install {name}"
        ) from error


def _digest(found: Distribution) -> str:
    """Return a digest of the files that every installer makes equally of one build."""
    rows = csv.reader((found.read_text("RECORD") or "").splitlines())
    held = sorted(f"{row[0]} {row[1]}" for row in rows if len(row) > 1 and _is_of_build(row[0]))
    return hashlib.sha256("\n".join(held).encode()).hexdigest()[:16]


def _is_of_build(path: str) -> bool:
    folder = path.partition("/")[0]
    if folder == ".." or path.startswith("/") or path.endswith(".pyc"):
        return False
    return not folder.endswith(".dist-info") or path.endswith(_TOLD)


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
            f"plugin {spec.name} needs {spec.what} in its own environment, but {missing}. "
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
        return f"the Python of {folder} does not exist any more"
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
