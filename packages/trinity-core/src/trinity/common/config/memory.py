"""Bytes that a GPU holds, at rest and at the peak of a train step, computed from the model's shape.

With P parameters, N ranks, T tokens of a micro-batch, L layers, h hidden numbers, V entries of the
vocabulary (numbers are bytes; measured on a device that counts them, see docs/explanation/gpus.md):

    at rest    12 P, and 4 P of a reference model (2 P with bfloat16); with fsdp2 divided by N
    gradients  4 P, with fsdp2 divided by N
    rounded    2 P with bfloat16 where nothing is recomputed; with fsdp2 none
    gathered   with fsdp2: embedding and output layer with their gradient, two layers with one:
               8 R + 12 P/L with float32, 4 R + 8 P/L with bfloat16 (R in the former, P/L a layer)
    layer      T (32 h + 16 m) with float32, times 0.62 with bfloat16; m numbers are in the MLP
    logits     14 min(2^27, T V)

A step holds all of them, and the layer L times. Where layers are recomputed it holds 4 T L h, and
the logits, or gradients and one layer, whichever is more; with fsdp2 and bfloat16 the layers, and
the logits or the gradients.

With a parameters of adapters (LoRA) the P parameters are frozen, in the precision computed in, and
are the reference model, too: at rest 2 P or 4 P (with fsdp2 divided by N) and 12 a, gradients 4 a,
nothing rounded; gathered are weights alone, twice a layer's and R.

A critic is a model of its own without an output layer: 12 P at rest. Its step comes before the
policy's: it has gradients and layers as above, and no logits. The peak is that of either step.

``param_offload`` takes weights away between steps, ``optimizer_offload`` the 8 P of states but in
the update, which has gradients and nothing of a pass; ``offload_policy`` (fsdp2) all but adapters,
what is gathered and activations.

Left out, and reserved as a part of each GPU: CUDA's context, NCCL's buffers, fragmentation.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RESERVED_BYTES = 2.0e9  # of a GPU: CUDA's context and NCCL's buffers
USABLE = 0.92  # of the rest: what fragments is lost
_OF_BFLOAT16 = 0.62  # of an activation's bytes: half of most, all of norms and soft-maxes
_RECOMPUTED = 4
_MOST_TOKENS = 2**24
_LOGITS_AT_ONCE = 2**27  # numbers; the loss computes them in parts
_MOST = 10**9  # a size beyond it is a mistake
_SIZES = (
    *("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"),
    "num_attention_heads",
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_IF_GIVEN = (
    *("head_dim", "num_key_value_heads", *_EXPERTS, "num_experts_per_tok", "n_shared_experts"),
    *("moe_intermediate_size", "shared_expert_intermediate_size", "first_k_dense_replace"),
)
OFFLOADS = ("param_offload", "optimizer_offload", "offload_policy")
SAME_NAMES = ("fsdp_size", "precision", *OFFLOADS)  # in ``trainer`` and in TrainerMemory
#: model types with one matrix for both, which their config.json does not say
_TIED = ("cohere", "ernie4_5", "gemma", "lfm2", "smollm3", "starcoder2")
#: latent attention, and experts in some layers alone: whoever sets them is not planned
_NOT_COUNTED = (
    *("kv_lora_rank", "decoder_sparse_step", "moe_layer_freq", "mlp_only_layers"),
    *("interleave_moe_layer_step", "expert_layer_period"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """What of a decoder's ``config.json`` decides how much memory it takes."""

    parameters: int
    active: int  # that a token goes through: no idle experts, no embedding that is looked up
    num_layers: int
    hidden: int
    mlp: int  # hidden numbers of a layer's MLP, of all experts that a token goes to
    vocab: int
    root: int  # parameters of embedding and output layer
    cache_numbers: int  # keys and values of one token in all layers

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ModelShape | None:
        """Return the shape; None: ``config.json`` does not give it as decoders do.

        >>> ModelShape.of({"hidden_size": 896, "num_hidden_layers": 24, "vocab_size": 151936,
        ...     "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2,
        ...     "tie_word_embeddings": True, "model_type": "qwen2"}).parameters
        494032768
        """
        sizes: list[Any] = [settings.get(name) for name in _SIZES]  # Any: json
        if not all(map(_is_size, [*sizes, *(settings.get(name) or 1 for name in _IF_GIVEN)])):
            return None
        hidden, layers, vocab, width, heads = sizes
        mlp = _mlp_parameters(settings, layers=layers, hidden=hidden, width=width)
        if mlp is None:
            return None
        head = settings.get("head_dim") or hidden // heads
        kv = head * int(settings.get("num_key_value_heads") or heads)
        query, embedding = head * heads, vocab * hidden
        is_tied = settings.get("tie_word_embeddings")
        if is_tied is None:
            is_tied = str(settings.get("model_type")).startswith(_TIED)
        root = embedding * (1 if is_tied is True else 2)
        biases = query + 2 * kv if settings.get("model_type") in {"qwen2", "qwen2_moe"} else 0
        attention = 2 * hidden * query + 2 * hidden * kv + biases
        parameters = layers * (attention + 2 * hidden) + mlp[0] + root + hidden
        return cls(
            parameters=parameters,
            active=parameters - mlp[1] - (root - embedding),
            num_layers=layers,
            hidden=hidden,
            mlp=mlp[2],
            vocab=vocab,
            root=root,
            cache_numbers=2 * layers * kv,
        )


