"""The processor of logits that vLLM makes with its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from trinity_engine_vllm.structure import row_of

if TYPE_CHECKING:
    from vllm import SamplingParams

    from trinity_engine_vllm.structure import Row

__all__ = ["StructureProcessor"]


class StructureProcessor(AdapterLogitsProcessor):
    """Holds each request that has a structure to it."""

    def is_argmax_invariant(self) -> bool:
        """Return that greedy sampling is held, too."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Row | None:
        """Return what is called with the tokens so far and the logits; None: any text."""
        return row_of(params)
