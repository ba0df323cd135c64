"""Trinity's requests as vLLM's sampling parameters, and vLLM's outputs as completions."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Completion, WeightVersion
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.ports import GenerationRequest

    from trinity_engine_vllm.structure import Held

__all__ = ["completions", "parameters", "seed_of"]


def parameters(
    request: GenerationRequest, *, seed: int, version: WeightVersion, max_model_len: int
) -> dict[str, Any]:
    """Return the keyword arguments of vLLM's ``SamplingParams``, but for the kind of output.

    Args:
        request: it.
        seed: of the engine.
        version: of the weights: a request that is made again after an update draws anew.
        max_model_len: bounds the reply.
    """
    room = max_model_len - len(request.prompt_token_ids)
    most = min(request.max_new_tokens, room)
    return {
        "n": request.n if request.temperature > 0 else 1,  # greedy samples are all the same one
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k if request.top_k > 0 else 0,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "logit_bias": dict(request.logit_bias) or None,
        "max_tokens": most,
        "min_tokens": 0 if request.structure else min(request.min_new_tokens, most),
        "ignore_eos": request.ignore_eos and not request.structure,  # which ends with one
        "stop": list(request.stop) or None,
        "stop_token_ids": list(request.stop_token_ids) or None,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,  # a special token counts as its text
        "detokenize": bool(request.stop),
        "seed": seed_of(request, seed=seed, version=version),
        "logprobs": 0,  # that of the sampled token
        "flat_logprobs": True,
    }


def seed_of(request: GenerationRequest, *, seed: int, version: WeightVersion) -> int:
    """Return the seed of a request's samples: a function of its key, 0 to 2**63 - 1."""
    key = request.drawn_by
    name = (seed, key.batch, key.task, key.run, key.request, key.draw, int(version))
    return int.from_bytes(hashlib.sha256(repr(name).encode()).digest()[:8], "little") >> 1


def completions(
    output: Any,  # Any: vLLM's
    *,
    n: int,
    spans: Callable[[int], Sequence[tuple[int, int]]],
    held: Held | None = None,
) -> list[Completion]:
    """Return the ``n`` completions of a finished request, in the order of its samples.

    Args:
        output: the request's.
        n: how many were asked for; a greedy one was sampled once.
        spans: gives ``(first token, version)`` of each stretch of a sample.
        held: what held it to its structure; None: it has none.

    Raises:
        ModelError: a log-probability is no number: training diverged; or a reply cannot match its
            structure.
    """
    outputs = sorted(output.outputs, key=lambda one: one.index)
    made = [_completion(one, spans=spans(one.index), held=held) for one in outputs]
    return made if len(made) == n else made * n


def _completion(
    output: Any,  # Any: vLLM's
    *,
    spans: Sequence[tuple[int, int]],
    held: Held | None,
) -> Completion:
    token_ids, logprobs = tuple(output.token_ids), tuple(output.logprobs.logprobs)
    is_ended = output.finish_reason != "length"
    if held is not None:
        token_ids, logprobs = held.told(output.index, token_ids, logprobs)
    if math.isnan(math.fsum(logprobs)):
        raise ModelError(
            f"the model computes NaN with policy version {spans[-1][1]}: training diverged. "
            f"Return to an earlier checkpoint, and lower algorithm.optimizer.lr."
        )
    spans = [span for span in spans if span[0] < len(token_ids)] or spans[:1]
    reason = output.stop_reason
    return Completion(
        token_ids=token_ids,
        logprobs=logprobs,
        finish_reason="stop" if is_ended else "length",
        weight_version=WeightVersion(spans[0][1]),
        stop_reason=reason if isinstance(reason, str) else None,
        version_spans=tuple(spans) if len(spans) > 1 else (),
    )
