"""The plots of a run."""

from __future__ import annotations

import pytest
from trinity.monitor.jsonl import JsonlMonitor
from trinity.runtime.record.plots import draw_plots


def drawn(tmp_path, **metrics: float) -> list[str]:
    monitor = JsonlMonitor(directory=tmp_path, role="explorer")
    for step in (1, 2):
        monitor.log({name.replace("__", "/"): value for name, value in metrics.items()}, step=step)
    return [path.name for path in draw_plots(tmp_path, tmp_path / "plots", title="t")]


def test_a_run_whose_workflow_tells_its_success_has_a_plot_of_it(tmp_path):
    names = drawn(tmp_path, rollout__reward__mean=0.7, rollout__success__mean=0.5)
    assert names == ["reward.png", "success.png"]
    assert (tmp_path / "plots/success.png").stat().st_size > 1000


def test_a_run_without_success_has_none(tmp_path):
    assert drawn(tmp_path, rollout__reward__mean=0.7) == ["reward.png"]


def test_a_plot_that_the_disk_does_not_take_leaves_the_earlier_one_whole(tmp_path, full_beyond):
    drawn(tmp_path, rollout__reward__mean=0.7)
    before = (tmp_path / "plots/reward.png").read_bytes()

    with full_beyond(1000), pytest.raises(OSError, match="File too large"):
        draw_plots(tmp_path, tmp_path / "plots", title="another title")

    assert (tmp_path / "plots/reward.png").read_bytes() == before