def _mlp_parameters(
    settings: Mapping[str, Any], *, layers: int, hidden: int, width: int
) -> tuple[int, int, int] | None:
    """Return those of all layers, those that a token does not go to, and ``ModelShape.mlp``.

    None: it is not known how many experts there are, or in which layers.
    """
    experts = next((settings[name] for name in _EXPERTS if settings.get(name)), 1)
    chosen: Any = settings.get("num_experts_per_tok") if experts > 1 else 1  # Any: json
    of_expert: Any = settings.get("moe_intermediate_size")
    is_known = chosen and (experts > 1 or not of_expert)
    if not is_known or any((settings.get(name) or 1) != 1 for name in _NOT_COUNTED):
        return None
    of_expert = of_expert or width
    shared = (settings.get("n_shared_experts") or 0) * of_expert
    shared += settings.get("shared_expert_intermediate_size") or 0
    dense = min(layers, settings.get("first_k_dense_replace") or 0)
    mixed, choices = layers - dense, experts if experts > 1 else 0
    numbers = dense * width + mixed * (experts * of_expert + shared)
    idle = mixed * (experts - chosen) * of_expert
    total = 3 * hidden * numbers + hidden * mixed * choices
    return total, 3 * hidden * idle, chosen * of_expert + shared


def adapter_parameters(shape: ModelShape, rank: int) -> int:
    """Return how many parameters LoRA adapters of all linear layers have, about.

    Two factors of each matrix: the rank times its rows and columns.
    """
    keys = shape.cache_numbers // (2 * shape.num_layers)
    sides = 4 * shape.hidden + 2 * (shape.hidden + keys) + 3 * (shape.hidden + shape.mlp)
    return rank * shape.num_layers * sides


def _is_size(number: object) -> bool:
    return type(number) is int and 0 < number < _MOST


def known_shape(model_path: str) -> ModelShape | None:
    """Return the shape of a published model by its name, where its files are not at hand.

    >>> known_shape("Qwen/Qwen2.5-7B-Instruct").parameters
    7615616512
    """
    return ModelShape.of(known_settings(model_path))


def known_settings(model_path: str) -> dict[str, Any]:
    """Return what ``config.json`` of a published model says; empty: its name is not known.

    Of a variant, as ``qwen2.5-7b-instruct-1m``, the number of positions is not known.
    """
    name = Path(model_path).name.lower()
    known = json.loads(Path(__file__).with_name("known_models.json").read_text("utf-8"))
    found = max((one for one in known if f"{name}-".startswith(f"{one}-")), key=len, default="")
    left_out = () if name == found else ("max_position_embeddings",)
    return {key: value for key, value in known.get(found, {}).items() if key not in left_out}


