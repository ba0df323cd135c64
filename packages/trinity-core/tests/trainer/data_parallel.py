"""One of the processes that train a model together; writes what it found."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from trinity.common.batch import ExperienceBatch
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.model import LoRAConfig, ModelConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.errors import TrinityError
from trinity.trainer.dtensor import full_tensor
from trinity.trainer.ranks import Ranks
from trinity.trainer.torch_trainer import TorchTrainer


def a_trainer(model_path, *, group=None):
    """Return a PPO trainer with a critic, a reference, entropy and KL."""
    config = SimpleNamespace(
        audit="warn",
        algorithm=AlgorithmConfig(
            algorithm_type="ppo",
            advantage_fn="ppo",
            policy_loss_fn="ppo",
            kl_loss_fn="k2",
            kl_loss_fn_args={"kl_coef": 0.3},
            entropy_loss_fn="default",
            entropy_loss_fn_args={"entropy_coef": 0.2},
            optimizer={"lr": 1e-3},
        ),
        trainer=TrainerConfig(
            max_token_len_per_gpu=40, critic={"optimizer": {"lr": 1e-2}}, grad_clip=0.0
        ),
        model=ModelConfig(),
        explorer=ExplorerConfig(),
    )
    return TorchTrainer(config, model_path=str(model_path), total_steps=10, seed=0, group=group)


WAYS = {"apart": "off", "mask": "on", "stem": "on"}  # how rows that begin alike are computed
BUDGETS = {"apart": 80, "mask": 80, "stem": 800}  # tokens of a micro-batch, where ranks share it


def a_spread_trainer(
    model_path, way, *, group=None, strategy="fsdp2", sequence=1, budget=None, lora=(), **settings
):
    """Return a GRPO trainer with a reference; ``sequence`` ranks of several share each sequence."""
    config = SimpleNamespace(
        audit="warn",
        algorithm=AlgorithmConfig(
            algorithm_type="grpo",
            advantage_fn="grpo",
            policy_loss_fn="ppo",
            kl_loss_fn="k2",
            kl_loss_fn_args={"kl_coef": 0.3},
            entropy_loss_fn="default",
            entropy_loss_fn_args={"entropy_coef": 0.2},
            optimizer={"lr": 1e-3},
        ),
        trainer=TrainerConfig(
            max_token_len_per_gpu=budget or (400 if way == "stem" else 40),
            prefix_sharing=WAYS[way],
            trainer_strategy=strategy,
            ulysses_sequence_parallel_size=sequence,
            **settings,
        ),
        synchronizer=SimpleNamespace(sync_timeout=60.0),
        model=ModelConfig(lora_configs=list(lora)),
        explorer=ExplorerConfig(),
    )
    return TorchTrainer(config, model_path=str(model_path), total_steps=10, seed=0, group=group)


def rows_of(way):
    """Return rows; with a stem, five that begin with 150 equal tokens, and two others."""
    if way != "stem":
        return rows()
    draw = torch.Generator().manual_seed(0)
    stem = torch.randint(3, 384, (150,), generator=draw)
    found = []
    for number in range(7):
        prompt = stem if number < 5 else torch.randint(3, 384, (6,), generator=draw)
        answer = torch.randint(3, 384, (30 + 5 * number,), generator=draw)
        found.append(
            Experience(
                tokens=torch.cat((prompt, answer)),
                prompt_length=len(prompt),
                reward=float(number % 3),
                logprobs=-5.0 + torch.randn(len(answer), generator=draw),
                eid=EID(0, number // 5, number),
            )
        )
    return found


def gradient_of(trainer, way):
    """Return the whole gradient of the rows, and the shared prefix of each micro-batch."""
    batch, _ = trainer._preparation.batch_of(rows_of(way), _no_watch, version=0)
    plan = trainer._scorer.plan(batch)
    trainer._accumulate(batch, plan, step=1)
    gradient = torch.cat([full_tensor(p.grad).flatten() for p in trainer.model.parameters()])
    return gradient, [p[0].prefix_length for p in plan]


def rows(*, broken=None):
    """Return ragged rows of two prompts; one may have a log-probability that is no number."""
    draw = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, 384, (n,), generator=draw) for n in (10, 6)]
    found = []
    for number in range(11):
        answer = torch.randint(3, 384, (2 + number % 6,), generator=draw)
        logprobs = -5.0 + torch.randn(len(answer), generator=draw)
        if number == broken:
            logprobs[0] = float("nan")
        found.append(
            Experience(
                tokens=torch.cat((prompts[number % 2], answer)),
                prompt_length=len(prompts[number % 2]),
                reward=float(number % 3),
                logprobs=logprobs,
                eid=EID(0, number % 2, number),
            )
        )
    return found


def trained(trainer, *, num_steps=3):
    """Return weights after some steps, and the last step's metrics without times."""
    for step in range(1, num_steps + 1):
        metrics = trainer.train_step(rows(), step=step)
    tensors = trainer.snapshot(copy=True).tensors
    numbers = {name: v for name, v in metrics.items() if not name.startswith(("time/", "perf/"))}
    return {"weights": tensors, "metrics": numbers}


