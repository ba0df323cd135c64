"""A play that was recorded is played again without the game."""

import asyncio
from dataclasses import replace

import pytest
from alfworld_runs import BOTH, a_workflow, saying
from tiny_game import WALKTHROUGH
from trinity.common.workflows.recorded_env import Recording
from trinity.errors import EnvError
from trinity_debug.environments import RepeatedEnvironments, answers_of
from trinity_envs_alfworld.raft import RAFTAlfworldWorkflow
from trinity_envs_alfworld.raft_reflect import RAFTReflectAlfworldWorkflow
from trinity_testing.engines import ScriptedEngine

IN_PARTS = "<experience>e</experience>\n"  # what the others do not read


class Deriving(RAFTAlfworldWorkflow):
    """As published: it makes its environment by the published name."""

    async def run_async(self):
        return await self.eval_alfworld()

    def run(self):
        return asyncio.run(self.run_async())


CLASSES = [*BOTH, RAFTAlfworldWorkflow, RAFTReflectAlfworldWorkflow, Deriving]


def played(cls, environments, *commands, data):
    replies = [f"{IN_PARTS}{said}" for said in saying(*commands)]
    workflow = a_workflow(cls, ScriptedEngine(*replies, repeat=True), data=data)
    workflow.task = replace(workflow.task, environments=environments)
    return workflow.run()


@pytest.mark.parametrize("cls", CLASSES)
def test_a_recorded_play_needs_no_game_and_finds_another_command(cls, data, tmp_path) -> None:
    recording = Recording()
    first = played(cls, recording, *WALKTHROUGH, data=data)
    answers = answers_of(recording.text(), place="run/1/0/0")
    assert answers.problem == ""
    assert answers.num_calls == 1 + len(WALKTHROUGH)

    empty = tmp_path / "no-games"
    repeated = RepeatedEnvironments(answers, is_over=lambda: False)
    again = played(cls, repeated, *WALKTHROUGH, data=empty)
    assert [one.tokens.tolist() for one in again] == [one.tokens.tolist() for one in first]
    assert [one.metrics for one in again] == [one.metrics for one in first]
    assert (repeated.departure, repeated.left) == (None, None)

    repeated = RepeatedEnvironments(answers, is_over=lambda: False)
    with pytest.raises(EnvError, match="step 3 of the environment differs"):
        played(cls, repeated, WALKTHROUGH[0], "sing", data=empty)
    assert repeated.departure.was == f"step({WALKTHROUGH[1]!r})"
    assert repeated.departure.now == "step('sing')"
