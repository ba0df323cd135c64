"""What `trinity run` says to bad input: what, where and the remedy, once; nothing is started.

Each case is a line of the list of what can go wrong, and its golden text is what a user reads.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

MESSAGES = Path(__file__).parents[1] / "golden" / "messages" / "run.txt"

# What can go wrong, and the golden text that says how it is told.
PROMISED = {
    "unknown key": "run_unknown_key",
    "misspelt component": "run_misspelt_component",
    "wrong type": "run_wrong_type",
    "missing file": "run_missing_file",
    "missing dataset": "run_missing_dataset",
    "empty dataset": "run_empty_dataset",
    "a row without the prompt key": "run_row_without_prompt_key",
    "a model folder that is none": "run_model_folder_is_none",
    "a group of one": "run_group_of_one",
    "a batch that cannot be cut": "run_batch_cannot_be_cut",
    "a plugin that fails to import": "run_plugin_import_failure",
    "a module of a plugin folder that fails to import": "run_plugin_dir_import_failure",
    "a plugin that is too new": "run_plugin_too_new",
    "a plugin that clashes": "run_plugin_clash",
    "a plugin that was uninstalled since": "run_plugin_uninstalled",
    "a plugin that misspells a hook": "run_plugin_misspelt_hook",
    "a workflow whose data are missing": "run_workflow_data_missing",
    "a workflow whose check fails": "run_workflow_check_fails",
    "a workflow without run": "run_workflow_without_run",
    "a loss that needs what no run passes": "run_loss_needs_another_field",
    "an advantage function that needs more than the batch": "run_advantage_needs_more",
    "a workflow that raises": "run_workflow_raises",
    "a workflow that returns nothing": "run_workflow_returns_nothing",
    "a workflow that returns wrong lengths": "run_workflow_returns_wrong_lengths",
    "a workflow that returns NaN rewards": "run_workflow_returns_nan",
    "a workflow that returns more than the context": "run_workflow_returns_too_much",
    "a workflow that returns an unknown token": "run_workflow_returns_an_unknown_token",
    "a workflow that hangs": "run_workflow_hangs",
    "no space for a checkpoint": "run_disk_full",
    "no space for the first file": "run_disk_full_at_start",
    "no space for experiences": "run_disk_full_while_exploring",
    "an unwritable run directory": "run_unwritable",
    "Ctrl-C while it evaluates": "run_stopped_in_evaluate",
    "Ctrl-C while it explores": "run_stopped_in_explore",
    "Ctrl-C while it trains": "run_stopped_in_train",
    "Ctrl-C while it saves": "run_stopped_in_save",
    "Ctrl-C twice": "run_stopped_twice",
    "Ctrl-C while models load": "run_stopped_in_load",
    "environments that die, hang, raise or are late": "run_environments_die",
    "an environment that is killed once": "run_environment_killed_once",
    "an environment that always raises": "run_environment_raises",
    "an environment that raises when it closes": "run_environment_cannot_close",
    "an environment whose dependency is missing": "run_environment_needs",
}


@dataclass
class World:
    """What a case spoils: the configuration, and the files and plugins beside it."""

    config: dict[str, Any]
    folder: Path
    install: Callable[..., None]
    options: list[object] = field(default_factory=list)

    @property
    def taskset(self) -> dict[str, Any]:
        return self.config["buffer"]["explorer_input"]["taskset"]

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)


def unknown_key(world: World) -> None:
    world.config["buffer"]["bach_size"] = world.config["buffer"].pop("batch_size")


def misspelt_component(world: World) -> None:
    world.config["algorithm"]["policy_loss_fn"] = "pppo"


def wrong_type(world: World) -> None:
    world.config["buffer"]["batch_size"] = "four"


def missing_dataset(world: World) -> None:
    world.taskset["path"] = "./data/rows.jsonl"


def empty_dataset(world: World) -> None:
    world.taskset["path"] = world.write("empty.jsonl", "\n")


def row_without_prompt_key(world: World) -> None:
    rows = [{"question": "1 + 1 =", "answer": "2"}, {"qestion": "2 + 2 =", "answer": "4"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    world.taskset["path"] = world.write("misspelt.jsonl", lines)


def model_folder_is_none(world: World) -> None:
    (world.folder / "weights").mkdir()
    world.config["model"]["model_path"] = str(world.folder / "weights")


def group_of_one(world: World) -> None:
    world.config["algorithm"]["repeat_times"] = 1


def batch_cannot_be_cut(world: World) -> None:
    world.config["trainer"] = {"max_token_len_per_gpu": 4}


def unwritable(world: World) -> None:
    world.config["checkpoint_root_dir"] = world.write("taken", "a file in the way")


def plugin_dir_import_failure(world: World) -> None:
    world.write("plugins/mine.py", "import a_module_that_is_not_there\n")
    world.options += ["--plugin-dir", world.folder / "plugins"]


CHECKS = """
from trinity.common.workflows import WORKFLOWS, SimpleWorkflow
from trinity.errors import DataError


