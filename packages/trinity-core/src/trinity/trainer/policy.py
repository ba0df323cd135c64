"""Load a causal language model and score responses with it.

B rows of a micro-batch   P packs   L tokens of a pack   R response   N scored tokens
D width   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trinity.errors import ModelError, NotSupportedYetError
from trinity.trainer.forward import hidden_states
from trinity.trainer.logprobs import EntropyUse, score_tokens
from trinity.trainer.microbatch import ModelInputs, pad_to_width
from trinity.trainer.sharing import find_sharing

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from trinity.trainer.layout import Sharing

MAX_LOGITS = {"cuda": 2**27}  # elements that exist at once; elsewhere 2**24


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a policy is asked for beside log-probabilities, the same on all ranks."""

    entropy: EntropyUse = None
    mean_change: bool = False  # also the mean of S, see score_tokens
    num_passes: int = 0  # of all ranks through the decoder, where they share the weights


PLAIN = Wanted()


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedScores:
    """What the model says about each response token, 0 where none was asked for."""

    logprob_BR: Tensor
    entropy_BR: Tensor | None  # None: not asked for
    mean_change_BR: Tensor | None = None  # None: not asked for


class Policy:
    """A model that scores responses.

    Args:
        module: the transformers model.
        precision: ``bfloat16`` computes in it; the weights stay as they are.
        device: that it computes on; None: the one that its weights are on.

    Attributes:
        keeps_rounded: weights that were rounded to the precision stay so to the end of a pass; a
            policy whose layers have theirs for a moment rounds them each time.
    """

    keeps_rounded = True

    def __init__(
        self, module: PreTrainedModel, *, precision: str, device: torch.device | None = None
    ) -> None:
        self.module = module
        self.device = module.device if device is None else device
        self.precision = precision
        self._head = module.get_output_embeddings()
        self._softcap = getattr(module.config, "final_logit_softcapping", None)
        self._chunk_tokens = max(
            1, MAX_LOGITS.get(self.device.type, 2**24) // module.config.vocab_size
        )

    def states(self, inputs: ModelInputs) -> Tensor:
        """Return ``[N, D]``, the state that each scored token is predicted from."""
        inputs = inputs.to(self.device)
        with self._precision():
            return self.hidden(inputs)[inputs.slots_N]

    def hidden(self, inputs: ModelInputs) -> Tensor:
        """Return ``[slots, D]``, the last state of each slot that ``slots_N`` counts through."""
        return hidden_states(self.body, inputs)

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> PaddedScores:
        """Return each scored token's log-probability at its temperature, and what is wanted."""
        inputs = inputs.to(self.device)
        with self._precision():
            scores = score_tokens(
                self.states(inputs),
                inputs.targets_N,
                inputs.temperature_N,
                head=self._logits,
                chunk_tokens=self._chunk_tokens,
                entropy=wanted.entropy,
                mean_change=wanted.mean_change,
            )
        entropy_N, change_N = scores.entropy_N, scores.mean_change_N
        return PaddedScores(
            logprob_BR=pad_to_width(scores.logprob_N, inputs),
            entropy_BR=None if entropy_N is None else pad_to_width(entropy_N, inputs),
            mean_change_BR=None if change_N is None else pad_to_width(change_N, inputs),
        )

    def idle(self, *, num_passes: int) -> Tensor:
        """Return a 0 that follows from all weights, of as many passes as other ranks make."""
        raise AssertionError(f"a policy that is whole makes no {num_passes} passes for others")

    @torch.no_grad()
    def check_head(self) -> None:
        """Refuse a model whose logits are not those that we compute from its hidden states.

        Raises:
            NotSupportedYetError: it scales or changes them in a way that we do not know.
        """
        tokens_BL = torch.arange(8, device=self.device)[None] % self.module.config.vocab_size
        expected_BLV = self.module(input_ids=tokens_BL, use_cache=False).logits.float()
        hidden_BLD = self.body(input_ids=tokens_BL, use_cache=False).last_hidden_state
        difference_BLV = self._logits(hidden_BLD).float() - expected_BLV
        if difference_BLV.abs().max() > 1e-3 * max(1.0, float(expected_BLV.abs().max())):
            raise NotSupportedYetError(
                f"model type {self.module.config.model_type!r} changes its logits after the output "
                "layer in a way that the trainer does not know. Train a model of another type."
            )

    @cached_property
    def sharing(self) -> Sharing:
        """Return how the model computes rows that begin alike as one; tried when first asked."""
        return find_sharing(self)

    @property
    def body(self) -> nn.Module:
        """Return the decoder without its output layer."""
        body: nn.Module = self.module.base_model
        return body

    def _precision(self) -> torch.autocast:
        """Return the block in which the model computes in its precision."""
        return torch.autocast(
            self.device.type,
            dtype=torch.bfloat16,
            enabled=self.precision == "bfloat16",
            cache_enabled=self.keeps_rounded,
        )

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        logits_NV = self._head(hidden_ND)
        if self._softcap is None:
            return logits_NV
        return torch.tanh(logits_NV / self._softcap) * self._softcap


def dtype_of(precision: str, *, is_trained: bool) -> torch.dtype:
    """Return the type of a model's weights: a frozen one has those that it computes in."""
    return torch.bfloat16 if precision == "bfloat16" and not is_trained else torch.float32


def load_policy(
    model_path: str | Path,
    *,
    device: torch.device,
    precision: str,
    is_trained: bool = True,
    trust_remote_code: bool = False,
    checks_head: bool = True,
) -> Policy:
    """Return the model of a folder or a Hugging Face id, its weights in float32.

    A frozen one (``is_trained=False``) keeps its weights in the precision it computes in. Without
    ``checks_head`` nothing is computed with it.

    Raises:
        ModelError: it cannot be loaded.
        NotSupportedYetError: it changes its logits in a way that we do not know.
    """
    from transformers import AutoModelForCausalLM

    try:
        module: Any = AutoModelForCausalLM.from_pretrained(  # Any: transformers is half typed
            str(model_path),
            dtype=dtype_of(precision, is_trained=is_trained),
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the trainer cannot load model {str(model_path)!r}: {error}. "
            "model.model_path must be a folder or a Hugging Face id of a causal language model."
        ) from error
    module.to(device).eval()  # no dropout: a log-probability is one number
    module.requires_grad_(is_trained)
    policy = Policy(module, precision=precision)
    if checks_head:
        policy.check_head()
    return policy
