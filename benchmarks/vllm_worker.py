"""Answers the loads of ``engine_vs_generate.py`` with vLLM; runs in vLLM's own interpreter.

    python vllm_worker.py MODEL DTYPE SLOTS

Reads a load a line (json), writes ``RESULT {"cpu_s": ...}``. Everything is in this process.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.update(  # noqa: TID251 -- a process of its own, for another library
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    TORCHDYNAMO_DISABLE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    HF_HUB_OFFLINE="1",
)

from vllm import LLM, SamplingParams


def main() -> None:
    """Answer loads until the input ends."""
    path, dtype, slots = sys.argv[1:]
    llm = LLM(
        model=path,
        dtype=dtype,
        max_model_len=1024,
        max_num_seqs=int(slots),
        enforce_eager=True,
        kv_cache_memory_bytes=2**30,
        block_size=32,
        enable_prefix_caching=True,
    )
    for line in sys.stdin:
        load = json.loads(line)
        prompts = [{"prompt_token_ids": row["prompt_token_ids"]} for row in load]
        params = [
            SamplingParams(
                n=row["n"],
                temperature=1.0,
                max_tokens=row["max_new_tokens"],
                ignore_eos=True,
                detokenize=False,
                logprobs=0,
            )
            for row in load
        ]
        llm.reset_prefix_cache()
        start = time.process_time()
        llm.generate(prompts, params, use_tqdm=False)
        print("RESULT " + json.dumps({"cpu_s": time.process_time() - start}), flush=True)


if __name__ == "__main__":
    main()
