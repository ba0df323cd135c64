"""Learn a task with TRL's GRPOTrainer; one line of JSON a step. Run by TRL's interpreter."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from task import TASKS
from trl import GRPOConfig, GRPOTrainer


def main() -> None:
    """Train, with the defaults of TRL for all that is not named here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--keep-activations", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[options.task]
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    progress = options.progress.open("w")

    def reward(completions: list, answer: list[str], **kwargs: object) -> list[float]:
        """Return what each answer is worth."""
        rewards = [
            task.reward(completion[0]["content"], truth)
            for completion, truth in zip(completions, answer, strict=True)
        ]
        progress.write(json.dumps({"reward": sum(rewards) / len(rewards)}) + "\n")
        progress.flush()
        return rewards

    trainer = GRPOTrainer(
        model=options.model,
        reward_funcs=reward,
        args=_settings(options),
        train_dataset=Dataset.from_list(
            [
                {"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]}
                for row in rows
            ]
        ),
    )
    trainer.train()


def _settings(options: argparse.Namespace) -> GRPOConfig:
    task = TASKS[options.task]
    own = {"gradient_checkpointing": False} if options.keep_activations else {}
    return GRPOConfig(
        output_dir=str(options.progress.parent / "trl"),
        per_device_train_batch_size=task.prompts * task.group,
        gradient_accumulation_steps=1,
        num_generations=task.group,
        max_completion_length=task.answer_tokens,
        learning_rate=task.lr,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        temperature=1.0,
        beta=0.0,
        max_steps=options.steps,
        seed=options.seed,
        bf16=options.bf16,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
        **own,
    )


if __name__ == "__main__":
    main()