def references(trainer):
    """Return what the model and the reference say, the latter by a model that is read, too."""
    scorer, batch = trainer._scorer, ExperienceBatch.from_experiences(rows())
    found = {"model": scorer.logprobs(batch), "reference": scorer.reference_logprobs(batch)}
    found["again"], found["is_loaded"] = scorer.logprobs(batch), scorer.reference is not None
    return found | {"read": scorer._logprobs(trainer._models.reference(), batch)}


def shared_gradients(model_path, *, group, sequence=2, strategies=("ddp", "fsdp2"), **settings):
    """Return the gradient for each strategy and way, of ranks that share each sequence.

    A sequence's ranks have its micro-batch together, so its budget is that of one rank times two.
    """
    found = {}
    for strategy in strategies:
        for way in WAYS:
            trainer = a_spread_trainer(
                model_path,
                way,
                group=group,
                strategy=strategy,
                sequence=sequence,
                budget=BUDGETS[way] // sequence,
                **settings,
            )
            found[strategy, way] = gradient_of(trainer, way)[0]
    return found


def even_gradient(model_path, way, *, group):
    """Return the gradient where ranks have as many tokens, and how many each has."""
    trainer = a_spread_trainer(model_path, way, group=group)
    batch, _ = trainer._preparation.batch_of(rows_of(way), _no_watch, version=0)
    parts = trainer._scorer.plan(batch).per_rank
    tokens = [sum(len(pack) for packs in part for pack in packs) for part in parts]
    return gradient_of(trainer, way)[0], tokens


def trained_without_gradient(group=None):
    """Return weights after a step: one that all have a gradient of, rank 0 alone, and nobody."""
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(3)]
    weights[0].grad = torch.ones(1)
    ranks = Ranks(group)
    if ranks.rank == 0:
        weights[1].grad = torch.ones(1)
    ranks.all_reduce_gradients(weights)
    torch.optim.AdamW(weights, lr=0.1, weight_decay=0.5).step()
    return [weight.item() for weight in weights]


def refused(model_path, *, group):
    """Return what ranks hear that are to share the sequences of a model that cannot."""
    try:
        a_spread_trainer(model_path, "apart", group=group, sequence=2)
    except TrinityError as error:
        return str(error)


def share_sequences(folder: Path, *, rank: int, size: int) -> None:
    """Write the gradients of each model there, for all ways to share, by size of the teams."""
    group = distributed.group.WORLD
    teams = [number for number in (2, 4) if number <= size]
    found = {
        (path.name, sequence, is_recomputed): shared_gradients(
            path, group=group, sequence=sequence, gradient_checkpointing=is_recomputed
        )
        for path in sorted((folder / "models").iterdir())
        for sequence in teams
        for is_recomputed in (False, True)
    }
    torch.save(found, folder / f"rank-{rank}.pt")


