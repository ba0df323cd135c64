"""Shard a model over the ranks (FSDP2), of which the first alone has read the weights.

    rank 0    reads the model into CPU memory       the others   read its configuration
    all       the same model without weights --> sharded --> memory for this rank's shards
    rank 0    one weight after the other --> its shard of each --> the others

So no other rank ever has more than its shards and those of one weight, and no GPU has them all.
What a model computes when it is built (the angles of its positions) comes from rank 0 too.

Each decoder layer is a unit, and one root stands around all of ``Policy.score``: no weight is
touched outside of it. A pass gathers a unit's weights, uses them and frees them, on all ranks at
once. So all ranks make the same passes through the decoder: a cached prefix takes two, and a rank
that has fewer than another makes dummy passes over two tokens, with weight 0. Gradients are summed,
never averaged: shares of a batch add up to it.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from trinity.errors import ConfigError, ModelError, NotSupportedYetError
from trinity.trainer.dtensor import scatter_weights
from trinity.trainer.microbatch import ModelInputs
from trinity.trainer.policy import PLAIN, Policy, TokenScores, Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.distributed.device_mesh import DeviceMesh

    from trinity.trainer.ranks import Ranks

_OF_THE_FILE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}  # not of the model


class FSDPPolicy(Policy):
    """A policy whose weights are sharded over the ranks; all of them call it as often.

    There is memory for this rank's shards, and nothing in it until :func:`fill`.

    Args:
        policy: without weights, and with what is known of its prefix sharing.
        mesh: the ranks, in one dimension; in two (replicate, shard) where several groups of them
            have the weights (HSDP).
        adapters: weights beside the model's that each rank has whole: they are small, and their
            gradients are summed as those of ddp are.
        is_offloaded: shards, their gradients and the optimizer's states are in CPU memory, and a
            unit's weights come to the GPU for its pass.

    Raises:
        ConfigError: this torch cannot leave adapters whole.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        mesh: DeviceMesh,
        adapters: Sequence[nn.Parameter] = (),
        is_offloaded: bool = False,
    ) -> None:
        super().__init__(policy.module, precision=policy.precision, device=policy.device)
        self.sharing = policy.sharing
        self._root = _Root(policy)
        offload, rounding = OffloadPolicy(), MixedPrecisionPolicy(cast_forward_inputs=False)
        if is_offloaded:
            offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
        if policy.precision == "bfloat16" and policy.is_trained:
            # Weights travel rounded, and are kept so for a unit's pass alone; sums stay float32:
            # of gradients over the ranks, and of what the layers add to the embedding.
            rounding = MixedPrecisionPolicy(
                param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
            )
            embedding = policy.module.get_input_embeddings()
            embedding.register_forward_hook(lambda _module, _given, states: states.float())
        whole: dict[str, Any] = {"ignored_params": set(adapters)} if adapters else {}
        if not whole.keys() <= inspect.signature(fully_shard).parameters.keys():
            raise ConfigError(
                f"model.lora_configs: torch {torch.__version__} cannot shard a model around its "
                "adapters (fsdp2). Use a later torch, or trainer.trainer_strategy: ddp."
            )
        for unit in (*_layers(policy.module), self._root):
            fully_shard(
                unit,
                mesh=mesh,
                reshard_after_forward=True,
                mp_policy=rounding,
                offload_policy=offload,
                **whole,
            )
        for module in self._root.modules():  # of each unit: the root does not speak for the others
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        self._root.to_empty(device="cpu" if is_offloaded else policy.device)

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> TokenScores:
        scores: TokenScores = self._root(inputs, wanted)
        return scores

    def dummy_pass(self, *, num_passes: int) -> Tensor:
        scores = self.score(_two_tokens(), Wanted(num_passes=num_passes))
        zero: Tensor = scores.logprob.sum() * 0.0
        return zero


