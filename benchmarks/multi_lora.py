"""Runs that sample from one model: in turns, in engines of their own, and together in one batch.

    python benchmarks/multi_lora.py [--runs 2 4 8] [--hidden 256] [--rounds 5]

Each run has a LoRA of its own, of rank 4, 8 or 16. In each round every run asks for the same number
of rollouts of the same prompts, three ways one after the other, in an order that changes from round
to round:

* in turns: one engine; a run's requests are sent when the run before has its answers;
* engines of their own: each adapter is merged into a copy of the model, and all are sent at once;
* together: one engine, all are sent at once; each row of the batch has its adapter.

Times are CPU seconds of this process, with one thread of torch, so that they mean something beside
other work; the table has the median over the rounds, and the ratio is of medians.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import GenerationRequest, RunKey
from trinity.engines.model import twin_of
from trinity.engines.transformers_engine import TransformersEngine
from trinity_testing.tiny import make_tiny_model
from trinity_tinker.multi_lora import MultiLoRA

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

RANKS = (4, 8, 16)
PROMPTS, SAMPLES, TOKENS = 4, 4, 32  # of each run: 16 rollouts


def main() -> None:
    """Print a row for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| runs | way | CPU s | rollouts a CPU second | against in turns |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        path = make_tiny_model(Path(name), hidden=options.hidden, layers=4)
        for num_runs in options.runs:
            compare(path, num_runs, rounds=options.rounds)


def compare(path: Path, num_runs: int, *, rounds: int) -> None:
    """Print the rows of so many runs."""
    base = AutoModelForCausalLM.from_pretrained(path).eval().requires_grad_(requires_grad=False)
    adapters = MultiLoRA()
    factors = {f"run {i}": adapter(base, rank=RANKS[i % 3], seed=i) for i in range(num_runs)}
    for name, pair in factors.items():
        adapters.add(name, pair)
    shared = engine(path, adapters.put_into(twin_of(base)), adapters)
    apart = {name: engine(path, merged(base, pair)) for name, pair in factors.items()}
    ways: dict[str, Callable[[int], None]] = {
        "in turns": lambda n: [answer([(shared, ask(name, n))]) for name in factors],
        "engines of their own": lambda n: answer([(apart[name], ask("", n)) for name in factors]),
        "together": lambda n: answer([(shared, ask(name, n)) for name in factors]),
    }
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        order = list(ways)[number % 3 :] + list(ways)[: number % 3]
        for way in order:
            began = time.process_time()
            ways[way](number)
            if number:  # the first is a warm-up
                spent[way].append(time.process_time() - began)
    for one in (shared, *apart.values()):
        one.close()
    usual = statistics.median(spent["in turns"])
    for way, seconds in spent.items():
        median = statistics.median(seconds)
        rate = num_runs * PROMPTS * SAMPLES / median
        print(f"| {num_runs} | {way} | {median:.2f} | {rate:.0f} | {usual / median:.2f} x |")


def engine(
    path: Path, module: PreTrainedModel, adapters: MultiLoRA | None = None
) -> TransformersEngine:
    """Return an engine that shares a model."""
    return TransformersEngine(
        model_path=str(path), max_model_len=128, in_lockstep=False, module=module, adapters=adapters
    )


def ask(name: str, number: int) -> list[GenerationRequest]:
    """Return the requests of a run."""
    return [
        GenerationRequest(
            prompt_token_ids=tuple(range(10, 30 + prompt)),
            key=RunKey(batch=f"{name}/{number}", task=prompt),
            n=SAMPLES,
            max_new_tokens=TOKENS,
            ignore_eos=True,
            adapter=name,
        )
        for prompt in range(PROMPTS)
    ]


def answer(asked: list[tuple[TransformersEngine, list[GenerationRequest]]]) -> None:
    """Wait for the rollouts of all requests, sent at once."""
    futures = [one.submit(request) for one, requests in asked for request in requests]
    for future in futures:
        future.result()


def adapter(
    module: PreTrainedModel, *, rank: int, seed: int
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return an adapter of all linear layers, as the Tinker SDK asks for by default."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (
            torch.randn(part.in_features, rank, generator=generator) * 0.01,
            torch.randn(rank, part.out_features, generator=generator) * 0.01,
        )
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Linear)
    }


def merged(
    base: PreTrainedModel, factors: dict[str, tuple[torch.Tensor, torch.Tensor]]
) -> PreTrainedModel:
    """Return a copy of a model with an adapter added to its weights."""
    module = copy.deepcopy(base)
    for name, (lower, upper) in factors.items():
        layer = module.get_submodule(name)
        weight = layer.weight + (lower @ upper).T
        layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return module


if __name__ == "__main__":
    main()
