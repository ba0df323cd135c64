"""003: the modules of the framework and the tools of a contributor."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_P070_the_rooms_are_layers_of_their_own() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    journey = next(c for c in tools["importlinter"]["contracts"] if c["id"] == "journey")

    rooms = next(layer for layer in journey["layers"] if "explorer" in layer).split(" | ")

    assert {"explorer", "buffer", "trainer"} <= set(rooms)
    assert all((ROOT / "packages/trinity-core/src/trinity" / room).is_dir() for room in rooms)


def test_P070_data_processing_has_an_operator_of_its_own(trinity) -> None:
    listed = trinity("plugins", "list", "--kind", "experience_operator")

    assert "invalid_reward_filter" in listed.stdout


def test_P094_the_hooks_before_a_commit_are_local_and_their_tools_are_in_the_extra() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}
    tools = {requirement.split(">")[0] for requirement in project["optional-dependencies"]["dev"]}
    assert {"pre-commit", "ruff", "mypy", "nox", "pytest"} <= tools
