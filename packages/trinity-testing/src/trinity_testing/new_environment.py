"""Make the virtual environment of a plugin."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from trinity.errors import PluginError
from trinity.extend.environments import (
    environment_folder,
    missing_environment,
    python_in,
    setup_line,
    words_as_here,
    write_note,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.extend import EnvironmentSpec

__all__ = ["chosen_python", "commands_of", "make_environment", "program_in"]

_MINORS = range(30, 7, -1)  # of python3.N on the PATH, the newest first
_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_WHERE = {  # installer -> where it finds packages
    "uv": "uv takes packages from UV_DEFAULT_INDEX and the folders of UV_FIND_LINKS, and does not "
    "read pip's settings; UV_OFFLINE=1 keeps it off the network",
    "pip": "pip takes packages from PIP_INDEX_URL and the folders of PIP_FIND_LINKS; "
    "PIP_NO_INDEX=1 keeps it off the network",
}


def program_in(folder: Path) -> Path:
    """Return where a virtual environment that holds Trinity has its command."""
    return python_in(folder).with_name("trinity.exe" if os.name == "nt" else "trinity")


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