@WORKFLOWS.register_module("house")
class House(SimpleWorkflow):
    @classmethod
    def check_arguments(cls, arguments):
        if "data" not in arguments:
            raise DataError("nothing says where the house is. Set data in workflow_args.")
        return arguments["data"].upper()
"""


def workflow_data_missing(world: World) -> None:
    world.write("plugins/house.py", CHECKS)
    world.options += ["--plugin-dir", world.folder / "plugins"]
    world.taskset["default_workflow_type"] = "house"


def workflow_check_fails(world: World) -> None:
    workflow_data_missing(world)
    world.taskset["workflow_args"] = {"data": 5}


def workflow_without_run(world: World) -> None:
    workflow_data_missing(world)
    lacks = CHECKS.replace("SimpleWorkflow", "Workflow")
    world.write("plugins/house.py", lacks.replace("check_arguments(cls", "check(cls"))


WRONG_CALLS = """
from trinity.algorithm import ADVANTAGE_FN, POLICY_LOSS_FN, AdvantageFn, PolicyLossFn


@POLICY_LOSS_FN.register_module("mine")
class MyLoss(PolicyLossFn):
    def __call__(self, log_probs, advantages, response_mask):
        return -(log_probs * advantages * response_mask).mean(), {}


@ADVANTAGE_FN.register_module("mine")
class MyAdvantage(AdvantageFn):
    def __call__(self, exps, groups):
        return exps, {}
"""


def loss_needs_another_field(world: World) -> None:
    world.write("plugins/mine.py", WRONG_CALLS)
    world.options += ["--plugin-dir", world.folder / "plugins"]
    world.config["algorithm"]["policy_loss_fn"] = "mine"


def advantage_needs_more(world: World) -> None:
    loss_needs_another_field(world)
    world.config["algorithm"] |= {"policy_loss_fn": "ppo", "advantage_fn": "mine"}


GIVES_A_WORKFLOW = """
from trinity.extend import hookimpl

@hookimpl
def trinity_workflows():
    return {"shared": "trinity.common.workflows.math:MathWorkflow"}
