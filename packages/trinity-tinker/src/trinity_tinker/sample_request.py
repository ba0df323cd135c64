"""What a request for samples asks for, read from its JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.ports import GenerationRequest, RunKey

from trinity_tinker.fields import number, parsed, whole
from trinity_tinker.refusal import Refused
from trinity_tinker.tensors import Cells, cells_of_json

if TYPE_CHECKING:
    from trinity_tinker.base_model import BaseModel
    from trinity_tinker.store import Request

__all__ = ["MAX_SAMPLES", "SAMPLE_FIELDS", "SampleRequest", "read_sample_request"]

MAX_SAMPLES = 4096  # of one request; each is named in its answer
_MAX_SCORES = 2**26  # log-probabilities in one answer, beside the tokens' own: up to 12 bytes each
SAMPLE_FIELDS: dict[str, Any] = {
    "prompt": dict,
    "sampling_params": dict,
    "num_samples": 1,
    "sampling_session_id": None,
    "seq_id": None,
    "base_model": None,
    "model_path": None,
    "prompt_logprobs": False,
    "topk_prompt_logprobs": 0,
    "topk_sample_logprobs": 0,
    "target_prompt_logprobs": None,
    "prompt_alt_tokens_k": 0,
    "prompt_logprobs_last_n": None,
    "record_stability_info": False,
}
_PARAMS = {
    "max_tokens": None,
    "seed": None,
    "stop": None,
    "temperature": 1.0,
    "top_k": -1,
    "top_p": 1.0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """What a request asks for, beside the samples."""

    generation: GenerationRequest
    has_prompt_logprobs: bool
    top_prompt: int
    top_sampled: int
    targets: Cells | None
    last: int  # tokens of the prompt that are scored


def read_sample_request(
    body: dict[str, Any], *, base: BaseModel, request: Request
) -> SampleRequest:
    """Return what a body of ``SAMPLE_FIELDS`` asks of a base model (Any: of a client).

    Raises:
        Refused: it asks for what there is not, or for too much.
    """
    if body["record_stability_info"]:
        raise Refused("record_stability_info is not implemented here.")
    if body["prompt_alt_tokens_k"]:
        raise Refused("prompt_alt_tokens_k is not implemented here.")
    prompt = _prompt(body["prompt"])
    last = body["prompt_logprobs_last_n"]
    is_fitting = isinstance(last, int) and 1 <= last < len(prompt)
    if last is not None and not (body["prompt_logprobs"] and is_fitting):
        raise Refused(
            f"prompt_logprobs_last_n is {last}; it is from 1 to the tokens of the prompt but one, "
            f"and needs prompt_logprobs."
        )
    targets = None
    if body["target_prompt_logprobs"] is not None:
        targets = cells_of_json(body["target_prompt_logprobs"], name="target_prompt_logprobs")
        if len(targets.shape) != 2 or targets.shape[0] != len(prompt) - 1:
            raise Refused("target_prompt_logprobs has a row for each token of the prompt but one.")
        if targets.values_C.size and targets.values_C.max() >= base.vocab:
            raise Refused(f"target_prompt_logprobs has a token above {base.vocab - 1}.")
    generation = _generation(body, prompt, base=base, request=request)
    top_prompt = whole(body, "topk_prompt_logprobs", least=0, most=base.vocab)
    top_sampled = whole(body, "topk_sample_logprobs", least=0, most=base.vocab)
    num_scores = 0 if targets is None else targets.values_C.size
    num_scores += top_prompt * len(prompt)
    num_scores += top_sampled * generation.n * generation.max_new_tokens
    if num_scores > _MAX_SCORES:
        raise Refused(
            f"topk_prompt_logprobs, topk_sample_logprobs and target_prompt_logprobs ask for "
            f"{num_scores} log-probabilities; an answer has up to {_MAX_SCORES} of them."
        )
    return SampleRequest(
        generation=generation,
        has_prompt_logprobs=bool(body["prompt_logprobs"]),
        top_prompt=top_prompt,
        top_sampled=top_sampled,
        targets=targets,
        last=len(prompt) - 1 if last is None else last,
    )


def _prompt(given: dict[str, Any]) -> tuple[int, ...]:
    tokens: list[int] = []
    chunks = given.get("chunks", ())
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        raise Refused("the chunks of the prompt are no list of objects.")
    for chunk in chunks:
        kind = chunk.get("type", "encoded_text")
        if kind != "encoded_text":
            raise Refused(f"the prompt has a chunk of {kind}; only text is known here.")
        found = chunk.get("tokens")
        if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
            raise Refused("a chunk of the prompt has no list of token ids.")
        tokens += found
    return tuple(tokens)


def _generation(
    body: dict[str, Any], prompt: tuple[int, ...], *, base: BaseModel, request: Request
) -> GenerationRequest:
    given = parsed(json.dumps(body["sampling_params"]).encode(), **_PARAMS)
    stop = given["stop"]
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(one, str | int) for one in stops):
        raise Refused(f"stop is {stop!r:.80}; it is a text, or a list of texts or token ids.")
    seed = given["seed"]
    key = RunKey(batch=request.scope, request=request.seq)
    longest = base.max_length - len(prompt)
    return GenerationRequest(
        prompt_token_ids=prompt,
        key=key if seed is None else RunKey(batch=f"seed/{seed}"),
        n=whole(body, "num_samples", least=1, most=MAX_SAMPLES),
        temperature=number(given, "temperature", least=0.0),
        top_p=number(given, "top_p", least=0.0),
        top_k=whole(given, "top_k", least=-1),
        max_new_tokens=longest
        if given["max_tokens"] is None
        else whole(given, "max_tokens", least=0),
        ignore_eos=stop is not None and not stops,
        stop=tuple(one for one in stops if isinstance(one, str)),
        stop_token_ids=tuple(one for one in stops if not isinstance(one, str)),
    )
