"""Train a step on rows that begin alike, with and without sharing what they begin with.

    python benchmarks/prefix_sharing.py [--sizes 1M,20M,100M] [--works 256,1024,steps]
                                        [--repeats 3] [--threads 1]

Counted are the CPU seconds of a process. ``forward, backward`` is the trainer's, from experiences
to gradients (batch, plan, log-probabilities, GRPO's loss, metrics), prefix_sharing off and auto;
``step`` is the same and the optimizer's part: the gradient's norm, clipping and AdamW, which no way
of laying rows out makes cheaper. Beside it stand bare forms of plain torch, measured by turns in
the same run. They too go forward and backward from zeroed gradients over the responses' likelihood,
and have no trainer, loss function, metrics or optimizer, so ``of bare`` compares their factor with
that of ``forward, backward``: 1 is as good as the best bare form.

    cache   the prompt into a stock DynamicCache, its keys and values expanded over the responses
    mask    one row with a block mask and position ids
    chain   the steps of a run as one sequence

Work (a): 8 responses of 64 tokens to a prompt of 256 or of 1,024 tokens. Work (b): a run of 16
steps whose context grows by 64 tokens a step, 32 of them sampled. Each way's least of the repeats
counts, after a first round that does not; with one repeat there is no such round, and a factor may
be off by a fifth on a machine that does other things too. The relative difference is that of the
trainer's gradients, over all parameters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.explorer import ExplorerConfig
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
HEADER = (
    "size  work              forward, backward: off, auto, ratio   step: off, auto, ratio   "
    "bare: ratios   of bare   difference"
)


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


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """CPU seconds of a gradient, and of the step that it is part of."""

    gradient: float
    step: float


def main() -> None:
    """Print a line for each size and work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--works", default="256,1024,steps")
    parser.add_argument("--repeats", type=int, default=3, help="the least of so many is counted")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(HEADER)
    for size in options.sizes.split(","):
        hidden, layers, heads, vocab = SIZES[size]
        with tempfile.TemporaryDirectory() as folder:
            path = make_tiny_model(
                folder, hidden=hidden, layers=layers, heads=heads, vocab=vocab, init_std=0.02
            )
            trainers = {mode: make_trainer(path, mode=mode) for mode in ("off", "auto")}
        for key, work in works(vocab).items():
            if key in options.works.split(","):
                print(f"{size:5} {line(trainers, work, repeats=options.repeats)}", flush=True)


def line(trainers: dict[str, TorchTrainer], work: Work, *, repeats: int) -> str:
    """Return the measured numbers of a work."""
    gradients: dict[str, torch.Tensor] = {}
    model = trainers["off"].model
    calls: dict[str, Callable[[], Seconds]] = {
        mode: partial(trainer_step, trainer, work, mode=mode, gradients=gradients)
        for mode, trainer in trainers.items()
    }
    calls |= {form: partial(bare_step, form, work, model=model) for form in ("plain", *work.bare)}
    least = least_seconds(calls, repeats=repeats)
    off, auto = least["off"], least["auto"]
    ratio = off.gradient / auto.gradient
    bare = {form: least["plain"].gradient / least[form].gradient for form in work.bare}
    shown = "  ".join(f"{form} {factor:.2f}" for form, factor in bare.items())
    difference = (gradients["auto"] - gradients["off"]).norm() / gradients["off"].norm()
    return (
        f"{work.name:17} {off.gradient:7.3f} {auto.gradient:7.3f} {ratio:6.2f}"
        f"{off.step:11.3f} {auto.step:7.3f} {off.step / auto.step:6.2f}"
        f"   {shown:22} {ratio / max(bare.values()):4.2f}   {difference:.1e}"
    )


def works(vocab: int) -> dict[str, Work]:
    """Return works (a) and (b)."""
    draw = torch.Generator().manual_seed(0)

    def tokens(number: int) -> torch.Tensor:
        return torch.randint(3, vocab, (number,), generator=draw)

    found = {}
    for length in (256, 1024):
        prompt = tokens(length)
        rows = [torch.cat((prompt, tokens(RESPONSE))) for _ in range(NUM_RESPONSES)]
        name = f"8 x 64 after {length}"
        prompts = [length] * len(rows)
        found[str(length)] = Work(name=name, rows=rows, prompts=prompts, bare=("cache", "mask"))
    whole = tokens(NUM_STEPS * ADDED)
    rows = [whole[: ADDED * step] for step in range(1, NUM_STEPS + 1)]
    prompts = [len(row) - ADDED // 2 for row in rows]
    steps = Work(name="16 steps of 64", rows=rows, prompts=prompts, bare=("chain",))
    return found | {"steps": steps}


def make_trainer(path: Path, *, mode: str) -> TorchTrainer:
    """Return a trainer of GRPO's loss whose steps move nothing."""
    config = SimpleNamespace(
        audit="warn",
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
        explorer=ExplorerConfig(),
    )
    return TorchTrainer(config, model_path=str(path), total_steps=10, seed=0)


def trainer_step(
    trainer: TorchTrainer, work: Work, *, mode: str, gradients: dict[str, torch.Tensor]
) -> Seconds:
    """Make a step; keep the gradient of the first one."""
    start = time.process_time()
    batch, _ = trainer._preparation.batch_of(
        work.experiences(), lambda name: nullcontext(), version=0
    )
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    seconds = time.process_time() - start
    if mode not in gradients:
        gradients[mode] = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    start = time.process_time()
    trainer._update(batch, step=1)
    return Seconds(gradient=seconds, step=seconds + time.process_time() - start)


def least_seconds(calls: dict[str, Callable[[], Seconds]], *, repeats: int) -> dict[str, Seconds]:
    """Return the least CPU seconds of each call; they take turns."""
    found: dict[str, list[Seconds]] = {name: [] for name in calls}
    for _ in range(repeats + 1 if repeats > 1 else 1):
        for name, call in calls.items():
            found[name].append(call())
    counted = {name: seconds[1:] or seconds for name, seconds in found.items()}
    return {
        name: Seconds(gradient=min(s.gradient for s in seconds), step=min(s.step for s in seconds))
        for name, seconds in counted.items()
    }


def bare_step(form: str, work: Work, *, model: torch.nn.Module) -> Seconds:
    """Compute the gradient of the responses' likelihood in a bare form."""
    forms = {"plain": _plain, "cache": _cache, "mask": _mask, "chain": _chain}
    start = time.process_time()
    model.zero_grad()
    states = forms[form](work, model.base_model)  # that each response token follows, row by row
    targets = torch.cat([row[n:] for row, n in zip(work.rows, work.prompts, strict=True)])
    logits = model.get_output_embeddings()(states)
    logprob = logits.log_softmax(-1).gather(-1, targets[:, None])
    (-logprob.mean()).backward()
    seconds = time.process_time() - start
    return Seconds(gradient=seconds, step=seconds)


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