"""


def plugin_clash(world: World) -> None:
    world.install("one", GIVES_A_WORKFLOW)
    world.install("two", GIVES_A_WORKFLOW)
    world.taskset["default_workflow_type"] = "shared"


def plugin_import_failure(world: World) -> None:
    world.install("rooms", "import a_module_that_is_not_there\n")
    world.taskset["default_workflow_type"] = "rooms_workflow"


def plugin_too_new(world: World) -> None:
    world.install("rooms", "TRINITY_PLUGIN_API = 9\n" + GIVES_A_WORKFLOW)
    world.taskset["default_workflow_type"] = "shared"


def plugin_misspelt_hook(world: World) -> None:
    world.install("rooms", GIVES_A_WORKFLOW.replace("trinity_workflows", "trinity_workflow"))
    world.taskset["default_workflow_type"] = "shared"


BEFORE_IT_STARTS = [
    unknown_key,
    misspelt_component,
    wrong_type,
    missing_dataset,
    empty_dataset,
    model_folder_is_none,
    group_of_one,
    batch_cannot_be_cut,
    workflow_data_missing,
    workflow_check_fails,
    workflow_without_run,
    loss_needs_another_field,
    advantage_needs_more,
    unwritable,
    plugin_import_failure,
    plugin_dir_import_failure,
    plugin_too_new,
    plugin_clash,
    plugin_misspelt_hook,
]


@pytest.fixture
def world(config_dict, tmp_path, install) -> World:
    return World(config=config_dict, folder=tmp_path, install=install)


@pytest.fixture
def install(tmp_path, monkeypatch) -> Callable[..., None]:
    """Return a function that leaves a distribution on the path as pip would."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def write(name: str, source: str) -> None:
        monkeypatch.delitem(sys.modules, f"trinity_{name}", raising=False)
        (site / f"trinity_{name}.py").write_text(source)
        about = site / f"trinity_{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: trinity-{name}\nVersion: 1.0\n"
            "Requires-Dist: trinity-core>=0.1,<0.2\n"
        )
        (about / "entry_points.txt").write_text(f"[trinity.plugins]\n{name} = trinity_{name}\n")

    return write


@pytest.mark.parametrize("spoil", BEFORE_IT_STARTS, ids=lambda spoil: spoil.__name__)
def test_bad_input_is_told_before_anything_starts(
    spoil, world, write_yaml, trinity, golden, run_dir
) -> None:
    spoil(world)

    ended = trinity("run", "--local", "--config", write_yaml(world.config), *world.options)

    assert ended.code == 1, ended.stdout
    assert {line.split()[0] for line in ended.stdout.splitlines()} <= {"reading", "run"}
    golden(ended.stderr, f"run_{spoil.__name__}", TMP=world.folder)
    assert not (world.folder / "checkpoints").exists()


def test_a_row_without_the_prompt_key_is_found_before_anything_is_run(
    world, write_yaml, trinity, golden, run_dir
) -> None:
    row_without_prompt_key(world)

    ended = trinity("run", "--local", "--config", write_yaml(world.config))

    assert ended.code == 1, ended.stdout
    golden(ended.stderr, "run_row_without_prompt_key", TMP=world.folder)
    assert not (run_dir / "run.json").exists()


@pytest.mark.acceptance
def test_a_run_whose_plugin_was_uninstalled_says_what_it_was_started_with(
    world, write_yaml, trinity, golden, run_dir, tmp_path
) -> None:
    world.install("rooms", GIVES_A_WORKFLOW)
    world.taskset["default_workflow_type"] = "shared"
    path = write_yaml(world.config)
    started = trinity("run", "--local", "--config", path)
    shutil.rmtree(tmp_path / "site" / "trinity_rooms-1.0.dist-info")

    ended = trinity("run", "--local", "--config", path)

    assert (started.code, ended.code) == (0, 1), started.stderr
    golden(ended.stderr, "run_plugin_uninstalled", TMP=tmp_path)


def test_a_configuration_that_is_not_there_is_named(trinity, golden, tmp_path) -> None:
    ended = trinity("run", "--local", "--config", "nowhere.yaml")

    assert ended.code == 1
    golden(ended.stderr, "run_missing_file", TMP=tmp_path)


@pytest.mark.parametrize("case", PROMISED)
def test_each_thing_that_can_go_wrong_has_its_golden_text(case) -> None:
    text = texts_of_runs()[PROMISED[case]]

    assert text.strip()
    assert "Traceback" not in text


def test_each_golden_text_of_a_run_is_of_a_case_that_is_listed() -> None:
    of_runs = set(texts_of_runs())
    of_directories = {name for name in of_runs if name.startswith("run_directory_")}

    assert of_runs - of_directories == set(PROMISED.values()) - of_directories
    assert of_directories >= {"run_directory_unwritable", "run_directory_in_use"}


def texts_of_runs() -> dict[str, str]:
    """Return the golden texts of runs, by name."""
    parts = re.split(r"^===== (\w+) =====\n", MESSAGES.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
