"""Train a step on rows that begin alike, with and without sharing what they begin with.

    python benchmarks/prefix_sharing.py [--sizes 1M,20M,100M] [--repeats 3] [--threads 1]

Counted are the CPU seconds of a process for forward, backward and optimizer: rows apart by rows
shared. The trainer's step (TorchTrainer.train_step, prefix_sharing off and auto) stands beside bare
forms of plain torch, without trainer, loss function or optimizer, measured by turns in one run:

    cache   the prompt into a stock DynamicCache, its keys and values expanded over the responses
    mask    one row with a block mask and position ids
    chain   the steps of a run as one sequence

Work (a): 8 responses of 64 tokens to a prompt of 256 or of 1,024 tokens. Work (b): a run of 16
steps whose context grows by 64 tokens a step, 32 of them sampled. The relative difference is that
of the trainer's gradients, over all parameters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.model import ModelConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.trainer.torch_trainer import TorchTrainer
from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZES = {  # hidden width, layers, heads, vocabulary
    "1M": (128, 5, 4, 512),
    "20M": (512, 6, 8, 2048),
    "100M": (768, 13, 12, 4096),
}
NUM_RESPONSES, RESPONSE, NUM_STEPS, ADDED = 8, 64, 16, 64


@dataclass(frozen=True, kw_only=True)
class Work:
    """Rows, and how much of each is a prompt."""

    name: str
    rows: list[torch.Tensor]
    prompts: list[int]
    bare: tuple[str, ...]  # the forms that fit

    def experiences(self) -> list[Experience]:
        """Return the rows as a trainer gets them, with advantages of both signs."""
        return [
            Experience(
                tokens=tokens,
                prompt_length=prompt,
                reward=float(number % 2),
                logprobs=torch.full((len(tokens) - prompt,), -6.0),
                advantages=torch.full((len(tokens) - prompt,), 1.0 - 2.0 * (number % 2)),
                eid=EID(0, 0, number),
            )
            for number, (tokens, prompt) in enumerate(zip(self.rows, self.prompts, strict=True))
        ]


def main() -> None:
    """Print a line for each size and work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--repeats", type=int, default=3, help="the least of so many is counted")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        "size  work                 trainer: off   auto  ratio   bare: ratios          difference"
    )
    for size in options.sizes.split(","):
        hidden, layers, heads, vocab = SIZES[size]
        with tempfile.TemporaryDirectory() as folder:
            path = make_tiny_model(
                folder, hidden=hidden, layers=layers, heads=heads, vocab=vocab, init_std=0.02
            )
            trainers = {mode: make_trainer(path, mode=mode) for mode in ("off", "auto")}
        for work in works(vocab):
            print(f"{size:5} {line(trainers, work, repeats=options.repeats)}", flush=True)


def line(trainers: dict[str, TorchTrainer], work: Work, *, repeats: int) -> str:
    """Return the measured numbers of a work."""
    body, head = trainers["off"].model.base_model, trainers["off"].model.get_output_embeddings()

    def step_of(trainer: TorchTrainer) -> Callable[[], object]:
        return lambda: trainer.train_step(work.experiences(), step=1)

    def bare_of(form: str) -> Callable[[], object]:
        return lambda: bare_step(form, work, body=body, head=head)

    calls = {f"trainer {mode}": step_of(trainer) for mode, trainer in trainers.items()}
    calls |= {form: bare_of(form) for form in ("plain", *work.bare)}
    seconds = least_seconds(calls, repeats=repeats)
    off, auto = seconds["trainer off"], seconds["trainer auto"]
    bare = "  ".join(f"{form} {seconds['plain'] / seconds[form]:.2f}" for form in work.bare)
    expected, found = (gradient(trainer, work) for trainer in trainers.values())
    difference = (found - expected).norm() / expected.norm()
    return f"{work.name:22} {off:8.3f}s {auto:6.3f}s {off / auto:5.2f}   {bare:22} {difference:.1e}"


