"""Replace the weights of a model that vLLM holds, all or none, and see that they are in use.

B: 1   H width   V vocabulary
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from trinity.common.config.model import model_file
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

__all__ = ["Loader", "difference", "embedding_name", "repack_output"]

_TOLERANCE = 1e-2  # of the largest logit of the row that is compared


class Loader:
    """Loads snapshots into one engine; owned by the engine's thread.

    Args:
        engine: vLLM's ``LLMEngine``, in this process.
        is_cpu: a CPU packs linear layers, the output layer of a tied model apart.
    """

    def __init__(self, engine: Any, *, is_cpu: bool) -> None:  # Any: vLLM's
        self._engine = engine
        self._is_cpu = is_cpu
        config = engine.vllm_config.model_config.hf_text_config
        self._is_tied = bool(getattr(config, "tie_word_embeddings", False))
        self._is_checked = not self._is_tied
        self._names = _stored_names(engine.vllm_config.model_config.model)
        self.is_whole = True  # all weights are of one version

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the weights; what vLLM keeps of texts, which the old ones made, is dropped.

        It computes the texts of running requests anew before it goes on with them.

        Args:
            tensors: each is read once, in their order.

        Raises:
            ModelError: they are of another model, or the output layer kept the old ones.
        """
        self._check_names(tensors)
        embedding = None if self._is_checked else embedding_name(tensors)
        kept: dict[str, Tensor] = {}

        def read() -> Iterator[tuple[str, Tensor]]:
            for name, tensor in tensors.items():
                if name == embedding:
                    kept[name] = tensor
                yield name, tensor

        self.is_whole = False
        _wait_for_gpu()  # the trainer, another thread, may still compute the tensors
        self._replace(read())
        _wait_for_gpu()  # the trainer may use their memory for others once they are let go of
        # Without the argument, vLLM drops nothing while a request runs, and says so in a log only.
        self._engine.reset_prefix_cache(reset_running_requests=True)
        if not self._is_checked:
            self._check_output([] if embedding is None else self._differences(embedding, kept))
        self.is_whole = True

    def _replace(self, tensors: Iterator[tuple[str, Tensor]]) -> None:
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": tensors})
        if self._is_cpu:
            self._engine.apply_model(repack_output)

    def _differences(self, name: str, kept: Mapping[str, Tensor]) -> list[float]:
        """Return how far the output layer is from the embedding of this name."""
        found: list[float] = self._engine.apply_model(lambda model: difference(model, kept[name]))
        return found

    def _check_names(self, tensors: Mapping[str, Tensor]) -> None:
        """Compare the names with the stored model's: vLLM's own are of layers that it fused."""
        tied = {"lm_head.weight"} if self._is_tied else set()
        wrong = sorted((self._names ^ set(tensors)) - tied)
        if self._names and wrong:
            what = "lacks the weight" if wrong[0] in self._names else "holds a weight"
            raise ModelError(
                f"the snapshot {what} {wrong[0]!r}, unlike the engine's model ({len(wrong)} such). "
                f"Trainer and engine need the same model_path."
            )

    def _check_output(self, differences: Sequence[float]) -> None:
        for off in differences:
            if not off <= _TOLERANCE:
                raise ModelError(
                    f"after new weights the output layer of this tied model is not its embedding "
                    f"(off by {off:.2g} of the largest logit): vLLM would sample with old "
                    f"weights. Use engine_type transformers, or a model with "
                    f"tie_word_embeddings: false."
                )
        self._is_checked = bool(differences)


def _wait_for_gpu() -> None:
    """Wait for all streams: vLLM's thread has one of its own, the trainer's computes in another."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def embedding_name(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the embedding; None: there is none."""
    return next((name for name in tensors if name.endswith("embed_tokens.weight")), None)


def _stored_names(model_path: str) -> frozenset[str]:
    """Return the names of a model's weights as they are stored; empty: nobody knows."""
    index = model_file(model_path, "model.safetensors.index.json")
    if index is not None:
        return frozenset(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    file = model_file(model_path, "model.safetensors")
    if file is None:
        return frozenset()
    with safe_open(file, framework="pt") as stored:
        return frozenset(stored.keys())


def repack_output(model: nn.Module) -> None:
    """Pack the output layer anew: vLLM leaves a tied one as it was."""
    output: Any = getattr(model, "lm_head", None)
    if output is not None and getattr(output, "quant_method", None) is not None:
        output.quant_method.process_weights_after_loading(output)


@torch.no_grad()
def difference(model: Any, embedding_VH: Tensor) -> float:  # Any: vLLM's model
    """Return how far the logits of one made-up state are from those of the embedding."""
    generator = torch.Generator().manual_seed(0)
    state_BH = torch.randn(1, embedding_VH.shape[1], generator=generator)
    own = model.model.embed_tokens.weight
    state_BH = state_BH.to(device=own.device, dtype=own.dtype)
    given_BV = model.compute_logits(state_BH)
    if given_BV is None:  # another worker has them
        return 0.0
    given_V = given_BV[0].float()
    wanted_V = (state_BH @ embedding_VH.to(state_BH).T)[0].float()
    scale = (given_V @ wanted_V) / (wanted_V @ wanted_V)  # some models scale their logits
    return float((given_V - scale * wanted_V).abs().max() / given_V.abs().max())
