"""Ranks that would compute another function than the first are refused, by name."""

from __future__ import annotations

import pytest
from transformers import AutoConfig
from trinity.errors import ModelError
from trinity.trainer.scattering import refuse_other_settings, settings_of


def test_a_rank_with_another_setting_is_told_which() -> None:
    own, first = AutoConfig.for_model("qwen3"), AutoConfig.for_model("qwen3", rms_norm_eps=1e-5)

    with pytest.raises(ModelError, match="rms_norm_eps is 1e-05 on rank 0 and 1e-06 here"):
        refuse_other_settings(settings_of(own), settings_of(first))


def test_the_folder_and_the_version_that_wrote_it_are_no_difference() -> None:
    own, first = AutoConfig.for_model("qwen3"), AutoConfig.for_model("qwen3")
    own._name_or_path, first.transformers_version = "here", "5.0.0"

    refuse_other_settings(settings_of(own), settings_of(first))
