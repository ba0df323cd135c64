"""Mode bench, where there is nothing that it could evaluate."""

from __future__ import annotations

import pytest
from trinity.errors import CheckpointError
from trinity.runtime.bench import _read_weights
from trinity.runtime.record.checkpoint import Checkpoint


def test_a_checkpoint_that_holds_adapters_alone_is_refused_with_the_way_to_a_model(
    tmp_path,
) -> None:
    checkpoint = Checkpoint(step=3, path=tmp_path / "global_step_3")

    with pytest.raises(
        CheckpointError, match=r"global_step_3 holds no model weights\. .* trinity export --adapter"
    ):
        _read_weights(checkpoint)
