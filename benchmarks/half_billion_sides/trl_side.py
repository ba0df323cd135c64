"""Steps of TRL's GRPOTrainer; run by TRL's interpreter."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from notes import note_times
from trl import GRPOConfig, GRPOTrainer


def main() -> None:
    """Train, with the defaults of TRL for all that is not named here."""
    given = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(given["threads"])
    lines = (Path(given["folder"]) / "rows.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    clock = Path(given["clock"]).open("w")  # noqa: SIM115 -- for the life of the process

    def reward(completions: list, **kwargs: object) -> list[float]:
        """Return numbers that differ within a group, and note the time of each."""
        now = {"wall_s": time.perf_counter(), "cpu_s": time.process_time()}
        clock.write((json.dumps(now) + "\n") * len(completions))
        clock.flush()
        return [float(number % 3) for number in range(len(completions))]

    chats = [{"prompt": [{"role": "user", "content": row["question"]}]} for row in rows]
    half = given["precision"] == "bfloat16"
    settings = GRPOConfig(
        output_dir=str(Path(given["folder"]) / "trl"),
        per_device_train_batch_size=given["rows"],
        gradient_accumulation_steps=given["group"] // given["rows"],
        num_generations=given["group"],
        max_completion_length=given["new_tokens"],
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        beta=0.0,
        max_steps=given["steps"],
        seed=0,
        bf16=half,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="steps" if given["saves"] else "no",
        save_steps=given["steps"],
        report_to="none",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = GRPOTrainer(
        model=given["model"],
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(chats),
    )
    note_times(GRPOTrainer, "_save_checkpoint", name="checkpoint", file=given["notes"])
    trainer.train(resume_from_checkpoint=True if given["resumes"] else None)


if __name__ == "__main__":
    main()
