"""Load the models of a trainer, as its ranks have them.

one process, ddp    each rank reads the model
fsdp2               the first reads it, and gives each its parts (``scattering.py``)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trinity.errors import ModelError
from trinity.trainer.lora import Adapters
from trinity.trainer.policy import Policy, dtype_of, load_policy
from trinity.trainer.recomputing import enable_checkpointing
from trinity.trainer.scattering import (
    empty_model,
    fill,
    layout_of,
    refuse_other_layout,
    refuse_other_settings,
    settings_of,
)
from trinity.trainer.sharing import find_sharing
from trinity.trainer.stand_in import stand_in

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.trainer.ranks import Ranks


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
            ConfigError: its heads cannot be dealt to the ranks of a sequence.
            ModelError: it cannot be loaded.
            NotSupportedYetError: it cannot be what the configuration asks for.
        """
        if self._ranks.shares_weights:
            return self._spread(is_trained=True), None
        policy = self.load(self._model_path)
        lora = self._config.model.lora_configs
        adapters = Adapters(policy.module, lora[0]) if lora else None
        self._try_sharing(policy)
        return self._with_shared_sequences(policy), adapters

    def reference(self) -> Policy:
        """Return the frozen model that training began with, as the ranks have it."""
        if self._ranks.shares_weights:
            return self._spread(is_trained=False)
        return self._with_shared_sequences(self.load(self._model_path, is_trained=False))

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
        return self._recomputing(policy, is_trained=is_trained)

    def _recomputing(self, policy: Policy, *, is_trained: bool) -> Policy:
        if is_trained and self._config.trainer.gradient_checkpointing:
            enable_checkpointing(policy.module)
        return policy

    def _try_sharing(self, policy: Policy) -> None:
        how = self._config.trainer.prefix_sharing
        if how != "off":
            find_sharing(policy, is_required=how == "on")

    def _with_shared_sequences(self, policy: Policy) -> Policy:
        """Return the policy as the ranks of a sequence share it, once it was tried."""
        if self._ranks.sequence is None:
            return policy
        from trinity.trainer.ulysses import tried

        return tried(policy, group=self._ranks.sequence)

    def _spread(self, *, is_trained: bool) -> Policy:
        """Return a model of which each rank has parts, and which none but the first has read."""
        read: list[Policy] = []  # by the first rank
        cpu = torch.device("cpu")
        self._ranks.first(
            lambda: read.append(self.load(self._model_path, is_trained=is_trained, device=cpu))
        )
        source: Any = read[0].module if read else None  # Any: transformers is half typed
        configs: list[Any] = []
        self._ranks.each(lambda: configs.append(self._model_config()))
        settings = settings_of(configs[0])
        told = self._ranks.of_first(_facts(source) | {"settings": settings})
        self._ranks.each(lambda: refuse_other_settings(settings, told["settings"]))
        sharing = self._tried_small(configs[0], is_trained=is_trained).sharing
        module = empty_model(
            configs[0],
            dtype=dtype_of(self._precision, is_trained=is_trained),
            is_tied=told["is_tied"],
            trust_remote_code=self._may_run_code,
        )
        self._ranks.each(lambda: refuse_other_layout(module, told["layout"]))
        module.requires_grad_(is_trained)
        policy = Policy(module, precision=self._precision, device=self.device)
        policy.sharing = sharing
        policy = self._spread_out(self._recomputing(policy, is_trained=is_trained))
        fill(module, source, ranks=self._ranks, device=self.device)
        return policy

    def _tried_small(self, config: Any, *, is_trained: bool) -> Policy:
        """Return a small model of the same kind, on which what is asked for was tried."""
        small = stand_in(
            config,
            precision=self._precision,
            is_trained=is_trained,
            device=self.device,
            trust_remote_code=self._may_run_code,
        )
        small.check_head()
        self._recomputing(small, is_trained=is_trained)
        if is_trained:
            self._try_sharing(small)
        small.sharing = find_sharing(small)  # before its attention is another
        self._with_shared_sequences(small)
        return small

    def _spread_out(self, policy: Policy) -> Policy:
        from torch.distributed.device_mesh import init_device_mesh

        from trinity.trainer.sharded import ShardedPolicy

        if self._ranks.sequence is not None:
            from trinity.trainer.ulysses import UlyssesPolicy

            policy = UlyssesPolicy(policy, group=self._ranks.sequence)
        mesh = init_device_mesh(self.device.type, (self._ranks.size,))
        is_offloaded = self._config.trainer.offload_policy
        return ShardedPolicy(policy, mesh=mesh, is_offloaded=is_offloaded)

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


def _facts(source: Any) -> dict[str, Any]:
    """Return what the other ranks need to know of a model; nothing, where there is none."""
    if source is None:
        return {}
    head, embedding = source.get_output_embeddings(), source.get_input_embeddings()
    return {"is_tied": head.weight is embedding.weight, "layout": layout_of(source)}
