"""The core's code names no plugin; one data file of install lines may."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "packages/trinity-core/src/trinity"
EXEMPT = SOURCE / "extend/known_distributions.toml"
PLUGIN = re.compile(
    r"alfworld|webshop|opmd|vllm|agentscope|openenv|verifiers|trinity.serve\b", re.IGNORECASE
)


def source_files() -> list[Path]:
    kinds = {".py", ".toml", ".json", ".yaml", ".txt", ".md"}
    return [path for path in sorted(SOURCE.rglob("*")) if path.suffix in kinds and path != EXEMPT]


def test_the_core_names_no_plugin() -> None:
    named = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in source_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PLUGIN.search(line)
    ]

    assert not named, "\n".join(named)
