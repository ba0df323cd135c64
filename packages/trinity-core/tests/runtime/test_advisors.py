"""What an advisor found in an earlier start ends the run as one that finds it now does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity.runtime.advisors import Advisors

FOUND = {"advisor": "counting", "step": 3, "role": "trainer", "message": "four rows"}


@pytest.fixture
def started_again(tmp_path):
    """Return a function that begins a second start, after ``counting`` has found something."""

    def start(now: str, *, then: str = "stop"):
        parts = SimpleNamespace(
            config=SimpleNamespace(advisors={"counting": now}),
            rundir=SimpleNamespace(path=tmp_path, monitor=tmp_path),
            manager=SimpleNamespace(components=lambda kind: []),
            stop_reason="",
        )
        findings = [FOUND | {"action": then}]
        return parts, Advisors(parts, findings, tell=lambda: None), findings

    return start


def test_a_start_from_before_the_finding_ends_at_its_step_and_not_earlier(started_again) -> None:
    parts, advisors, _ = started_again("stop")

    advisors.record("explorer", {"reward": 0.5}, step=4)
    advisors.record("trainer", {"loss": 0.5}, step=2)
    assert parts.stop_reason == ""

    advisors.record("trainer", {"loss": 0.5}, step=3)
    assert parts.stop_reason == "advisor counting: four rows (stop)"


def test_a_start_from_after_the_finding_ends_at_once(started_again, tmp_path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"role": "trainer", "step": 3, "loss": 0.5}\n')
    parts, advisors, _ = started_again("stop")

    advisors.replay()

    assert parts.stop_reason == "advisor counting: four rows (stop)"


def test_the_file_says_now_what_a_finding_leads_to(started_again) -> None:
    parts, advisors, findings = started_again("rollback", then="warn")
    advisors.record("trainer", {"loss": 0.5}, step=5)
    assert parts.stop_reason.endswith("(rollback)")
    assert findings[0]["action"] == "rollback"

    for now in ("warn", "off"):
        parts, advisors, findings = started_again(now, then="rollback")
        advisors.record("trainer", {"loss": 0.5}, step=5)
        assert parts.stop_reason == ""
        assert findings[0]["action"] == "warn"
