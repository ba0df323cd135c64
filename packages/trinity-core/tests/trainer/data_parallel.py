"""One of the processes that train a model together; writes what it found."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import distributed
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.errors import TrinityError
from trinity.trainer.torch_trainer import TorchTrainer


def a_trainer(model_path, *, group=None):
    """Return a PPO trainer with a critic, a reference, entropy and KL."""
    config = SimpleNamespace(
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
        model=SimpleNamespace(trust_remote_code=False, critic_model_path="", lora_configs=None),
    )
    return TorchTrainer(config, model_path=str(model_path), total_steps=10, seed=0, group=group)


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


def main() -> None:
    """Train beside the others of the group."""
    model_path, folder, rank, size = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    trainer = a_trainer(model_path, group=distributed.group.WORLD)
    first = rows()
    batch, _ = trainer._preparation.batch_of(first, _no_watch, version=0)
    own = trainer._ranks.own(trainer._scorer.plan(batch))
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    found = {"gradient": gradient, "own": len(own), **trained(trainer)}
    try:
        trainer.train_step(rows(broken=3), step=9)
    except TrinityError as error:
        found["error"] = str(error)
    trainer.save(folder / "saved")
    torch.save(found, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


def _no_watch(name):
    from contextlib import nullcontext

    return nullcontext()


if __name__ == "__main__":
    main()