def train_adapters(model_path, folder: Path, *, group) -> None:
    """Write what adapters and metrics are after three steps, and after a fourth by the other.

    Each strategy goes on from what the other has saved.
    """
    lora = [LoRAConfig(lora_rank=4, lora_alpha=8)]
    rank = distributed.get_rank(group)
    found = {}
    for strategy in ("ddp", "fsdp2"):
        for precision in ("float32", "bfloat16"):
            options = {"strategy": strategy, "precision": precision, "lora": lora}
            trainer = a_spread_trainer(model_path, "apart", group=group, **options)
            found[strategy, precision] = trained(trainer)
            if precision == "float32":
                found["references", strategy] = references(trainer)
        stem = a_spread_trainer(model_path, "stem", group=group, strategy=strategy, lora=lora)
        stem.train_step(rows_of("stem"), step=1)
        found[strategy, "stem"] = stem.snapshot(copy=True).tensors
        trainer = a_spread_trainer(model_path, "apart", group=group, strategy=strategy, lora=lora)
        trained(trainer)
        trainer.save(folder / strategy)
    sharded = [p for p in trainer.model.parameters() if isinstance(p, DTensor)]
    found["held"] = sum(p.to_local().numel() for p in sharded), sum(p.numel() for p in sharded)
    for strategy, other in (("ddp", "fsdp2"), ("fsdp2", "ddp")):
        trainer = a_spread_trainer(model_path, "apart", group=group, strategy=strategy, lora=lora)
        trainer.load(folder / other)
        found["fourth", strategy] = trained(trainer, num_steps=1)
        found["streamed", strategy] = streamed(trainer, reads=rank == 0)
    torch.save(found, folder / f"rank-{rank}.pt")


def train_copies(model_path, folder: Path, *, group) -> None:
    """Write what ranks train of which two share each copy of the weights (HSDP), and how else."""
    found = {}
    ways = {"ddp": {"strategy": "ddp"}, "fsdp2": {}, "hsdp": {"fsdp_size": 2}}
    for name, options in ways.items():
        trainer = a_spread_trainer(model_path, "stem", group=group, **options)
        found[name, "gradient"] = gradient_of(trainer, "stem")[0]
        trainer = a_spread_trainer(model_path, "apart", group=group, **options)
        found[name] = trained(trainer)
        found[name, "held"] = sum(
            p.to_local().numel() if isinstance(p, DTensor) else p.numel()
            for p in trainer.model.parameters()
        )
        trainer.save(folder / name)
        if name == "hsdp":
            parts = a_spread_trainer(
                model_path, "apart", group=group, sharded_above_gb=0, **options
            )
            parts.load(folder / name)
            parts.save(folder / "parts")
    for name, options in ways.items():
        for saved in ("fsdp2", "hsdp", "parts"):
            trainer = a_spread_trainer(model_path, "apart", group=group, **options)
            trainer.load(folder / saved)
            found[name, saved] = trained(trainer, num_steps=1)["weights"]
    try:
        a_spread_trainer(model_path, "apart", group=group, fsdp_size=3)
    except TrinityError as error:
        found["three"] = str(error)
    torch.save(found, folder / f"rank-{distributed.get_rank(group)}.pt")


