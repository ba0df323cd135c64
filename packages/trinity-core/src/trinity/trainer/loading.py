"""Load the models of a trainer, and share them with the other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trinity.trainer.policy import Policy, load_policy
from trinity.trainer.recomputing import enable_checkpointing
from trinity.trainer.spreading import spread

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trinity.common.config import Config

__all__ = ["ModelLoader"]


class ModelLoader:
    """Loads models, and says how the ranks have them.

    Args:
        config: a resolved configuration.
        model_path: the model that is trained, and the reference.
        shares_weights: each rank holds a part of them.
        sequence: the ranks that share each sequence; None: each computes its own.
    """

    def __init__(
        self,
        config: Config,
        *,
        model_path: str,
        shares_weights: bool,
        sequence: ProcessGroup | None,
    ) -> None:
        self._config = config
        self._model_path = model_path
        self._shares_weights = shares_weights
        self._sequence = sequence
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def reference(self) -> Policy:
        """Return the frozen model that training began with, as the ranks share it."""
        return self.shared(self.load(self._model_path, is_trained=False))

    def load(self, model_path: str, *, is_trained: bool = True) -> Policy:
        """Return a model that this rank holds alone."""
        policy = load_policy(
            model_path,
            device=self.device,
            precision=self._config.trainer.precision,
            is_trained=is_trained,
            trust_remote_code=self._config.model.trust_remote_code,
        )
        if is_trained and self._config.trainer.gradient_checkpointing:
            enable_checkpointing(policy.module)
        return policy

    def shared(self, policy: Policy) -> Policy:
        """Return the policy as the ranks share it; all of them ask at once.

        Raises:
            ConfigError: its heads cannot be dealt to the ranks of a sequence.
            NotSupportedYetError: its attention cannot be.
        """
        if self._sequence is not None:
            from trinity.trainer.ulysses import UlyssesPolicy

            policy = UlyssesPolicy(policy, group=self._sequence)
        return spread(policy, device=self.device) if self._shares_weights else policy
