"""The model folders that the tasks begin from."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trinity_testing.tiny import make_tiny_model

from grpo_tasks.task import TASKS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_model"]

SFT_ROWS, SFT_LR = 32, 1e-3
SFT_STEPS = {"sums": 350, "sorting": 100}  # a fifth of the answers are right then


def make_model(folder: Path, *, task: str, seed: int) -> Path:
    """Return a folder with a Qwen3 of about a million weights, whose tokens are characters.

    ``digits`` begins at random, from each seed anew; the others at the one that was shown some.
    """
    path = folder / f"model-{0 if task in SFT_STEPS else seed}"
    if path.exists():
        return path
    make_tiny_model(path, vocab=259, hidden=128, layers=5, heads=4, init_std=0.02, seed=seed)
    if task in SFT_STEPS:
        show_answers(path, task=task, seed=seed)
    return path


def show_answers(folder: Path, *, task: str, seed: int) -> None:
    """Train the model briefly on correct answers, so that it solves a fifth of the task."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=SFT_LR, weight_decay=0.0, fused=True)
    generator = random.Random(seed + 1000)
    for _ in range(SFT_STEPS[task]):
        rows = [TASKS[task].question(generator) for _ in range(SFT_ROWS)]
        loss = _loss(model, tokenizer, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def _loss(model, tokenizer, rows: list[tuple[str, str]]) -> torch.Tensor:  # noqa: ANN001
    """Return the mean loss of the answers' tokens and of the one that ends them."""
    tokens, labels = [], []
    for question, answer in rows:
        chat = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        reply = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
        tokens.append(torch.tensor(prompt + reply))
        labels.append(torch.tensor([-100] * len(prompt) + reply))
    pad = torch.nn.utils.rnn.pad_sequence
    tokens_BL = pad(tokens, batch_first=True, padding_value=tokenizer.eos_token_id)
    labels_BL = pad(labels, batch_first=True, padding_value=-100)
    return model(tokens_BL, labels=labels_BL).loss