def main() -> None:
    """Train beside the others of the group."""
    model_path, folder, rank, size = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    group = distributed.group.WORLD
    if model_path == "sequences":
        share_sequences(folder, rank=rank, size=size)
        distributed.destroy_process_group()
        return
    for name, train in {"adapters": train_adapters, "copies": train_copies}.items():
        if (folder / name).exists():
            train(model_path, folder, group=group)
            distributed.destroy_process_group()
            return
    trainer = a_trainer(model_path, group=group)
    first = rows()
    batch, _ = trainer._preparation.batch_of(first, _no_watch, version=0)
    own = trainer._ranks.micro_batches(trainer._scorer.plan(batch))
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    found = {"gradient": gradient, "own": len(own), **trained(trainer)}
    try:
        trainer.train_step(rows(broken=3), step=9)
    except TrinityError as error:
        found["error"] = str(error)
    trainer.save(folder / "saved")
    for way in WAYS:  # dealt in turn, so that one rank has nothing in the last round
        trainer = a_spread_trainer(model_path, way, group=group, balance_batch=False)
        found[way] = gradient_of(trainer, way)
        found["even", way] = even_gradient(model_path, way, group=group)
    rounded = a_spread_trainer(model_path, "apart", group=group, precision="bfloat16")
    found["bfloat16"] = gradient_of(rounded, "apart")[0]
    own = folder / ("untied" if rank == 0 else "config")  # which has no weights
    found["untied"] = gradient_of(a_spread_trainer(own, "mask", group=group), "mask")[0]
    found["idle"] = trained_without_gradient(group)
    found["sequences"] = shared_gradients(model_path, group=group)
    found["narrow"] = shared_gradients(folder / "narrow", group=group, strategies=["ddp"])
    found["refused"] = [refused(folder / name, group=group) for name in ("three", "gemma2")]
    found["spread"] = trained_with_spread_weights(model_path, folder, group=group)
    found["offloaded"] = trained_with_offload(model_path, folder, group=group)
    torch.save(found, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


def trained_with_spread_weights(model_path, folder, *, group):
    """Go on from what one process left at ``alone``, make a step, leave it at ``spread``."""
    trainer = a_spread_trainer(model_path, "apart", group=group)
    trainer.load(folder / "alone")
    metrics = trainer.train_step(rows(), step=2)
    trainer.save(folder / "spread")
    losses, elsewhere = parts_on_two_one_two(model_path, folder, group=group)
    found = {"metrics": metrics, "losses": losses, "elsewhere": elsewhere}
    found["streamed"] = streamed(trainer, reads=distributed.get_rank(group) == 0)
    try:
        trainer.train_step(rows(broken=3), step=3)
    except TrinityError as error:
        return found | {"error": str(error)}


def streamed(trainer, *, reads):
    """Return the weights as engines in bfloat16 get them, where this rank reads them."""
    trainer._config.explorer.rollout_model.dtype = "bfloat16"
    with trainer.snapshot(copy=False) as snapshot:
        return dict(snapshot.tensors) if reads else {}


def trained_with_offload(model_path, folder, *, group):
    """Return gradients and weights with FSDP2's offload and without; each goes on from the other.

    Each makes three steps and saves, whole or in parts; the other loads that and makes a fourth.
    """
    found = {}
    for is_off in (True, False):
        for way in WAYS:
            trainer = a_spread_trainer(model_path, way, group=group, offload_policy=is_off)
            found["gradient", way, is_off] = gradient_of(trainer, way)[0]
        for limit in (0, 20):
            settings = {"sharded_above_gb": limit, "offload_policy": is_off}
            trainer = a_spread_trainer(model_path, "apart", group=group, **settings)
            found["steps", limit, is_off] = trained(trainer)
            trainer.save(folder / f"offload-{limit}-{is_off}")
    for is_off in (True, False):
        for limit in (0, 20):
            trainer = a_spread_trainer(model_path, "apart", group=group, offload_policy=is_off)
            trainer.load(folder / f"offload-{limit}-{not is_off}")
            found["fourth", limit, is_off] = trained(trainer, num_steps=1)
    return found


def parts_on_two_one_two(model_path, folder, *, group):
    """Write parts with two ranks, go on with one, write, go on with two; return their losses.

    And what they hear that write onto two disks.
    """
    settings = {"sharded_above_gb": 0}
    two = a_spread_trainer(model_path, "apart", group=group, **settings)
    two.load(folder / "alone")
    losses = [two.train_step(rows(), step=2)["actor/loss"]]
    two.save(folder / "parts")
    if distributed.get_rank(group) == 0:
        one = a_spread_trainer(model_path, "apart", **settings)
        one.load(folder / "parts")
        losses.append(one.train_step(rows(), step=3)["actor/loss"])
        one.save(folder / "one")
    distributed.barrier(group)
    again = a_spread_trainer(model_path, "apart", group=group, **settings)
    again.load(folder / "one")
    losses.append(again.train_step(rows(), step=4)["actor/loss"])
    again.save(folder / "parts-again")
    again.load(folder / "parts-again")
    losses.append(again.train_step(rows(), step=5)["actor/loss"])
    try:  # each machine has a disk of its own
        again.save(folder / f"disk-{distributed.get_rank(group)}")
    except TrinityError as error:
        return losses, str(error)
    return losses, ""


def _no_watch(name):
    from contextlib import nullcontext

    return nullcontext()


if __name__ == "__main__":
    main()
