"""The lower bounds of the core are the versions that nox -s minimums installs."""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from trinity.extend import EnvironmentSpec

ROOT = Path(__file__).parents[2]
CORE = ROOT / "packages/trinity-core"


def core_requirements() -> dict[str, Requirement]:
    project = tomllib.loads((CORE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [Requirement(text) for text in project["dependencies"]]
    return {requirement.name: requirement for requirement in requirements}


def pins(path: Path) -> dict[str, str]:
    """Return the versions that a constraints file names, by normalised name."""
    lines = [
        line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()
    ]
    named = [line.partition(";")[0].strip().split("==") for line in lines if line]
    return {name.lower().replace("_", "-"): version for name, version in named}


def test_each_lower_bound_but_torchs_is_a_version_that_is_tested() -> None:
    bounds = {
        name: next(spec.version for spec in requirement.specifier if spec.operator == ">=")
        for name, requirement in core_requirements().items()
    }
    tested = pins(CORE / "minimums.txt")
    differing = {
        name: f"promised {bound}, tested {tested.get(name)}"
        for name, bound in bounds.items()
        if name != "torch" and Version(bound) != Version(tested.get(name, "0"))
    }

    assert differing == {}


def test_the_core_has_no_upper_bound() -> None:
    capped = [
        str(requirement)
        for requirement in core_requirements().values()
        if any(spec.operator in {"<", "<=", "==", "~="} for spec in requirement.specifier)
    ]

    assert capped == []


def test_constraints_give_a_version_to_every_dependency_of_the_core() -> None:
    named = pins(ROOT / "constraints.txt")

    assert [name for name in core_requirements() if name not in named] == []


@pytest.mark.parametrize(
    "folder",
    [
        "packages/trinity-core",
        "packages/trinity-testing",
        "packages/trinity-lab",
        "packages/trinity-studio",
        "packages/trinity-tinker",
        "plugins/trinity-agents-agentscope",
        "plugins/trinity-algo-opmd",
        "plugins/trinity-algorithms",
        "plugins/trinity-compat-rft",
        "plugins/trinity-debug",
        "plugins/trinity-engine-vllm",
        "plugins/trinity-envs-alfworld",
        "plugins/trinity-envs-harbor",
        "plugins/trinity-envs-openenv",
        "plugins/trinity-envs-verifiers",
        "plugins/trinity-envs-webshop",
        "plugins/trinity-ledger",
        "plugins/trinity-monitors",
        "plugins/trinity-sandbox",
        "plugins/trinity-serve",
    ],
)
def test_every_package_that_is_imported_is_required(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / folder / "src")  # an engine for GPUs is not installed here
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = [text for extra in project.get("optional-dependencies", {}).values() for text in extra]
    required = {
        canonicalize_name(Requirement(text).name)
        for text in [*project["dependencies"], *extras, *packages_of_environment(project)]
    }
    owners = owners_of_packages()
    missing = {
        package
        for path in (ROOT / folder / "src").rglob("*.py")
        for package in imported_packages(path) - set(sys.stdlib_module_names)
        if package not in {child.name for child in (ROOT / folder / "src").iterdir()}
        and not required & {canonicalize_name(owner) for owner in owners.get(package, [package])}
    }

    assert missing == set()


@cache
def owners_of_packages() -> dict[str, list[str]]:
    """Return the distributions of each package; it takes a third of a second to find them."""
    named = {"trinity": ["trinity-core"], "pydantic_core": ["pydantic"]}
    return {**packages_distributions(), **named}


def packages_of_environment(project: dict[str, Any]) -> list[str]:
    """Return what a plugin's own environment holds, for the scripts that run there."""
    points = project.get("entry-points", {}).get("trinity.plugins", {})
    specs = [
        need
        for module in map(importlib.import_module, points.values())
        for need in getattr(module, "trinity_assets", list)()
        if isinstance(need, EnvironmentSpec)
    ]
    return [package for spec in specs for package in spec.packages]


def imported_packages(path: Path) -> set[str]:
    """Return the top-level package of every import of a file, those inside functions too."""
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return packages
