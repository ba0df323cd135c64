"""What asks further models is refused before a run starts where none is listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from trinity.common.config import check, load_config, resolve
from trinity.common.config.machine import probe
from trinity.common.config.problem import listed
from trinity_compat_rft.parts import WORKFLOWS

NEEDY = sorted(name for name, spec in WORKFLOWS.items() if spec.needs)


@pytest.fixture
def problems(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    rows = [json.dumps({"question": f"{n} + 1", "answer": f"{n + 1}"}) for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    taskset = {
        "name": "t",
        "path": str(tmp_path / "rows.jsonl"),
        "format": {"prompt_key": "question", "response_key": "answer"},
    }

    def of(mode: str, name: str, **explorer) -> str:
        sets = {"eval_tasksets": [taskset]} if mode == "bench" else {"taskset": taskset}
        workflow = {"default_workflow_type": name, "default_eval_workflow_type": name}
        path = tmp_path / "run.yaml"
        config = {
            "mode": mode,
            "model": {"model_path": str(tmp_path / "model"), "max_model_len": 64},
            "algorithm": {"algorithm_type": "grpo", "repeat_times": 4},
            "buffer": {"batch_size": 2, "explorer_input": {**sets, **workflow}},
            "explorer": explorer,
        }
        path.write_text(yaml.safe_dump(config))
        machine = probe()
        return "\n".join(listed(check(resolve(load_config(path), machine), machine)))

    return of


@pytest.mark.parametrize("name", NEEDY)
@pytest.mark.parametrize("mode", ["both", "bench"])
def test_a_workflow_with_a_judge_says_that_it_needs_one(problems, mode, name) -> None:
    text = problems(mode, name)

    assert (
        f"workflow {name} needs 'auxiliary_models' (judges or teachers, "
        "explorer.auxiliary_models), which no component of the run provides. List them there, "
        "each with name and model_path, or choose another workflow."
    ) in text


def test_a_workflow_whose_judge_is_listed_needs_none(problems) -> None:
    text = problems("both", "math_ruler_workflow", auxiliary_models=[{"model_path": "judge"}])

    assert "needs 'auxiliary_models'" not in text
