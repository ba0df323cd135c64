"""What the README shows can be run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from trinity.common.config import Config, Machine, check, resolve
from trinity.extend import get_manager

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_check_finds_nothing_wrong_with_an_example(example, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(64 * '{"question": "?", "answer": "2"}\n')
    taskset = {
        "path": str(tasks),
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "math_workflow",
    }
    settings = {
        "model": {"model_path": "organisation/model", "max_model_len": 64},
        "buffer": {"batch_size": 8, "explorer_input": {"taskset": taskset}},
    }
    config = Config.model_validate(settings | yaml.safe_load(example))
    config = resolve(config, Machine(), manager=get_manager())

    problems = check(config, Machine(), manager=get_manager())

    assert [str(p) for p in problems if p.severity != "notice"] == []


def test_every_argument_of_every_part_is_named():
    for kind, names in {
        "advantage_fn": ("opmd", "asymre"),
        "policy_loss_fn": ("opmd", "sppo"),
    }.items():
        for name in names:
            defaults = get_manager().load(kind, name).default_args()
            assert [argument for argument in defaults if f"`{argument}`" not in README] == []