class _Root(nn.Module):
    """All that a policy scores with, as one module."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.module = policy.module
        self._policy = [policy]  # in a list: it is no module

    def forward(self, inputs: ModelInputs, wanted: Wanted) -> TokenScores:
        """Return the scores: a tuple, in which FSDP finds the tensors."""
        policy, zero = self._policy[0], None
        # Dummy passes come before the one that counts, as a prefix comes before its suffixes.
        for _ in range(wanted.num_passes - inputs.num_passes):
            states_ND = policy.states(_two_tokens())
            zero = states_ND.float().sum() * 0.0
        scores = policy.score(inputs, wanted)
        return scores if zero is None else scores._replace(logprob=scores.logprob + zero)


def _two_tokens() -> ModelInputs:
    """Return one row of two tokens, of which the second is scored."""
    zero_N = torch.zeros(1, dtype=torch.long)
    return ModelInputs(
        tokens_PL=torch.zeros((1, 2), dtype=torch.long),
        suffixes_GK=None,
        positions_PL=None,
        ends_PL=None,
        rows_N=zero_N,
        columns_N=zero_N,
        slots_N=zero_N,
        targets_N=zero_N,
        temperature_N=None,
        shape=(1, 1),
    )


def _layers(module: nn.Module) -> list[nn.Module]:
    """Return the decoder layers: what transformers never splits over devices."""
    names = set(getattr(module, "_no_split_modules", None) or ())
    return [part for part in module.modules() if type(part).__name__ in names]


def meta_model(
    config: Any, *, dtype: torch.dtype, is_tied: bool, trust_remote_code: bool = False
) -> Any:
    """Return a transformers model whose tensors have shapes and no content (Any: half typed).

    Args:
        config: of transformers; it is the model's from here on.
        dtype: of the weights.
        is_tied: the output layer is the embedding, whatever the configuration says.
        trust_remote_code: run code that comes with the model.

    Raises:
        NotSupportedYetError: it keeps tensors where nobody finds them.
    """
    from transformers import AutoModelForCausalLM

    for part in (config, config.get_text_config(decoder=True)):
        part.tie_word_embeddings = is_tied
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        module: Any = AutoModelForCausalLM.from_config(
            config, dtype=dtype, trust_remote_code=trust_remote_code
        )
    module.tie_weights()  # transformers 5.0 leaves it to whoever reads weights
    for part in module.modules():
        hidden = [name for name, value in vars(part).items() if isinstance(value, Tensor)]
        if hidden:
            raise NotSupportedYetError(
                f"model type {config.model_type!r} keeps {hidden[0]!r} in {type(part).__name__}, "
                "neither as a weight nor as a buffer, so trainer.trainer_strategy fsdp2 cannot "
                "shard it. Use ddp."
            )
    return module.eval()


def refuse_other_layout(module: nn.Module, first: list[list[Any]]) -> None:
    """Refuse a model that is not built as the one that the first rank has read.

    Args:
        module: the model without weights.
        first: what :func:`layout_of` said of the first rank's (Any: names and sizes).

    Raises:
        ModelError: they differ.
    """
    own = layout_of(module)
    if own != first:
        differing = [entry[0] for entry in own + first if entry not in own or entry not in first]
        name = next(iter(differing), own[0][0])  # in another order, if none differs
        raise ModelError(
            f"the trainer's ranks have different models: {name!r} is not the same on rank "
            "0 and here. Let all machines have the same model folder and versions, or use "
            "trainer.trainer_strategy: ddp."
        )


def settings_of(config: Any) -> dict[str, Any]:
    """Return what a configuration of transformers says of the model, as JSON has it (Any: JSON)."""
    said: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in said.items() if name not in _OF_THE_FILE}


def refuse_other_settings(own: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Refuse a configuration by which another function would be computed (Any: as above).

    Args:
        own: :func:`settings_of` this rank's.
        first: those of the first rank.

    Raises:
        ModelError: they differ.
    """
    names = sorted(name for name in own | first if own.get(name) != first.get(name))
    if names:
        raise ModelError(
            f"the trainer's ranks have different models: {names[0]} is "
            f"{first.get(names[0])!r} on rank 0 and {own.get(names[0])!r} here. Copy rank 0's "
            "config.json to all machines, with one version of transformers."
        )


def facts_of(source: Any) -> dict[str, Any]:
    """Return what the other ranks need to know of the model that the first has read (Any: JSON)."""
    head, embedding = source.get_output_embeddings(), source.get_input_embeddings()
    return {"is_tied": head.weight is embedding.weight, "layout": layout_of(source)}


def layout_of(module: nn.Module) -> list[list[Any]]:
    """Return name, shape and type of each weight and buffer, as JSON has them."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in named]


def fill(
    module: nn.Module, source: nn.Module | None, *, ranks: Ranks, device: torch.device
) -> None:
    """Give a sharded model weights, adapters and buffers; all ranks call it at once.

    Args:
        module: the model, with memory for this rank's shards.
        source: the same with full weights; None: another rank has it.
        ranks: the processes.
        device: that buffers and adapters are on.
    """
    weights = None if source is None else dict(source.named_parameters())
    scatter_weights(module, weights)
    for name, parameter in module.named_parameters():
        if not isinstance(parameter, DTensor):
            whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            if weights is not None:
                whole.copy_(weights[name].detach())
            ranks.broadcast(whole)
            parameter.data = whole
    theirs = {} if source is None else dict(source.named_buffers(remove_duplicate=False))
    for path, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False):
            full_name = f"{path}.{name}" if path else name
            own = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
            if source is not None:
                own.copy_(theirs[full_name])
            ranks.broadcast(own)
            setattr(part, name, own)
