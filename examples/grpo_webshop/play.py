"""Print a whole WebShop session turn by turn, played by an oracle through the training workflow.

python examples/grpo_webshop/play.py [--data FOLDER] [--session 7]
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
from trinity_envs_webshop.env import WebShopEnv
from trinity_envs_webshop.oracle import oracle_action
from trinity_envs_webshop.shop import Shop
from trinity_envs_webshop.synthetic import write_catalogue
from trinity_envs_webshop.workflow import WebShopWorkflow
from trinity_testing.engines import AnsweringEngine
from trinity_testing.scripted_model import model_over

if TYPE_CHECKING:
    from trinity.common.ports import GenerationRequest


class OracleEngine(AnsweringEngine):
    """Stands where a model stands, and knows what to do: it plays the same session beside it."""

    def __init__(self, shop: Shop, session: int) -> None:
        super().__init__()
        self._env = WebShopEnv(shop)
        self._observation, _ = self._env.reset(session)

    def answer(self, request: GenerationRequest) -> str:
        """Print the page and the reply; return the reply."""
        action = oracle_action(self._env, words=self._env.instruction_text)
        print(f"--- observation\n{self._observation}\n--- reply\n<action>{action}</action>")
        self._observation = self._env.step(action)[0]
        return f"<action>{action}</action>"


def main() -> None:
    """Play the session and print what it was worth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="WebShop's files; else 1,000 invented products")
    parser.add_argument("--session", type=int, default=7, help="the position of the goal")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if given.data is None:
            write_catalogue(Path(made), num_products=1000)
        play(given.data or Path(made), given.session)


def play(folder: Path, session: int) -> None:
    """Run the workflow on the oracle."""
    task = Task(
        raw_task={"task_id": session},
        format_args=FormatConfig(prompt_key="task_id"),
        workflow_args={"data": str(folder)},
    )
    engine = OracleEngine(Shop(folder), session)
    workflow = WebShopWorkflow(task=task, model=model_over(engine), auxiliary_models=None)
    (experience,) = workflow.run()
    mask = experience.action_mask
    assert mask is not None
    print(f"--- reward {experience.reward}, {experience.metrics}")
    print(f"{len(experience.tokens)} tokens, {int(mask.sum())} of them the model's own")


if __name__ == "__main__":
    try:
        main()
    except TrinityError as error:
        sys.exit(f"Error: {error}")
