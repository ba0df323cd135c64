"""Learn a task with nothing but torch and the model's class; one line of JSON a step.

What a step costs that has no parts: one padded batch, one loop of sampling, one loss.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from task import TASKS, Task
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    task = TASKS[options.task]
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.lr, weight_decay=0.0, fused=True)
    with options.progress.open("w") as progress:
        for step in range(options.steps):
            chosen = [rows[(step * task.prompts + i) % len(rows)] for i in range(task.prompts)]
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
                tokens_BL, mask_BR = rollout(model, tokenizer, chosen, task=task)
                rewards_B = score(tokenizer, tokens_BL, mask_BR, chosen, task=task)
                advantages_B = advantages(rewards_B, group=task.group)
                loss = policy_loss(model, tokens_BL, mask_BR, advantages_B)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            progress.write(json.dumps({"reward": rewards_B.mean().item()}) + "\n")
            progress.flush()


@torch.no_grad()
def rollout(
    model: torch.nn.Module, tokenizer: object, rows: list[dict], *, task: Task
) -> tuple[Tensor, Tensor]:
    """Return tokens ``[B, L]`` and which of the response are the model's, ``[B, R]``."""
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": row["question"]}],
            add_generation_prompt=True,
            return_dict=False,
        )
        for row in rows
    ]
    # all prompts are equally long
    tokens_BL = torch.tensor(prompts).repeat_interleave(task.group, dim=0)
    cache, inputs_BL = DynamicCache(), tokens_BL
    is_alive_B, masks = torch.ones(len(tokens_BL), dtype=torch.bool), []
    for _ in range(task.answer_tokens):
        logits_BV = model(inputs_BL, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
        inputs_BL = torch.multinomial(logits_BV.softmax(-1), 1)
        tokens_BL = torch.cat([tokens_BL, inputs_BL], dim=1)
        masks.append(is_alive_B)
        is_alive_B = is_alive_B & (inputs_BL[:, 0] != tokenizer.eos_token_id)
    return tokens_BL, torch.stack(masks, dim=1)


def score(
    tokenizer: object, tokens_BL: Tensor, mask_BR: Tensor, rows: list[dict], *, task: Task
) -> Tensor:
    """Return what each answer is worth."""
    answers = [
        response[mask].tolist()
        for response, mask in zip(tokens_BL[:, -mask_BR.shape[1] :], mask_BR, strict=True)
    ]
    texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
    return torch.tensor(
        [task.reward(text, rows[row // task.group]["answer"]) for row, text in enumerate(texts)]
    )


def advantages(rewards_B: Tensor, *, group: int) -> Tensor:
    """Return each reward against its group."""
    rewards_PG = rewards_B.view(-1, group)
    centred_PG = rewards_PG - rewards_PG.mean(1, keepdim=True)
    return (centred_PG / (rewards_PG.std(1, keepdim=True) + 1e-4)).view(-1)


def policy_loss(
    model: torch.nn.Module, tokens_BL: Tensor, mask_BR: Tensor, advantages_B: Tensor
) -> Tensor:
    """Return the loss of one on-policy step: its ratio is 1, so nothing is clipped."""
    logits_BRV = model(tokens_BL[:, :-1], logits_to_keep=mask_BR.shape[1]).logits.float()
    targets_BR = tokens_BL[:, -mask_BR.shape[1] :]
    logprob_BR = logits_BRV.log_softmax(-1).gather(-1, targets_BR[..., None]).squeeze(-1)
    ratio_BR = (logprob_BR - logprob_BR.detach()).exp()
    return -(ratio_BR * advantages_B[:, None])[mask_BR].mean()


if __name__ == "__main__":
    main()
