"""The core's code names no plugin; one data file of install lines may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "packages/trinity-core/src/trinity"
EXEMPT = SOURCE / "extend/known_distributions.toml"
PLUGIN = re.compile(r"alfworld|webshop|opmd|vllm|agentscope|openenv|verifiers", re.IGNORECASE)


def source_files() -> list[Path]:
    kinds = {".py", ".toml", ".json", ".yaml", ".txt", ".md"}
    return [path for path in sorted(SOURCE.rglob("*")) if path.suffix in kinds and path != EXEMPT]


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_of_the_core_names_no_plugin(path: Path) -> None:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    named = [f"{number}: {line.strip()}" for number, line in lines if PLUGIN.search(line)]

    assert named == []
