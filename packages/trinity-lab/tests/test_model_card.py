"""What the model card of an exported model says."""

from __future__ import annotations

import pytest
import yaml
from trinity.cli.main import app
from trinity.errors import ConfigError
from trinity_lab.model_card import card_of
from trinity_lab.models import find_model
from typer.testing import CliRunner


@pytest.fixture
def a_checkpoint(tmp_path):
    """Return a function that writes a checkpoint of a run that began with a model."""

    def write(name, model_path):
        settings = {
            "name": name,
            "model": {"model_path": str(model_path)},
            "algorithm": {"algorithm_type": "grpo"},
            "buffer": {"explorer_input": {}, "trainer_input": {}},
        }
        model = tmp_path / name / "global_step_2" / "actor" / "huggingface"
        model.mkdir(parents=True)
        (model.parents[1] / "state.json").write_text("{}")
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(settings))
        return model

    return write


@pytest.mark.parametrize(
    ("path", "base", "note"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", ""),
        ("/data/ada/hub/models--Qwen--Qwen3-0.6B/snapshots/c1", "Qwen/Qwen3-0.6B", ""),
        ("/data/ada/tiny", "tiny", "The base model was a local folder, `tiny`"),
        ("/gone/sft/global_step_9/actor/huggingface", "sft", "a local folder, `sft`"),
    ],
)
def test_a_card_names_the_base_model_of_the_first_stage_without_its_path(
    a_checkpoint, path, base, note
) -> None:
    second = find_model(str(a_checkpoint("grpo", a_checkpoint("first", path))))

    card = card_of(second, name="mine", license_name="mit", serve="vllm serve mine")

    above = card.partition("## Configuration")[0]
    assert yaml.safe_load(above.split("---")[1])["base_model"] == base
    assert note in above
    assert ("local folder" in above) is bool(note)
    assert "/data/ada" not in above


def test_who_names_a_step_that_has_no_checkpoint_is_told_those_that_are_there(a_checkpoint):
    run = a_checkpoint("sums", "a/b").parents[2]

    ended = CliRunner().invoke(app, ["export", str(run / "global_step_1"), "--to", str(run / "to")])

    assert isinstance(ended.exception, ConfigError)
    assert str(ended.exception).endswith("Beside it there are: global_step_2.")


def test_a_checkpoint_whose_weights_are_at_a_service_is_not_exported(a_checkpoint, tmp_path):
    model = a_checkpoint("remote", "a/b")
    (model / "config.json").write_text("{}")
    ended = CliRunner().invoke(app, ["export", str(model.parents[1]), "--to", str(tmp_path / "to")])

    assert isinstance(ended.exception, ConfigError)
    assert "holds no weights: a run with model.tinker" in str(ended.exception)
    assert not (tmp_path / "to").exists()
