"""One task is run where it can be watched, and an old run's replies are given again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import trinity
import yaml
from trinity.common.config import load_config
from trinity.extend import get_manager, set_manager
from trinity.runtime.record.result import RunStatus
from typer.testing import CliRunner

GUESSING = '''
import gc
import random
from pathlib import Path

from trinity.common.workflows import WORKFLOWS, Workflow, recorded
from trinity.errors import DataError


@WORKFLOWS.register_module("guessing")
class Guessing(Workflow):
    """Guesses; after each it is told to go on."""

    def run(self):
        arguments = {"turns": 2, "hint": "say it again", "bonus": 0, "keep": 9, "mask": 0}
        arguments |= self.task.workflow_args
        messages = [{"role": "user", "content": self.task.raw_task["question"]}]
        for turn in range(arguments["turns"]):
            if turn:
                messages.append({"role": "user", "content": arguments["hint"]})
            [reply] = self.model.chat(messages)
            messages.append({"role": "assistant", "content": reply.response_text})
        experience = self.model.convert_messages_to_experience(messages[: arguments["keep"]])
        experience.action_mask[: arguments["mask"]] = False
        experience.reward = float(len(reply.response_text) % 3 + arguments["bonus"])
        return [experience]


class Dice:
    """Answers by chance."""

    num_built = 0

    def __init__(self):
        Dice.num_built += 1

    def reset(self):
        return f"a die of {random.random()}", {}

    def step(self, action):
        return f"{action} gives {random.random()}", random.random(), False, {"odd": None}


@WORKFLOWS.register_module("playing")
class Playing(Workflow):
    @classmethod
    def check_arguments(cls, arguments):
        if not Path(arguments.get("needs", ".")).is_dir():
            raise DataError(f"there is no folder {arguments['needs']}. Make it.")

    def run(self):
        arguments = {"turns": 2, "shout": False, "end": 0, **self.task.workflow_args}
        env = recorded(Dice, self.task)
        shown, _ = env.reset()
        messages = []
        for _ in range(arguments["turns"]):
            messages.append({"role": "user", "content": shown[:24]})
            [reply] = self.model.chat(messages)
            messages.append({"role": "assistant", "content": reply.response_text})
            action = f"throw {len(messages)}"
            shown, reward, _, _ = env.step(action.upper() if arguments["shout"] else action)
        for _ in range(arguments["end"]):
            env.step("again")
        experience = self.model.convert_messages_to_experience(messages)
        experience.reward = reward
        return [experience]


@WORKFLOWS.register_module("two_agents")
class TwoAgents(Workflow):
    """Asks the same of two agents."""

    def run(self):
        arguments = {"agents": ["solver", "judge"], "judged": 3, "forgets": ""}
        arguments |= self.task.workflow_args
        messages = [{"role": "user", "content": self.task.raw_task["question"]}]
        said = []
        for agent in arguments["agents"]:
            length = arguments["judged"] if agent == "judge" else 6
            [reply] = self.model.chat(messages, max_tokens=length, min_tokens=length)
            reply.eid.task = f"{self.task.task_id}-{agent}"
            reply.reward = float(len(said))
            if agent == arguments["forgets"]:
                del reply.info["reply_names"]
            said.append(reply)
        return said


@WORKFLOWS.register_module("raising")
class Raising(Workflow):
    def run(self):
        print(f"collects: {gc.isenabled()}")
        raise KeyError("no such room")
'''


@pytest.fixture
def place(tiny_model, tmp_path, a_process, monkeypatch):
    """Return a folder with a configuration, a plugin, and rows."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "guessing.py").write_text(GUESSING)
    rows = [{"question": f"guess {number}", "answer": str(number)} for number in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "project": "debugged",
        "name": "guesses",
        "checkpoint_root_dir": str(tmp_path / "checkpoints"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 2},
        "model": {
            "model_path": str(tiny_model),
            "max_model_len": 256,
            "max_response_tokens": 6,
        },
        "buffer": {
            "batch_size": 2,
            "total_steps": 1,
            "explorer_input": {
                "taskset": {
                    "name": "guesses",
                    "path": str(tmp_path / "rows.jsonl"),
                    "default_workflow_type": "guessing",
                    "format": {"prompt_key": "question", "response_key": "answer"},
                }
            },
        },
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def debug(place, *arguments):
    from trinity.cli.main import app

    common = ["debug", "--config", str(place / "run.yaml"), "--plugin-dir", str(place / "plugins")]
    return CliRunner().invoke(app, [*common, *map(str, arguments)])


def test_each_prompt_and_reply_is_printed_and_nothing_is_written(place) -> None:
    result = debug(place, "--task", 2, "--say", "seven", "--say", "eight")

    assert result.exit_code == 0, result.output
    assert "row 2 of taskset guesses, guessing of " in result.output
    first, second = result.output.split("--- prompt 2")
    assert "guess 2" in first
    assert "seven<|im_end|>" in first
    assert "say it again" in second
    assert "eight<|im_end|>" in second
    assert "reward 2" in second
    assert not (place / "checkpoints").exists()


def test_the_model_itself_answers_where_nobody_else_does(place) -> None:
    result = debug(place)

    assert result.exit_code == 0, result.output
    assert result.output.count("--- reply") == 2
    assert "experience 0: " in result.output


def test_a_workflow_that_fails_shows_where_and_leaves_with_1(place) -> None:
    setting = "buffer.explorer_input.taskset.default_workflow_type=raising"
    result = debug(place, "--say", "x", "--set", setting)

    assert result.exit_code == 1
    assert 'raise KeyError("no such room")' in result.output
    assert "collects: True" in result.output  # it is off while parts are imported and built
    assert "guessing.py" in result.output


def test_the_file_may_stand_without_an_option_and_only_once(place) -> None:
    from trinity.cli.main import app

    run = [str(place / "run.yaml"), "--plugin-dir", str(place / "plugins"), "--say", "x"]
    given = CliRunner().invoke(app, ["debug", *run])
    assert given.exit_code == 0, given.output
    for arguments in ([], [run[0], "--config", run[0]]):
        wrong = CliRunner().invoke(app, ["debug", *arguments])
        assert wrong.exit_code == 2
        assert "name one YAML file: trinity debug CONFIG" in wrong.output


def test_a_row_that_is_not_there_is_named(place) -> None:
    result = debug(place, "--task", 4)
    assert result.exit_code != 0
    assert "the taskset guesses has the rows 0 to 3, not 4." in str(result.exception)


@pytest.mark.slow
def test_a_replay_finds_the_call_at_which_a_workflow_now_differs(place, replay) -> None:
    plugin = place / "plugins" / "guessing.py"
    set_manager(get_manager().narrowed(plugin_dirs=[plugin.parent]))
    result = trinity.run(load_config(place / "run.yaml"), local=True)
    assert result.status is RunStatus.FINISHED
    run = Path(result.directory)

    same = debug(place, "--replay", run / "1/1/1")
    assert same.exit_code == 0, same.output
    assert "the replay is equal: 2 calls, reward " in same.output
    assert (
        "no answers of an environment were recorded (the workflow has no environment" in same.output
    )
    again = [replay(place / "run.yaml", run / "1/1/1") for _ in range(20)]
    assert [one.difference for one in again] == [None] * 20
    assert len({tuple(one.outcome[0].tokens.tolist()) for one in again}) == 1

    missing = debug(place, "--replay", run / "1/7/0")
    assert "has no sample of 1/7/0" in str(missing.exception)

    args = "buffer.explorer_input.taskset.workflow_args"
    other = debug(place, "--replay", run / "1/1/1", "--set", f"{args}.hint=say it louder")
    assert other.exit_code == 1
    assert "the replay differs at call 2 of 2" in other.output
    was, now = other.output.split("the prompt was recorded as:")[1].split("and is now:")
    assert "again" in was
    assert "louder" in now

    fewer = replay(place / "run.yaml", run / "1/1/1", f"{args}.turns=1")
    assert str(fewer.difference) == "the replay differs: 1 of 2 recorded calls were made"

    more = debug(place, "--replay", run / "1/1/1", "--set", f"{args}.turns=3")
    assert more.exit_code == 1
    assert "the replay differs at call 3 of 2" in more.output
    assert "(no such call)" in more.output

    reward = debug(place, "--replay", run / "1/1/1", "--set", f"{args}.bonus=5")
    assert reward.exit_code == 1
    assert "the replay differs: the reward of 1/1/1/0 was " in reward.output

    shorter = debug(place, "--replay", run / "1/1/1", "--set", f"{args}.keep=2")
    assert shorter.exit_code == 1
    assert "of the experience 1/1/1/0. From there it was recorded as" in shorter.output
    assert "again" in shorter.output.split("From there it was recorded as")[1]
    masked = replay(place / "run.yaml", run / "1/1/1", f"{args}.mask=1")
    assert "tokens of the experience 1/1/1/0 were the model's own, and " in str(masked.difference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agents", "judged"),
    [
        (["judge", "solver"], 3),
        pytest.param(["solver", "judge"], 6, marks=pytest.mark.acceptance),
    ],
)
def test_two_agents_that_ask_the_same_are_told_what_each_was_told(place, agents, judged) -> None:
    set_manager(get_manager().narrowed(plugin_dirs=[place / "plugins"]))
    taskset = "buffer.explorer_input.taskset"
    settings = [
        f"{taskset}.default_workflow_type=two_agents",
        f"{taskset}.workflow_args.agents={json.dumps(agents)}",
        f"{taskset}.workflow_args.judged={judged}",
    ]
    result = trinity.run(load_config(place / "run.yaml", overrides=settings), local=True)
    assert result.status is RunStatus.FINISHED
    given = [part for one in settings for part in ("--set", one)]

    for run in ("1/0/0", "1/1/1"):
        same = debug(place, "--replay", Path(result.directory) / run, *given)
        assert same.exit_code == 0, same.output
        assert "the replay is equal: 2 calls, reward " in same.output
        assert "the run did not record their order" not in same.output


@pytest.mark.slow
def test_a_replay_says_which_calls_have_no_place_among_the_others(place) -> None:
    set_manager(get_manager().narrowed(plugin_dirs=[place / "plugins"]))
    taskset = "buffer.explorer_input.taskset"
    settings = [
        f"{taskset}.default_workflow_type=two_agents",
        f"{taskset}.workflow_args.forgets=judge",
    ]
    result = trinity.run(load_config(place / "run.yaml", overrides=settings), local=True)
    given = [part for one in settings for part in ("--set", one)]

    replayed = debug(place, "--replay", Path(result.directory) / "1/0/0", *given)

    assert "1 of 2 calls have no recorded order" in replayed.output
    assert "2 calls have equal prompts and no recorded order" in replayed.output


@pytest.mark.slow
@pytest.mark.acceptance
def test_a_replay_gives_the_environments_answers_and_finds_another_action(place, replay) -> None:
    plugins = place / "plugins"
    set_manager(get_manager().narrowed(plugin_dirs=[plugins]))
    taskset = "buffer.explorer_input.taskset"
    playing = f"{taskset}.default_workflow_type=playing"
    result = trinity.run(load_config(place / "run.yaml", overrides=[playing]), local=True)
    assert result.status is RunStatus.FINISHED
    run = Path(result.directory)
    dice = next(one.Dice for one in list(sys.modules.values()) if hasattr(one, "Dice"))
    dice.num_built = 0

    again = [replay(place / "run.yaml", run / "1/1/1", playing) for _ in range(20)]
    assert [one.difference for one in again] == [None] * 20
    assert len({tuple(one.outcome[0].tokens.tolist()) for one in again}) == 1
    same = debug(place, "--replay", run / "1/1/1", "--set", playing)
    assert same.exit_code == 0, same.output
    assert "using 3 recorded answers instead of the environment" in same.output
    assert dice.num_built == 0

    args = f"{taskset}.workflow_args"
    gone = f"{args}.needs=data/gone"
    bare = debug(place, "--replay", run / "1/1/1", "--set", playing, "--set", gone)
    assert bare.exit_code == 0, bare.output
    assert "cannot be built here, but this replay does not need it" in bare.output
    assert "there is no folder data/gone" in bare.output
    anew = debug(place, "--say", "a", "--set", playing, "--set", gone)
    assert anew.exit_code == 1
    assert "there is no folder data/gone" in str(anew.exception or anew.output)

    with_playing = ("--replay", run / "1/1/1", "--set", playing, "--set")
    other = debug(place, *with_playing, f"{args}.shout=true")
    assert other.exit_code == 1
    assert "the replay differs at step 2 of 3 of the environment" in other.output
    was, now = other.output.split("There the action was recorded as:")[1].split("and is now:")
    assert "step('throw 2')" in was
    assert "step('THROW 2')" in now

    more = debug(place, *with_playing, f"{args}.end=1")
    assert "the replay differs at step 4 of 3 of the environment" in more.output
    assert dice.num_built == 0
