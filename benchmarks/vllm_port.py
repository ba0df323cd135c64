"""Tokens a CPU second: ``LLM.generate`` of vLLM, and the same vLLM behind Trinity's engine port.

    python benchmarks/vllm_port.py [--hidden 128] [--layers 4] [--rounds 5]

64 prompts of 32 tokens, 64 new tokens each, log-probabilities on, one thread, rounds in turns. In
an environment with vLLM: docs/how-to/use-vllm.md. The port gives each request a seed of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

from trinity.common.ports import GenerationRequest, RunKey
from trinity_engine_vllm.engine import VLLMEngine
from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPTS = [tuple(range(5 + i, 37 + i)) for i in range(64)]
NEW = 64


def main() -> None:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny_model(
            folder, vocab=1024, hidden=options.hidden, layers=options.layers, init_std=0.1
        )
        engine = VLLMEngine(model_path=str(path), max_model_len=128, num_threads=1)
        ways = {"LLM.generate": by_vllm(engine), "port": lambda: by_port(engine)}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds + 1):
            for name, way in ways.items():
                measured = rate(way)
                if number:  # the first warms up
                    rates[name].append(measured)
        engine.close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, median in medians.items():
        print(f"{name:14} {median:8.0f} tokens a CPU second")
    print(f"ratio          {medians['port'] / medians['LLM.generate']:8.2f}")


def rate(way: Callable[[], None]) -> float:
    """Return tokens a CPU second of this process."""
    began = time.process_time()
    way()
    return len(PROMPTS) * NEW / (time.process_time() - began)


def by_port(engine: VLLMEngine) -> None:
    """Ask for all at once, and wait."""
    futures = [
        engine.submit(
            GenerationRequest(
                prompt_token_ids=prompt, key=RunKey(task=i), max_new_tokens=NEW, ignore_eos=True
            )
        )
        for i, prompt in enumerate(PROMPTS)
    ]
    for future in futures:
        future.result()


def by_vllm(engine: VLLMEngine) -> Callable[[], None]:
    """Return a call of ``LLM.generate`` on an engine of its own with the same arguments."""
    import vllm

    llm = vllm.LLM(**engine._arguments)
    params = vllm.SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=0, detokenize=False)
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
    return lambda: llm.generate(prompts, params, use_tqdm=False) and None


if __name__ == "__main__":
    main()
