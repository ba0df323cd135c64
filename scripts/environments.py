"""What nox installs: our distributions by group, and the environment that most sessions share.

``.nox/shared`` is made once, with the versions of ``constraints.txt``, and brought up to date when
those or a ``pyproject.toml`` change.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nox

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT / ".nox" / "shared"
CONSTRAINTS = ROOT / "constraints.txt"
FOR_RUNS = (
    "packages/trinity-core",
    "packages/trinity-testing",
    "plugins/trinity-algorithms",
    "plugins/trinity-debug",
    "plugins/trinity-ledger",
    "plugins/trinity-serve",
)
DISTRIBUTIONS = (
    *FOR_RUNS,
    "packages/trinity-lab",
    "packages/trinity-studio",
    "packages/trinity-tinker",
    "plugins/trinity-agents-agentscope",
    "plugins/trinity-algo-opmd",
    "plugins/trinity-compat-rft",
    "plugins/trinity-envs-harbor",
    "plugins/trinity-envs-openenv",
    "plugins/trinity-envs-verifiers",
    "plugins/trinity-envs-webshop",
    "plugins/trinity-monitors",
    "plugins/trinity-sandbox",
)
# In no shared environment: where a GPU is, an installed engine for GPUs is taken by every run, and
# the engine of ALFWorld is compiled, which takes two minutes and a C++ compiler.
ALFWORLD = "plugins/trinity-envs-alfworld"
BUILT = (*DISTRIBUTIONS, ALFWORLD, "plugins/trinity-engine-vllm")
EXTRAS = {"packages/trinity-core": "[lora,structured]"}  # what tests cover and users choose
EDITABLE = {folder: ["-e", f"{folder}{EXTRAS.get(folder, '')}"] for folder in DISTRIBUTIONS}
GROUPS = {  # what each installs; run: what every command of a run needs
    "run": [*itertools.chain(*(("-e", folder) for folder in FOR_RUNS))],
    "dev": [*itertools.chain(*EDITABLE.values()), "-e", ".[dev]"],
    "docs": ["-e", ".[docs]"],
}
QUIET_PIP = ("-m", "pip", "--disable-pip-version-check", "install", "-qq")


def shared_environment(session: nox.Session, *groups: str, imports: Sequence[str] = ()) -> Path:
    """Return the folder of the programs of .nox/shared, with these groups installed in it.

    What these programs import from others is compiled there, beside the installation of ours.
    """
    if sys.version_info < (3, 11):  # noqa: UP036 -- nox itself may run on an older one
        session.error(f"Trinity needs Python 3.11 or newer; nox runs on {sys.version.split()[0]}")
    bin_dir = SHARED / ("Scripts" if os.name == "nt" else "bin")
    if not (bin_dir / "python").exists() and not (bin_dir / "python.exe").exists():
        # nox depends on virtualenv, whose pip is new; that of Python 3.11 takes twice as long.
        virtualenv = ("-m", "virtualenv", "--quiet", "--clear", "--no-periodic-update")
        session.run(sys.executable, *virtualenv, SHARED, external=True)
    stamps = {SHARED / f"{group}.stamp": fingerprint(group) for group in groups}
    is_stale = any(not p.exists() or p.read_text() != wanted for p, wanted in stamps.items())
    programs = os.environ.get("PATH", "")  # noqa: TID251 -- passed on, with ours before it
    env = {"PATH": f"{bin_dir}{os.pathsep}{programs}"}  # what is compiled calls "python"
    if is_stale:
        session.log(f"installing {' and '.join(groups)} into {SHARED}; minutes the first time")
        install_what_is_needed(session, bin_dir, *groups, env=env)
    with imported(session, bin_dir / "python", imports):
        if is_stale:
            install_ours(session, bin_dir, *groups, env=env)
    for path, wanted in stamps.items():
        path.write_text(wanted)
    return bin_dir


def install_what_is_needed(
    session: nox.Session, bin_dir: Path, *groups: str, env: dict[str, str]
) -> None:
    """Install what the groups need from others, and hatchling, which builds ours."""
    needed = ["hatchling", "editables", *itertools.chain(*map(needs, groups))]
    foreign = ("-c", CONSTRAINTS, "--no-compile", *dict.fromkeys(needed))  # few are imported
    session.run(bin_dir / "python", *QUIET_PIP, *foreign, env=env, external=True)


def install_ours(session: nox.Session, bin_dir: Path, *groups: str, env: dict[str, str]) -> None:
    """Install our distributions of these groups, from where they lie."""
    ours = [name.partition("[")[0] for group in groups for name in GROUPS[group] if name != "-e"]
    editable = itertools.chain(*(("-e", name) for name in dict.fromkeys(ours)))
    as_they_are = ("--no-deps", "--no-build-isolation", *editable)
    session.run(bin_dir / "python", *QUIET_PIP, *as_they_are, env=env, external=True)


@contextmanager
def imported(session: nox.Session, python: Path, programs: Sequence[str]) -> Iterator[None]:
    """Run these imports meanwhile: Python compiles each module once, and not in each process."""
    env = {"PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    inherited = dict(os.environ)  # noqa: TID251 -- passed on
    with ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen([str(python), "-c", one], env=inherited | env))
            for one in programs
        ]
        yield
    for program, compiling in zip(programs, running, strict=True):
        if compiling.returncode:
            command = shlex.join([str(python), "-c", program])
            session.error(f"what the tests import cannot be imported: {command}")


def needs(group: str) -> list[str]:
    """Return the requirements of a group's distributions, without our own."""
    found: list[str] = []
    for project, extras in projects(group):
        found += project.get("dependencies", [])
        for extra in extras:
            found += project["optional-dependencies"][extra]
    return [one for one in found if not one.startswith("trinity-")]


def projects(group: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the table of each distribution of a group, and the extras that are asked for."""
    for name in filter("-e".__ne__, GROUPS[group]):
        folder, _, extras = name.removesuffix("]").partition("[")
        table = nox.project.load_toml(ROOT / folder / "pyproject.toml")["project"]
        yield table, [*filter(None, extras.split(","))]


def fingerprint(group: str) -> str:
    """Return a digest of all that decides what a group installs."""
    wanted = [CONSTRAINTS.read_text(), *map(str, projects(group))]
    return hashlib.sha256("\0".join(wanted).encode()).hexdigest()
