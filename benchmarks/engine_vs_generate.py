"""Compare the embedded engine with ``transformers.generate``, in tokens per CPU second.

    python benchmarks/engine_vs_generate.py [--size 1m|20m] [--rounds 5]

Both sample at temperature 1 with one thread, and both return the log-probabilities. Three loads:

    A  64 requests, prompt 32, 64 new tokens each
    B  64 requests, prompt 32, 8 to 256 new tokens, most of them short
    C  8 prompts of 256 tokens, 8 samples each, 32 new tokens

The two take turns; the median of the rounds is shown, without the first one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import GenerationRequest, RunKey
from trinity.engines.transformers_engine import TransformersEngine
from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {
    "1m": {"vocab": 1024, "hidden": 128, "layers": 5, "heads": 4},
    "20m": {"vocab": 8192, "hidden": 384, "layers": 10, "heads": 6},
}


def main() -> None:
    """Print one line for each load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="1m")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny_model(Path(folder), max_positions=1024, init_std=0.02, **SIZES[args.size])
        model = AutoModelForCausalLM.from_pretrained(path)
        engine = TransformersEngine(model_path=str(path), max_model_len=1024)
        print(f"{model.num_parameters() / 1e6:.1f}M parameters, 1 thread, tokens per CPU second")
        for name, requests in loads(model.config.vocab_size).items():
            ours, theirs = compare(
                lambda requests=requests: run_engine(engine, requests),
                lambda requests=requests: run_generate(model, requests),
                rounds=args.rounds,
            )
            print(f"{name}: engine {ours:.0f}, generate {theirs:.0f}, ratio {ours / theirs:.2f}")
        engine.close()


def loads(vocab: int) -> dict[str, list[GenerationRequest]]:
    """Return the requests of each load."""
    rng = np.random.default_rng(0)
    tail = np.clip(np.exp(rng.normal(3.3, 1.0, 64)), 8, 256).astype(int)
    return {
        "A": [_request(rng, i, vocab, prompt=32, new=64) for i in range(64)],
        "B": [_request(rng, i, vocab, prompt=32, new=int(tail[i])) for i in range(64)],
        "C": [_request(rng, i, vocab, prompt=256, new=32, n=8) for i in range(8)],
    }


def _request(
    rng: np.random.Generator, task: int, vocab: int, *, prompt: int, new: int, n: int = 1
) -> GenerationRequest:
    ids = rng.integers(3, vocab, prompt).tolist()
    return GenerationRequest(
        prompt_token_ids=tuple(ids), key=RunKey(task=task), n=n, max_new_tokens=new, ignore_eos=True
    )


def compare(ours: Callable[[], int], theirs: Callable[[], int], *, rounds: int) -> list[float]:
    """Return the median tokens per CPU second of both."""
    rates: list[list[float]] = [[], []]
    for _ in range(rounds + 1):
        for side, run in enumerate((ours, theirs)):
            start = time.process_time()
            tokens = run()
            rates[side].append(tokens / (time.process_time() - start))
    return [statistics.median(side[1:]) for side in rates]


def run_engine(engine: TransformersEngine, requests: list[GenerationRequest]) -> int:
    """Return how many tokens the engine made."""
    futures = [engine.submit(request) for request in requests]
    return sum(len(reply.token_ids) for future in futures for reply in future.result(600))


def run_generate(model: torch.nn.Module, requests: list[GenerationRequest]) -> int:
    """Return how many tokens ``generate`` made that were asked for: it goes on to the longest."""
    ids = torch.tensor([request.prompt_token_ids for request in requests])
    longest = max(request.max_new_tokens for request in requests)
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            num_return_sequences=requests[0].n,
            max_new_tokens=longest,
            min_new_tokens=None,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        logits = torch.stack(output.logits, dim=1)
        new = output.sequences[:, ids.shape[1] :]
        logits.log_softmax(-1).gather(-1, new[..., None])
    return sum(request.max_new_tokens * request.n for request in requests)


if __name__ == "__main__":
    main()
