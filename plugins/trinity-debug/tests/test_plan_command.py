"""``trinity plan``: what it prints of stages without a trainer."""

from __future__ import annotations

import threading

import pytest
from trinity.cli.main import app
from trinity.common.config.model import ModelConfig
from trinity_debug import hub_wait
from typer.testing import CliRunner

YAML = """
project: p
name: n
mode: explore
checkpoint_root_dir: ROOT
algorithm: {algorithm_type: grpo, repeat_times: 4}
model: {model_path: MODEL, max_prompt_tokens: 64, max_response_tokens: 64}
buffer: {batch_size: 8, total_steps: 5}
"""


@pytest.fixture
def planned(tmp_path):
    """Return a function that plans a small file for eight GPUs, and what it prints."""
    file = tmp_path / "run.yaml"

    def printed(*settings: str, model: str = "qwen2.5-7b") -> str:
        file.write_text(YAML.replace("ROOT", str(tmp_path)).replace("MODEL", model))
        words = [word for one in settings for word in ("--set", one)]
        return CliRunner().invoke(app, ["plan", str(file), "--gpus", "8", *words]).output

    return printed


def test_a_hub_that_does_not_answer_is_waited_for_aloud_and_for_a_while_only(
    planned, monkeypatch
) -> None:
    is_over = threading.Event()

    def silent(*_, **__):
        is_over.wait(30)
        raise ConnectionError("timed out")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", silent)
    monkeypatch.setattr(hub_wait, "_QUIET_S", 0.1)
    monkeypatch.setattr(hub_wait, "_WAIT_S", 0.2)
    said = planned(model="nobody/silent-hub")
    is_waiting = not is_over.is_set()
    is_over.set()

    assert is_waiting
    assert "asking the Hugging Face hub for the config.json of nobody/silent-hub, for 0.2 s" in said
    assert "is not there: the Hugging Face hub has not sent it within 0.2 s. Give" in said
    assert "on 8 GPUs of 80 GB:" in said  # the rest of the plan


def test_the_hub_is_waited_for_as_long_as_is_said(monkeypatch) -> None:
    waited_s = []

    class Silent:
        def __init__(self, **_) -> None:
            self.join = waited_s.append

        def start(self) -> None:
            pass

        def is_alive(self) -> bool:
            return True

    monkeypatch.setattr(hub_wait, "Thread", Silent)

    why = hub_wait.fetch_for_seconds(ModelConfig(model_path="nobody/silent-hub"))

    assert "has not sent it within 10 s" in why
    assert sum(waited_s) == 10.0


def test_why_the_hub_has_no_config_is_told(planned, monkeypatch) -> None:
    def refused(*_, **__):
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", refused)
    said = planned(model="nobody/far-away")

    assert "the Hugging Face hub cannot be reached: no route to the hub. Give model.model_path" in (
        said
    )
    assert "download the model first: hf download nobody/far-away" in said
    assert "asking" not in said


@pytest.mark.parametrize("mode", ["explore", "bench"])
def test_what_engines_need_is_told_where_nothing_is_trained(planned, mode) -> None:
    """7,615,616,512 parameters of 2 bytes; of 80 GB 72 are an engine's.

    A token has 2 x 28 x 512 numbers of 2 bytes: 72 less 15.23 GB in pieces of 57,344 bytes.
    """
    said = planned(f"mode={mode}")

    assert (
        "8 engines, each on 1 GPU (bfloat16): 15.2 GB of weights, cache for 989,968 tokens" in said
    )
    assert "not computed" not in said


def test_an_unknown_model_and_one_behind_an_api_are_not_computed(planned) -> None:
    unknown = planned(model="models/of-somebody")
    behind = planned("mode=bench", "model.external_model.enable=true")

    assert "memory is not computed: the model's config.json is not there" in unknown
    assert "GB of weights" not in unknown + behind
    assert "not computed" not in behind


@pytest.mark.parametrize(
    "words",
    [["--gpus", "99999999999"], ["--gpus", "8", "--gpu-memory", "inf"], ["--tokens-per-s", "inf"]],
)
def test_a_machine_that_there_cannot_be_is_refused_as_wrong_usage(tmp_path, words) -> None:
    (tmp_path / "run.yaml").write_text(YAML)

    ended = CliRunner().invoke(app, ["plan", str(tmp_path / "run.yaml"), *words])

    assert ended.exit_code == 2
    assert "Invalid value for" in ended.output


@pytest.mark.parametrize("key", ["param_offload", "optimizer_offload", "offload_policy"])
def test_a_run_that_does_not_fit_ends_with_one_whatever_is_offloaded(tmp_path, key) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(YAML.replace("explore", "both").replace("MODEL", "qwen2.5-7b"))
    words = ["plan", str(file), "--gpus", "1", "--set", f"trainer.{key}=true"]

    ended = CliRunner().invoke(app, words)

    assert ended.exit_code == 1
    assert "a train step needs" in ended.output