def published_settings(model_path: str) -> dict[str, Any]:
    """Return `known_settings` of a model's publisher; empty: a model of others may differ."""
    return known_settings(model_path) if model_path.startswith("Qwen/") else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerMemory:
    """How the trainer holds the model; its bytes on each GPU."""

    shape: ModelShape
    strategy: str = "ddp"
    num_ranks: int = 1
    fsdp_size: int = -1
    precision: str = "float32"
    recomputes: bool = False
    has_reference: bool = False
    adapters: int = 0  # parameters of LoRA's, which alone are trained; 0: all of the model are
    critic: ModelShape | None = None  # of a critic, all of which is trained
    param_offload: bool = False
    optimizer_offload: bool = False
    offload_policy: bool = False

    @property
    def offloads(self) -> set[str]:
        """Return those of ``OFFLOADS`` that move something: the last where ranks share weights."""
        known = OFFLOADS[2:] if self.is_sharded else OFFLOADS[:2]
        return {name for name in known if getattr(self, name)}

    @property
    def at_rest(self) -> float:
        """Return the bytes between steps: weights, two Adam states, the reference model."""
        return self._held(self.offloads)

    @property
    def in_passes(self) -> float:
        """Return how many of these are there while a step's gradients are computed."""
        return self._held(self.offloads - {"param_offload"})

    def _held(self, offloads: set[str]) -> float:
        has_weights = "param_offload" not in offloads
        trained = 4 * has_weights + 8 * ("optimizer_offload" not in offloads)
        frozen = has_weights * (2 if self.precision == "bfloat16" else 4)
        frozen *= bool(self.adapters) or self.has_reference  # one copy is both
        model = (frozen + (0 if self.adapters else trained)) * self.shape.parameters
        model *= "offload_policy" not in offloads
        critic = self._critic._held(offloads) if self._critic else 0
        return model / self.num_shards + trained * self.adapters + critic

    @property
    def state(self) -> float:
        """Return the bytes of weights, gradients and optimizer states, of all ranks together."""
        whole = replace(self, strategy="ddp", has_reference=False, critic=None)
        return whole._held(set()) + 4 * (self.adapters or self.shape.parameters)

    def default_strategy(self, gpu_bytes: int) -> str:
        """Return fsdp2 where ranks had better share: four copies do not fit into a GPU."""
        can_share = self.num_ranks > 1 and self.critic is None
        return "fsdp2" if can_share and 4 * self.state > gpu_bytes else "ddp"

    def peak(self, tokens: int, *, scored: int | None = None) -> float:
        """Return the bytes at the peak of a step with micro-batches of so many tokens.

        ``scored`` of them are those that a loss reads, as of responses; None: all.
        """
        if self._critic:
            policy = replace(self, critic=None)
            of_policy = policy.peak(tokens, scored=scored) + self._critic.in_passes
            return max(of_policy, policy.in_passes + self._critic.peak(tokens, scored=0))
        shape, is_rounded = self.shape, self.precision == "bfloat16"
        layers, num, offloads = shape.parameters - shape.root, shape.num_layers, self.offloads
        gradients, rounded, gathered = 4.0 * shape.parameters, 2.0 * shape.parameters, 0.0
        if self.is_sharded:
            gradients, rounded = 0.0 if offloads else gradients / self.num_shards, 0.0
            root, layer = (4.0, 8.0) if is_rounded else (8.0, 12.0)
            gathered = root * shape.root + layer * layers / num
            if self.adapters:  # no gradients of it
                gathered = root / 2 * (shape.root + 2 * layers / num)
        if self.adapters:
            gradients, rounded = 4.0 * self.adapters, 0.0
        logits = 14.0 * min(_LOGITS_AT_ONCE, (tokens if scored is None else scored) * shape.vocab)
        layer = tokens * (32 * shape.hidden + 16 * shape.mlp) * (_OF_BFLOAT16 if is_rounded else 1)
        if self.recomputes:  # logits are gone before the gradients are all there
            kept = tokens * num * _RECOMPUTED * shape.hidden
            held = kept + max(logits, gradients + layer)
        elif self.is_sharded and is_rounded:  # activations go while gradients come
            held = num * layer + max(logits, gradients)
        else:
            held = gradients + (rounded if is_rounded else 0.0) + num * layer + logits
        update = self._held(offloads & {"offload_policy"}) + gradients
        return max(self.in_passes + gathered + held, update)

    def most_tokens(self, room: float) -> int:
        """Return the largest micro-batch whose peak is within ``room`` bytes; 0: none is."""
        return max(0, bisect_right(range(_MOST_TOKENS), room, key=self.peak) - 1)

    @property
    def _critic(self) -> TrainerMemory | None:
        """Return how the critic is held: whole on each rank, in the policy's precision."""
        if self.critic is None:
            return None
        embedding = self.critic.vocab * self.critic.hidden
        body = self.critic.parameters - self.critic.root + embedding  # it has no output layer
        shape = replace(self.critic, parameters=body, root=embedding)
        alone = replace(self, strategy="ddp", has_reference=False, adapters=0)
        return replace(alone, shape=shape, critic=None)

    @property
    def is_sharded(self) -> bool:
        """Return whether each rank holds a part of the weights."""
        return self.num_shards > 1

    @property
    def num_shards(self) -> int:
        """Return how many ranks share one copy of the weights."""
        size = self.num_ranks if self.fsdp_size < 1 else min(self.fsdp_size, self.num_ranks)
        return size if self.strategy in {"fsdp", "fsdp2"} else 1


def engine_bytes(shape: ModelShape, *, dtype: str, width: int = 1) -> float:
    """Return the bytes of an engine's weights on each of the GPUs that it spreads over."""
    return shape.parameters * (4 if dtype == "float32" else 2) / width


def cache_tokens(shape: ModelShape, room: float, *, dtype: str, width: int = 1) -> int:
    """Return how many tokens of keys and values fit into ``room`` bytes of each GPU."""
    size = 4 if dtype == "float32" else 2
    return max(0, math.floor(room * width / (shape.cache_numbers * size)))


def usable(gpu_bytes: float) -> float:
    """Return what of a GPU's memory a plan may use."""
    return max(0.0, gpu_bytes - RESERVED_BYTES) * USABLE
