"""001: the shop, as the guide names it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from trinity.common.config import FormatConfig
from trinity.common.workflows import Task
from trinity.extend import PluginManager, set_manager
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

webshop = pytest.importorskip("trinity_envs_webshop")
ROOT = Path(__file__).parents[2]
SEARCH = "<action>search[table]</action>"


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """Return the folder of a shop with 60 invented products."""
    from trinity_envs_webshop.synthetic import write_catalogue

    folder = tmp_path_factory.mktemp("webshop") / "shop"
    write_catalogue(folder, num_products=60)
    return folder


@pytest.fixture
def no_plugins():
    """Show the tests a place where no plugin is installed."""
    before = set_manager(PluginManager.discover(env={}, entry_points=[]))
    yield
    set_manager(before)


def test_P031_the_workflow_is_listed_with_its_wheel(trinity) -> None:
    listed = trinity("plugins", "list", "--kind", "workflow").stdout

    [line] = [line for line in listed.splitlines() if "trinity-envs-webshop" in line]
    assert {"webshop_workflow", "step_wise_webshop_workflow"} <= set(line.replace(",", " ").split())


def test_P035_the_rows_task_id_is_the_session_and_the_goal(shop) -> None:
    from trinity_envs_webshop.shop import Shop
    from trinity_envs_webshop.workflow import WebShopWorkflow

    engine = ScriptedEngine(SEARCH, repeat=True)
    task = Task(
        raw_task={"task_id": 7},
        format_args=FormatConfig(prompt_key="task_id"),
        workflow_args={"data": str(shop), "max_env_steps": 1},
    )

    [experience] = WebShopWorkflow(task=task, model=model_over(engine)).run()

    [exchange] = engine.exchanges
    prompt = engine.tokenizer.decode(list(exchange.request.prompt_token_ids))
    assert experience.info["session_id"] == "7"
    assert Shop(shop).goals[7].instruction_text in prompt


def test_P036_and_P038_the_published_yaml_lacks_only_a_machine_a_model_and_data(
    trinity, monkeypatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = "examples/grpo_webshop/webshop.yaml"

    ended = trinity("config", "check", path)

    problems = [line for line in ended.stdout.splitlines() if "  " in line and "note:" not in line]
    wanted = [line for line in problems if f"{path}:" in line]
    assert all("examples/grpo_webshop/webshop_data" in line for line in wanted), ended.stdout


@pytest.mark.slow
def test_P034_both_scripts_write_the_same_rows(shop, tmp_path) -> None:
    written = []
    for script in ("scripts/data_prepare", "examples/grpo_webshop"):
        folder = tmp_path / script
        command = [sys.executable, f"{script}/get_webshop_data.py", "--data", str(shop)]
        subprocess.run([*command, "--output", folder], cwd=ROOT, check=True, capture_output=True)
        written.append({path.name: path.read_text() for path in folder.iterdir()})

    one, other = written
    assert one == other
    assert {"train.jsonl", "test.jsonl", "dataset_dict.json"} <= set(one)
    assert set(json.loads(one["train.jsonl"].splitlines()[0])) == {"task_id", "target"}


def test_P049_the_class_is_imported_from_the_published_place() -> None:
    from trinity.common.workflows import WebShopWorkflow

    assert WebShopWorkflow.__module__ == "trinity_envs_webshop.workflow"


def test_P049_without_the_plugin_the_import_names_the_pip_line(no_plugins) -> None:
    with pytest.raises(ImportError, match="pip install trinity-envs-webshop"):
        importlib.import_module("trinity.common.workflows").WebShopWorkflow  # noqa: B018


def test_P125_reset_gives_a_pair_and_step_four(shop) -> None:
    from trinity_envs_webshop.settings import EnvSettings

    env = EnvSettings.of({"data": str(shop)}).environment(0)
    observation, _ = env.reset(session=0)
    seen, reward, is_done, _ = env.step("search[table]")

    assert isinstance(observation, str)
    assert (type(seen), type(reward), type(is_done)) == (str, float, bool)
