"""Hold replies to a structure, and tell log-probabilities as if they were not held.

vLLM's own structured decoding bars tokens before either of its log-probabilities is computed, so
these would be those within the structure. Here a processor of logits bars them: what vLLM calls raw
is then before it. What it calls processed is behind it, and lacks the probability that the allowed
tokens have together, which the processor notes for each token.

V: vocabulary
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from trinity.common.generation.own_tokenizer import OwnTokenizer
from trinity.common.generation.structure import Structures
from trinity.errors import ModelError

from trinity_engine_vllm.asked import failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from trinity.common.generation.structure import Compiled
    from trinity.common.ports import GenerationRequest

    from trinity_engine_vllm.logprobs_mode import Mode

__all__ = ["Held", "Row", "row_of", "structures_of", "why_none", "with_processor"]

_ARGUMENT = "trinity_structure"  # in a request's extra_args
_PROCESSOR = "trinity_engine_vllm.structure_processor:StructureProcessor"
_numbers = itertools.count()
_in_process: dict[int, Held] = {}  # what vLLM has, all engines', by number


@dataclass(kw_only=True, slots=True, eq=False)
class Held:
    """A request with a structure while vLLM has it; its rows are told apart by their seeds.

    Attributes:
        request: it.
        compiled: its structure.
        structures: say what may follow.
        mode: which log-probabilities vLLM tells.
        seed: of the first sample; the next ones count on.
    """

    request: GenerationRequest
    compiled: Compiled
    structures: Structures
    mode: Mode
    seed: int
    number: int = field(default_factory=_numbers.__next__)
    shares: dict[int, dict[int, Tensor]] = field(default_factory=dict)  # by seed and place
    fault: Exception | None = None  # why a row could not be held; the other requests go on

    def begin(self) -> dict[str, int]:
        """Let the processor find it; return what vLLM is to tell the processor."""
        _in_process[self.number] = self
        return {_ARGUMENT: self.number}

    def end(self) -> None:
        """Forget it: vLLM has answered, or was told to."""
        _in_process.pop(self.number, None)

    def told(
        self, sample: int, token_ids: Sequence[int], logprobs: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return a reply's tokens and their log-probabilities.

        Args:
            sample: which of the request's.
            token_ids: as vLLM says.
            logprobs: as vLLM says.

        Raises:
            ModelError: the reply cannot match its structure, or was not held to it.
        """
        if self.fault is not None:
            raise failure(self.fault, "hold the reply to its structure")
        self._check(token_ids)
        if self.mode == "processed_logprobs":
            shares = self.shares[self.seed + sample]
            noted = torch.stack([shares[place] for place in range(len(token_ids))]).tolist()
            logprobs = [told + share for told, share in zip(logprobs, noted, strict=False)]
        return tuple(token_ids), tuple(logprobs)

    def _check(self, token_ids: Sequence[int]) -> None:
        matcher = self.compiled.matcher()
        for token in token_ids:
            matcher.consume_token(token)
            if matcher.is_error():
                raise ModelError(
                    f"the reply cannot continue within its structure: {matcher.get_error()}"
                )


class Row:
    """Bars, in the logits of one sample, the tokens that lead out of the structure.

    Args:
        held: the request that it is a sample of.
        seed: its own.
    """

    def __init__(self, held: Held, *, seed: int) -> None:
        self._held = held
        self._shares = held.shares.setdefault(seed, {})
        self._heat = held.request.temperature or 1.0
        self._matcher: Any = None  # Any: of llguidance
        self._num_read = 0

    def __call__(self, output_ids: Sequence[int], logits_V: Tensor) -> Tensor:
        """Return the logits, float32, with -inf for what is barred.

        Args:
            output_ids: said so far.
            logits_V: before the temperature.
        """
        if self._held.fault is None:
            try:
                return self._barred(output_ids, logits_V)
            except Exception as error:  # noqa: BLE001 -- of this request; told with its answer
                self._held.fault = error
        return logits_V

    def _barred(self, output_ids: Sequence[int], logits_V: Tensor) -> Tensor:
        self._read(output_ids)
        (allowed_V,) = self._held.structures.allowed([self._matcher])
        held_V = logits_V.masked_fill(~allowed_V.to(logits_V.device), float("-inf"))
        if self._held.mode == "processed_logprobs":
            free, within = ((one_V / self._heat).logsumexp(-1) for one_V in (logits_V, held_V))
            self._shares[len(output_ids)] = within - free
        return held_V

    def _read(self, output_ids: Sequence[int]) -> None:
        if self._matcher is None or self._num_read > len(output_ids):
            self._matcher, self._num_read = self._held.compiled.matcher(), 0
        for token in output_ids[self._num_read :]:
            self._matcher.consume_token(token)
        self._num_read = len(output_ids)


def row_of(params: Any) -> Row | None:  # Any: vLLM's
    """Return what holds a sample; None: it has no structure."""
    number: int = (params.extra_args or {}).get(_ARGUMENT, -1)
    held = _in_process.get(number)  # absent: it was given up
    return None if held is None else Row(held, seed=params.seed)


def why_none(arguments: Mapping[str, Any], *, is_cpu: bool) -> str:
    """Return why an engine can hold no reply to a structure; empty: it can.

    Args:
        arguments: of ``vllm.LLM`` (Any: each its own type).
        is_cpu: vLLM computes on a CPU.
    """
    second = os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "0" if is_cpu else "1").lower()
    if second not in {"0", "false"}:
        return (
            "vLLM's second model runner, which it takes on GPUs, has no place for what bars "
            "tokens behind the log-probabilities; set VLLM_USE_V2_MODEL_RUNNER: '0' in "
            "explorer.env_vars"
        )
    if arguments.get("speculative_config"):
        return "vLLM bars no tokens so beside extra_engine_args.speculative_config; leave that out"
    if arguments.get("tensor_parallel_size", 1) > 1:
        return "tensor_parallel_size is above 1, and what bars tokens works with 1 only"
    return ""


def with_processor(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM`` with the processor among them."""
    return {**arguments, "logits_processors": [*arguments.get("logits_processors", ()), _PROCESSOR]}


def structures_of(engine: Any) -> Structures:  # Any: vLLM's
    """Return what compiles the structures of an engine's requests."""
    config, reads = engine.vllm_config.model_config, engine.input_processor
    named = reads.generation_config_fields.get("eos_token_id")
    ends = {reads.renderer.get_eos_token_id()}
    ends |= {named} if isinstance(named, int) else {*(named or ())}
    is_end_V = torch.zeros(config.get_vocab_size(), dtype=torch.bool)
    is_end_V[[token for token in ends if token is not None and token < len(is_end_V)]] = True
    tokenizer = OwnTokenizer(config.model, trust_remote_code=config.trust_remote_code)
    return Structures(is_end_V, tokenizer=tokenizer)
