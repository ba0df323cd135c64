"""Random conversations of many kinds of clients train on what was sampled, and on nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import conversations


@pytest.mark.parametrize("seed", range(30))  # 500 by command: python tests/agents/conversations.py
def test_what_is_trained_is_what_was_sampled_and_each_token_once(seed: int) -> None:
    told = conversations.play(seed)

    assert told.kept


@pytest.mark.acceptance
def test_five_hundred_random_conversations_train_on_what_was_sampled() -> None:
    assert conversations.main(["500"]) == 0
