"""Load the models of a trainer, as its ranks have them.

one process, ddp    each rank reads the model
fsdp2               the first reads it, and gives each its shards (``fsdp.py``)

A model that is sharded is whole on no rank. How rows with a common prefix may be computed as one,
and whether its attention can be exchanged, follow from its layers' kinds alone: so they are tried
on a proxy model, a small one with layers of the same kinds.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from trinity.errors import ConfigError, ModelError, NotSupportedYetError
from trinity.trainer.lora import Adapters
from trinity.trainer.policy import Policy
from trinity.trainer.sharing_trial import find_prefix_sharing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.common.config.model import LoRAConfig
    from trinity.trainer.ranks import Ranks

NUM_TOKENS = 16  # of a proxy's vocabulary: the trials use the first eight
MIN_LAYERS = 2
SPREAD = 1.6  # of a random weight, by the root of the width: attention then differs by token


class ModelLoader:
    """Loads models, and says how the ranks have them.

    Args:
        config: a resolved configuration.
        model_path: the model that is trained, and the reference.
        ranks: the processes that train it.
    """

    def __init__(self, config: Config, *, model_path: str, ranks: Ranks) -> None:
        self._config = config
        self._model_path = model_path
        self._ranks = ranks
        self._precision = config.trainer.precision
        self._may_run_code = config.model.trust_remote_code
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def trained(self) -> tuple[Policy, Adapters | None]:
        """Return the model that is trained, and its adapters; all ranks ask at once.

        Raises:
            ConfigError: its heads do not divide by the ranks of a sequence; or several adapters.
            ModelError: it cannot be loaded.
            NotSupportedYetError: it cannot be what the configuration asks for.
        """
        lora = self._config.model.lora_configs
        if lora and len(lora) > 1:
            raise ConfigError(
                f"model.lora_configs has {len(lora)} entries, and this trainer trains one adapter. "
                f"Use trainer.trainer_type: multi_lora (package trinity-tinker), or one entry."
            )
        if self._ranks.is_sharded:
            return self._load_sharded(is_trained=True, lora=lora[0] if lora else None)
        policy = self.load(self._model_path, is_trained=not lora)
        adapters = None
        if lora:
            adapters = Adapters(policy.module, lora[0])
            policy = self._with_checkpointing(policy, is_trained=True)
        self._try_prefix_sharing(policy)
        return self._with_sequence_parallelism(policy), adapters

    def reference(self) -> Policy:
        """Return the frozen model that training began with, as the ranks have it."""
        if self._ranks.is_sharded:
            return self._load_sharded(is_trained=False)[0]
        return self._with_sequence_parallelism(self.load(self._model_path, is_trained=False))

    def load(
        self, model_path: str, *, is_trained: bool = True, device: torch.device | None = None
    ) -> Policy:
        """Return a model that this rank holds alone.

        Args:
            model_path: folder or id.
            is_trained: False: it is frozen.
            device: where it is, and nothing is computed; None: where the trainer computes.
        """
        policy = load_policy(
            model_path,
            device=self.device if device is None else device,
            precision=self._precision,
            is_trained=is_trained,
            trust_remote_code=self._may_run_code,
            checks_head=device is None,
        )
        return self._with_checkpointing(policy, is_trained=is_trained)

    def _with_checkpointing(self, policy: Policy, *, is_trained: bool) -> Policy:
        if is_trained and self._config.trainer.gradient_checkpointing:
            policy.enable_checkpointing()
        return policy

    def _try_prefix_sharing(self, policy: Policy) -> None:
        how = self._config.trainer.prefix_sharing
        if how != "off":
            find_prefix_sharing(policy, is_required=how == "on")

    def _with_sequence_parallelism(self, policy: Policy) -> Policy:
        """Return the policy as the ranks of a sequence share it, once it was tried."""
        if self._ranks.sp_group is None:
            return policy
        from trinity.trainer.ulysses import try_ulysses

        return try_ulysses(policy, group=self._ranks.sp_group)

    def _load_sharded(
        self, *, is_trained: bool, lora: LoRAConfig | None = None
    ) -> tuple[Policy, Adapters | None]:
        """Return a model of which each rank has shards, and which none but the first has read.

        Its adapters are whole on each rank, with the numbers of the first.
        """
        from trinity.trainer import fsdp

        read: list[Policy] = []  # by the first rank
        has_gradients = is_trained and lora is None

        def read_whole() -> None:
            cpu = torch.device("cpu")
            read.append(self.load(self._model_path, is_trained=has_gradients, device=cpu))
            if lora is not None:
                Adapters(read[0].module, lora)

        self._ranks.on_rank_zero(read_whole)
        source: Any = read[0].module if read else None  # Any: transformers is half typed
        configs: list[Any] = []
        self._ranks.on_each_rank(lambda: configs.append(self._model_config()))
        settings = fsdp.settings_of(configs[0])
        facts = {} if source is None else fsdp.facts_of(source)
        first = self._ranks.broadcast_json(facts | {"settings": settings})
        self._ranks.on_each_rank(lambda: fsdp.refuse_other_settings(settings, first["settings"]))
        sharing = self._tried_proxy(configs[0], is_trained=is_trained).sharing
        module = fsdp.meta_model(
            configs[0],
            dtype=dtype_of(self._precision, is_trained=has_gradients),
            is_tied=first["is_tied"],
            trust_remote_code=self._may_run_code,
        )
        module.requires_grad_(has_gradients)
        adapters = None if lora is None else Adapters(module, lora)
        self._ranks.on_each_rank(lambda: fsdp.refuse_other_layout(module, first["layout"]))
        policy = Policy(module, precision=self._precision, device=self.device)
        policy.sharing = sharing
        own = [] if adapters is None else adapters.parameters
        policy = self._with_checkpointing(policy, is_trained=is_trained)
        policy = self._sharded(policy, adapters=own)
        fsdp.fill(module, source, ranks=self._ranks, device=self.device)
        return policy, adapters

    def _tried_proxy(self, config: Any, *, is_trained: bool) -> Policy:
        """Return a proxy of the model, on which what is asked for was tried."""
        proxy = proxy_model(
            config,
            precision=self._precision,
            is_trained=is_trained,
            device=self.device,
            trust_remote_code=self._may_run_code,
        )
        check_head(proxy)
        self._with_checkpointing(proxy, is_trained=is_trained)
        if is_trained:
            self._try_prefix_sharing(proxy)
        proxy.sharing = find_prefix_sharing(proxy)  # before its attention is another
        self._with_sequence_parallelism(proxy)
        return proxy

    def _sharded(self, policy: Policy, *, adapters: Sequence[torch.nn.Parameter]) -> Policy:
        from torch.distributed.device_mesh import init_device_mesh

        from trinity.trainer.fsdp import FSDPPolicy

        if self._ranks.sp_group is not None:
            from trinity.trainer.ulysses import UlyssesPolicy

            policy = UlyssesPolicy(policy, group=self._ranks.sp_group)
        shape = (self._ranks.size // self._ranks.num_shards, self._ranks.num_shards)
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("replicate", "shard"))
        mesh = mesh if shape[0] > 1 else mesh["shard"]
        offload = self._config.trainer.offload_policy
        return FSDPPolicy(policy, mesh=mesh, adapters=adapters, is_offloaded=offload)

    def _model_config(self) -> Any:  # Any: of transformers
        from transformers import AutoConfig

        try:
            return AutoConfig.from_pretrained(
                self._model_path, trust_remote_code=self._may_run_code
            )
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{self._model_path} has no configuration of the model on this machine: {error}. "
                "Copy its config.json there, or use trainer.trainer_strategy: ddp."
            ) from error


def proxy_model(
    config: Any,
    *,
    precision: str,
    is_trained: bool,
    device: torch.device,
    trust_remote_code: bool = False,
) -> Policy:
    """Return a policy with random weights, the same on all ranks, that has layers of all kinds.

    Args:
        config: of the large model (Any: of transformers).
        precision: it computes in.
        is_trained: whether its weights have gradients.
        device: where it is.
        trust_remote_code: run code that comes with the model.

    Raises:
        NotSupportedYetError: its kind cannot be built so small.
    """
    from transformers import AutoModelForCausalLM

    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # that of GPUs is the run's
            module: Any = AutoModelForCausalLM.from_config(
                small_config(config),
                dtype=dtype_of(precision, is_trained=is_trained),
                trust_remote_code=trust_remote_code,
            )
        module.to(device).eval().requires_grad_(is_trained)
        return Policy(module, precision=precision)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of a model's own code, whatever it does not find
        raise NotSupportedYetError(
            f"trainer.trainer_strategy fsdp2 tries a small model first, and none of model type "
            f"{config.model_type!r} can be built: {type(error).__name__}: {error}. Use ddp."
        ) from error


def small_config(config: Any) -> Any:
    """Return a copy with few layers, of each kind that there is, and few tokens (Any: see above).

    >>> from transformers import AutoConfig
    >>> kinds = ["sliding_attention"] * 3 + ["full_attention"]
    >>> small = small_config(AutoConfig.for_model("qwen3", num_hidden_layers=4, layer_types=kinds))
    >>> small.layer_types, small.num_hidden_layers
    (['sliding_attention', 'full_attention'], 2)
    """
    small = copy.deepcopy(config)
    text = small.get_text_config(decoder=True)
    number = text.num_hidden_layers
    kept = _kept(getattr(text, "layer_types", None) or [""] * number)
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == number:  # one entry for each layer
            setattr(text, name, [value[layer] for layer in kept])
    text.num_hidden_layers = len(kept)
    text.initializer_range = SPREAD / text.hidden_size**0.5
    for part in (small, text):
        part.vocab_size = NUM_TOKENS
        part.pad_token_id = part.bos_token_id = part.eos_token_id = None
    return small


def _kept(kinds: Sequence[str]) -> list[int]:
    """Return the first layer of each kind, and others until there are enough."""
    first = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    others = [layer for layer in range(len(kinds)) if layer not in first]
    return sorted(first + others[: max(0, MIN_LAYERS - len(first))])


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
        check_head(policy)
    return policy


def dtype_of(precision: str, *, is_trained: bool) -> torch.dtype:
    """Return the type of a model's weights: a frozen one has those that it computes in."""
    return torch.bfloat16 if precision == "bfloat16" and not is_trained else torch.float32


@torch.no_grad()
def check_head(policy: Policy) -> None:
    """Refuse a model whose logits are not those that we compute from its hidden states.

    Raises:
        NotSupportedYetError: it scales or changes them in a way that we do not know.
    """
    tokens_BL = torch.arange(8, device=policy.device)[None] % policy.module.config.vocab_size
    expected_BLV = policy.module(input_ids=tokens_BL, use_cache=False).logits.float()
    hidden_BLD = policy.body(input_ids=tokens_BL, use_cache=False).last_hidden_state
    difference_BLV = policy.logits(hidden_BLD).float() - expected_BLV
    if difference_BLV.abs().max() > 1e-3 * max(1.0, float(expected_BLV.abs().max())):
        raise NotSupportedYetError(
            f"model type {policy.module.config.model_type!r} changes its logits after the output "
            "layer in a way that the trainer does not know. Train a model of another type."
        )
