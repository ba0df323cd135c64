"""What the kit lets a monitor do when a run is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from trinity.extend.component import Component
from trinity_testing.check import CheckContext
from trinity_testing.checks.monitor import goes_on_after_a_resume


class AFileEachTime:
    """Writes a file each time it is opened, and a link that names the newest."""

    def __init__(self, *, directory: str, **_: object) -> None:
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"run-{len(list(folder.glob('run-*')))}"
        newest = folder / "newest"
        newest.unlink(missing_ok=True)
        newest.symlink_to(self.file.name)

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        self.file.write_text(f"{step} {metrics}")

    def close(self) -> None:
        pass


def test_a_link_to_the_newest_file_is_written_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "trinity_testing.checks.monitor._made",
        lambda component, context, folder: AFileEachTime(directory=folder),
    )

    assert goes_on_after_a_resume(Component, CheckContext) is None  # type: ignore[arg-type]
