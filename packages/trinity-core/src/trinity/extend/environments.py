"""Virtual environments of plugins: where one lies, whether it is right, and how it is made."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from packaging.specifiers import SpecifierSet

from trinity.errors import PluginError
from trinity.extend.discovery import direct_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.metadata import Distribution

    from trinity.extend.component import EnvironmentSpec

__all__ = [
    "ENVIRONMENTS",
    "build_as_here",
    "chosen_python",
    "commands_of",
    "environment_folder",
    "environment_python",
    "make_environment",
    "missing_environment",
    "program_in",
    "python_in",
    "setup_line",
    "words_as_here",
    "write_note",
]


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


_MINORS = range(30, 7, -1)  # of python3.N on the PATH, the newest first
_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_WHERE = {  # installer -> where it finds packages
    "uv": "uv takes packages from UV_DEFAULT_INDEX and the folders of UV_FIND_LINKS, and does not "
    "read pip's settings; UV_OFFLINE=1 keeps it off the network",
    "pip": "pip takes packages from PIP_INDEX_URL and the folders of PIP_FIND_LINKS; "
    "PIP_NO_INDEX=1 keeps it off the network",
}


def make_environment(
    spec: EnvironmentSpec,
    *,
    say: Callable[[str], None],
    python: str | None = None,
    uv: str | None = None,
) -> Path:
    """Make the environment, unless it is there; return its folder.

    Whoever comes second waits for the first and finds it made. What a failure left half made is
    cleared by the next.

    Args:
        spec: what is to be in it.
        say: told each line for the person who waits.
        python: the interpreter to make it with; None: a fitting one is looked for.
        uv: the program uv; None: venv and pip are used.

    Raises:
        PluginError: there is no fitting Python, a command failed, or this process runs in it.
    """
    folder = environment_folder(spec)
    with _only_one(folder):
        if not missing_environment(spec):
            say(f"{spec.name}: its environment is in {folder}")
            return folder
        _check_not_own(folder, spec)
        interpreter = chosen_python(spec, given=python, uv=uv)
        commands = commands_of(spec, folder=folder, python=interpreter, uv=uv)
        say(f"{spec.name}: {spec.what} ({spec.size}) goes to {folder}. This will be run:")
        if uv and spec.left_out:
            file = _overrides(folder)
            lines = [f'{name} ; sys_platform == "never"\n' for name in spec.left_out]
            file.write_text("".join(lines), encoding="utf-8")
            say(f"  # {file} leaves out {', '.join(spec.left_out)}")
        for words in commands:
            say(f"  {_shown(words)}")
        for words in commands:
            _run(words, spec=spec, installer="uv" if uv else "pip")
        write_note(spec, folder)
        say(f"{spec.name}: ok, its environment is in {folder}")
        if spec.as_here:
            say(f"{spec.name}: Trinity is in it, too; start there with {program_in(folder)}")
    return folder


def commands_of(
    spec: EnvironmentSpec, *, folder: Path, python: str, uv: str | None
) -> list[list[str]]:
    """Return the commands that make the environment, in order.

    Args:
        spec: what is to be in it.
        folder: where it is to lie; what is there is cleared.
        python: an interpreter, or for uv also the versions that fit.
        uv: the program uv; None: venv and pip are used.
    """
    inside = str(python_in(folder))
    here = [word for requirement in spec.as_here for word in words_as_here(requirement)]
    wanted = [*spec.packages, *here]
    if uv:
        without = ["--overrides", str(_overrides(folder))] if spec.left_out else []
        return [
            [uv, "venv", "--quiet", "--clear", "--python", python, str(folder)],
            [uv, "pip", "install", "--compile-bytecode", "--python", inside, *without, *wanted],
        ]
    # -I: what PYTHONPATH names is no part of an environment
    pip = [inside, "-I", "-m", "pip", "--disable-pip-version-check"]
    taken_out = [[*pip, "uninstall", "--yes", *spec.left_out]] if spec.left_out else []
    made = [python, "-I", "-m", "venv", "--clear", str(folder)]
    return [made, [*pip, "install", *wanted], *taken_out]


def _check_not_own(folder: Path, spec: EnvironmentSpec) -> None:
    if Path(sys.prefix).resolve() == folder.resolve():
        raise PluginError(
            f"the environment of {spec.name}, {folder}, must be rebuilt, but this command runs in "
            f"it. Run the trinity of another environment: trinity plugins setup {spec.name} "
            f"--environment"
        )


def _overrides(folder: Path) -> Path:
    """Return the file that tells uv what to leave out."""
    return folder.parent / f"{folder.name}.left-out.txt"


def chosen_python(spec: EnvironmentSpec, *, given: str | None, uv: str | None) -> str:
    """Return the Python to make the environment with: given, this one, or one that is found.

    With uv it may be the versions that fit: uv finds one of them, or fetches it.

    Raises:
        PluginError: the given one does not fit, or there is none that does.
    """
    fitting = SpecifierSet(spec.python)
    if given is not None:
        version = _version_of(given)
        if not version or version not in fitting:
            raise PluginError(
                f"the environment of {spec.name} needs Python {spec.python}, and {given} is "
                f"{version or 'not a working Python'}. Name another with --python."
            )
        return given
    own = "{}.{}.{}".format(*sys.version_info[:3])
    if own in fitting:
        return sys.executable
    if uv:
        return spec.python
    for path in filter(None, (shutil.which(f"python3.{minor}") for minor in _MINORS)):
        version = _version_of(path)
        if version and version in fitting:
            return path
    raise PluginError(
        f"the environment of {spec.name} needs Python {spec.python}; this one is {own}, and "
        f"PATH has no suitable one. Name one with --python FILE, or install uv, which fetches it: "
        f"python -m pip install uv"
    )


def _version_of(python: str) -> str:
    """Return the version of an interpreter; empty: it cannot be run."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _VERSION], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _run(words: list[str], *, spec: EnvironmentSpec, installer: str) -> None:
    """Run a command; what it prints is the user's to see.

    Raises:
        PluginError: it failed.
    """
    try:
        code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
        how = f"ended with code {code}; see its output above"
    except OSError as error:
        code, how = 1, f"could not be started: {error}"
    if code:
        raise PluginError(
            f"making the environment of {spec.name} failed: {_shown(words)} {how}. "
            f"{_WHERE[installer]}. After fixing this, {setup_line(spec).replace('Run', 'run')}"
        )


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time make this environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _shown(words: list[str]) -> str:
    """Return a command as one would type it."""
    import shlex

    return shlex.join(words)
