"""Print a whole ALFWorld game turn by turn, played by an oracle through the training workflow.

python examples/grpo_alfworld/play.py [--game GAME_FILE] [--seed 7] [--size small] [--task-type ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.config import FormatConfig
from trinity.common.workflows import Task
from trinity.errors import TrinityError
from trinity_envs_alfworld.folder import found_game
from trinity_envs_alfworld.games import TASK_TYPES, playable_games
from trinity_envs_alfworld.generate_room import SIZES
from trinity_envs_alfworld.generate_write import write_games
from trinity_envs_alfworld.oracle import SearchingPlayer, goal_of
from trinity_envs_alfworld.prompt import AlfWORLD_SYSTEM_PROMPT
from trinity_envs_alfworld.workflow import AlfworldWorkflow
from trinity_testing.engines import EchoEngine
from trinity_testing.scripted_model import model_over

if TYPE_CHECKING:
    from trinity.common.ports import GenerationRequest


class OracleEngine(EchoEngine):
    """Stands where a model stands: it sees the prompt's last message, and searches by it."""

    def __init__(self, player: SearchingPlayer) -> None:
        super().__init__()
        self._player = player

    def answer(self, request: GenerationRequest) -> str:
        """Print the observation and the reply; return the reply."""
        shown = super().answer(request)
        reply = self._player.reply(shown.removeprefix("Observation:\n"))
        print(f"--- user\n{shown}\n--- assistant\n{reply}")
        return reply


def main() -> None:
    """Play the game and print what it was worth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", type=Path, help="a game.tw-pddl; else one is generated")
    parser.add_argument("--seed", type=int, default=7, help="of the generated game")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--task-type", choices=TASK_TYPES, default="pick_heat_then_place_in_recep")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if given.game is None:
            shares = {"train": 1.0}
            options = {"sizes": (given.size,), "task_types": (given.task_type,), "splits": shares}
            write_games(Path(made), count=1, seed=given.seed, **options)
        play(given.game or playable_games(made, "train")[0])


def play(game_file: Path) -> None:
    """Run the workflow on the oracle."""
    game_file = found_game(game_file.absolute())
    task = Task(
        raw_task={"game_file": str(game_file)},
        format_args=FormatConfig(prompt_key="game_file"),
        workflow_args={"max_env_steps": 50},
    )
    engine = OracleEngine(SearchingPlayer(goal_of(game_file)))
    print(f"--- system\n{AlfWORLD_SYSTEM_PROMPT}")
    workflow = AlfworldWorkflow(task=task, model=model_over(engine), auxiliary_models=None)
    (experience,) = workflow.run()
    workflow.close()
    mask = experience.action_mask
    assert mask is not None
    print(f"--- reward {experience.reward}, {experience.metrics}")
    print(f"{len(experience.tokens)} tokens, {int(mask.sum())} of them the model's own")


if __name__ == "__main__":
    try:
        main()
    except TrinityError as error:
        sys.exit(f"Error: {error}")
