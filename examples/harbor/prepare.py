"""Make the example's model, tokenizer, demonstrations and rows, in seconds and without a download.

Written to ``--folder``, all by ``--seed``:

* ``model/``: a Qwen3 of 0.13 million random weights, and a tokenizer of the tasks' words
* ``sft.jsonl``: demonstrations: commands as a shell reads them, but often those of another task
* ``tasks.jsonl``: a row for each of the five tasks in ``tasks/``
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.rows import write_rows
from trinity_envs_harbor.reading import read_task
from trinity_envs_harbor.task import digest_of, task_folders
from trinity_testing.small_model import END, PAD, ROLES, chat_tokenizer, make_small_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TASKS = Path(__file__).with_name("tasks")
UNKNOWN = "<|unknown|>"
NUM_DEMONSTRATIONS = 256  # of each task
SHARE_RIGHT = 0.5


def main() -> None:
    """Write the three things into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of weights and demonstrations")
    parser.add_argument("--folder", type=Path, default=Path("harbor_run"))
    options = parser.parse_args()
    folder, seed = options.folder, options.seed
    rows = [row_of(task) for task in task_folders(TASKS)]
    write_rows(folder / "tasks.jsonl", rows)
    commands = [solution_of(Path(row["task_dir"])) for row in rows]
    write_rows(folder / "sft.jsonl", demonstrations(rows, commands, rng=random.Random(seed)))
    make_small_model(
        folder / "model",
        tokenizer=make_tokenizer([row["instruction"] for row in rows] + commands),
        hidden=64,
        mlp=256,
        layers=2,
        max_positions=64,
        init_std=0.1,
        seed=seed,
    )
    print(f"model, demonstrations and {len(rows)} rows are in {folder}/ (seed {seed})")


def row_of(folder: Path) -> dict[str, str]:
    """Return what ``trinity harbor rows`` writes for a task."""
    task, problems = read_task(folder, tasks=TASKS)
    assert task is not None, problems
    return {
        "task_dir": str(folder),
        "tasks_dir": str(TASKS),
        "name": task.name,
        "instruction": task.steps[0].instruction.strip(),
        "digest": digest_of(folder, TASKS),
    }


def solution_of(folder: Path) -> str:
    """Return the one command of a task's solution."""
    return (folder / "solution" / "solve.sh").read_text(encoding="utf-8").splitlines()[-1]


def demonstrations(
    rows: list[dict[str, str]], commands: list[str], *, rng: random.Random
) -> list[dict[str, Any]]:
    """Return conversations whose command is right in one of two, and else of another task."""
    shown = []
    for row, right in zip(rows, commands, strict=True):
        wrong = [command for command in commands if command != right]
        for _ in range(NUM_DEMONSTRATIONS):
            command = right if rng.random() < SHARE_RIGHT else rng.choice(wrong)
            question = {"role": "user", "content": row["instruction"]}
            shown.append({"messages": [question, {"role": "assistant", "content": command}]})
    rng.shuffle(shown)
    return shown


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the words of these texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = [PAD, UNKNOWN, END, *ROLES]
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: place for place, word in enumerate([*special, *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return chat_tokenizer(core, unknown=UNKNOWN)


if __name__ == "__main__":
    main()