def works(vocab: int) -> list[Work]:
    """Return works (a) and (b)."""
    draw = torch.Generator().manual_seed(0)

    def tokens(number: int) -> torch.Tensor:
        return torch.randint(3, vocab, (number,), generator=draw)

    found = []
    for length in (256, 1024):
        prompt = tokens(length)
        rows = [torch.cat((prompt, tokens(RESPONSE))) for _ in range(NUM_RESPONSES)]
        name = f"8 x 64 after {length}"
        found.append(
            Work(name=name, rows=rows, prompts=[length] * len(rows), bare=("cache", "mask"))
        )
    whole = tokens(NUM_STEPS * ADDED)
    rows = [whole[: ADDED * step] for step in range(1, NUM_STEPS + 1)]
    prompts = [len(row) - ADDED // 2 for row in rows]
    return [*found, Work(name="16 steps of 64", rows=rows, prompts=prompts, bare=("chain",))]


def make_trainer(path: Path, *, mode: str) -> TorchTrainer:
    """Return a trainer of GRPO's loss whose steps move nothing."""
    config = SimpleNamespace(
        algorithm=AlgorithmConfig(
            algorithm_type="grpo",
            advantage_fn="grpo",
            policy_loss_fn="ppo",
            kl_loss_fn="none",
            entropy_loss_fn="none",
            optimizer={"lr": 0.0, "weight_decay": 0.0},
        ),
        trainer=TrainerConfig(prefix_sharing=mode, max_token_len_per_gpu=16384),
        model=ModelConfig(),
    )
    return TorchTrainer(config, model_path=str(path), total_steps=10, seed=0)


def gradient(trainer: TorchTrainer, work: Work) -> torch.Tensor:
    """Return the gradient of the work's batch over all parameters."""
    batch, _ = trainer._preparation.batch_of(
        work.experiences(), lambda name: nullcontext(), version=0
    )
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])


def least_seconds(calls: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Return the least CPU seconds of each call; they take turns."""
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats + 1 if repeats > 1 else 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return seconds


def bare_step(form: str, work: Work, *, body: torch.nn.Module, head: torch.nn.Module) -> None:
    """Compute the gradient of the responses' likelihood in a bare form."""
    forms = {"plain": _plain, "cache": _cache, "mask": _mask, "chain": _chain}
    body.zero_grad()
    states = forms[form](work, body)  # of the tokens before each response token, row by row
    targets = torch.cat([row[n:] for row, n in zip(work.rows, work.prompts, strict=True)])
    logprob = head(states).log_softmax(-1).gather(-1, targets[:, None])
    (-logprob.mean()).backward()


def _plain(work: Work, body: torch.nn.Module) -> torch.Tensor:
    """Rows of one length in a batch; rows of many lengths one by one, without padding."""
    size = 1 if "chain" in work.bare else len(work.rows)
    states = []
    for first in range(0, len(work.rows), size):
        batch = torch.stack(work.rows[first : first + size])
        hidden = body(input_ids=batch, use_cache=False).last_hidden_state
        states.append(hidden[:, work.prompts[first] - 1 : -1].flatten(0, 1))
    return torch.cat(states)


def _cache(work: Work, body: torch.nn.Module) -> torch.Tensor:
    prompt = work.prompts[0]
    outputs = body(input_ids=work.rows[0][None, :prompt], use_cache=True)
    for layer in outputs.past_key_values.layers:
        layer.keys = layer.keys.expand(len(work.rows), -1, -1, -1)
        layer.values = layer.values.expand(len(work.rows), -1, -1, -1)
    responses = torch.stack([row[prompt:] for row in work.rows])
    hidden = body(
        input_ids=responses, past_key_values=outputs.past_key_values, use_cache=True
    ).last_hidden_state
    last = outputs.last_hidden_state[:, -1:].expand(len(work.rows), -1, -1)
    return torch.cat((last, hidden[:, :-1]), dim=1).flatten(0, 1)


def _mask(work: Work, body: torch.nn.Module) -> torch.Tensor:
    prompt, num = work.prompts[0], len(work.rows)
    tokens = torch.cat([work.rows[0][:prompt], *(row[prompt:] for row in work.rows)])
    length = len(tokens) - prompt
    positions = torch.cat([torch.arange(prompt), prompt + torch.arange(length // num).repeat(num)])
    owner = torch.cat([torch.full((prompt,), -1), torch.arange(length) // (length // num)])
    slots = torch.arange(len(tokens))
    mask = (slots[:, None] >= slots) & ((owner == -1) | (owner == owner[:, None]))
    hidden = body(
        input_ids=tokens[None],
        attention_mask=mask[None, None],
        position_ids=positions[None],
        use_cache=False,
    ).last_hidden_state[0]
    answers = hidden[prompt:].unflatten(0, (num, -1))
    last = hidden[None, prompt - 1 : prompt].expand(num, -1, -1)
    return torch.cat((last, answers[:, :-1]), dim=1).flatten(0, 1)


def _chain(work: Work, body: torch.nn.Module) -> torch.Tensor:
    hidden = body(input_ids=work.rows[-1][None], use_cache=False).last_hidden_state[0]
    return torch.cat(
        [hidden[n - 1 : len(row) - 1] for row, n in zip(work.rows, work.prompts, strict=True)]
    )


if __name__ == "__main__":
    main()
