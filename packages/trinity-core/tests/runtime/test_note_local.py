"""A file that sends weights from process to process runs in one process, and the run says how."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.extend import get_manager
from trinity.runtime.preflight import note_local


def a_stage(method, *, mode="both"):
    config = Config(mode=mode)
    config.synchronizer.sync_method = method
    return config


@pytest.mark.parametrize("method", ["gloo", "nccl", "ipc"])
@pytest.mark.parametrize("mode", ["both", "serve"])
def test_in_one_process_weights_that_were_to_be_sent_are_handed_over(method, mode) -> None:
    stage = a_stage(method, mode=mode)

    note_local([stage], manager=get_manager(), local=True)

    assert stage.synchronizer.sync_method == "memory"
    assert stage.notes == [
        f"synchronizer.sync_method {method} sends weights from process to process, and here all "
        f"parts share one: memory"
    ]


@pytest.mark.parametrize(
    ("method", "mode", "local"),
    [("gloo", "both", False), ("memory", "both", True), ("gloo", "bench", True)],
)
def test_elsewhere_nothing_is_said_or_changed(method, mode, local) -> None:
    stage = a_stage(method, mode=mode)

    note_local([stage], manager=get_manager(), local=local)

    assert (stage.synchronizer.sync_method, stage.notes) == (method, [])
