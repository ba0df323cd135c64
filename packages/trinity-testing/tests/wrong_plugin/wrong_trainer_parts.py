"""Trainers, one right, the others with one mistake each: it stands before the core's own."""

import torch
from trinity.common.ports import Trainer, WeightSnapshot
from trinity.trainer.torch_trainer import TorchTrainer


class RightTrainer(Trainer):
    """Is right: the core's own trainer."""

    def __init__(self, config, model_path, total_steps, seed):
        self.own = TorchTrainer(config, model_path=model_path, total_steps=total_steps, seed=seed)

    def train_step(self, experiences, *, step):
        return self.own.train_step(experiences, step=step)

    def snapshot(self, *, copy):
        return self.own.snapshot(copy=copy)

    def save(self, directory):
        self.own.save(directory)

    def load(self, directory):
        self.own.load(directory)

    def close(self):
        self.own.close()


class TeachesNothing(RightTrainer):
    """Makes each step, and puts the weights back."""

    def train_step(self, experiences, *, step):
        before = {name: tensor.clone() for name, tensor in self.own.model.state_dict().items()}
        metrics = super().train_step(experiences, step=step)
        self.own.model.load_state_dict(before)
        return metrics


class CountsFromOne(RightTrainer):
    """Calls the base model version 1."""

    def snapshot(self, *, copy):
        snapshot = super().snapshot(copy=copy)
        return WeightSnapshot(version=snapshot.version + 1, tensors=snapshot.tensors)


class NeverCopies(RightTrainer):
    """Gives its own tensors, whatever it is told."""

    def snapshot(self, *, copy):
        return super().snapshot(copy=False)


class ForgetsTheOptimizer(RightTrainer):
    """Loads the weights and begins with a new optimizer."""

    def load(self, directory):
        from trinity.trainer import checkpoint

        state = checkpoint.load_state(directory)
        empty = self.own._optimizer.state_dict()
        super().load(directory)
        self.own._optimizer.load_state_dict(empty)
        assert self.own.version == state["version"]


class SavesNoModel(RightTrainer):
    """Saves its model where nobody looks for it."""

    def save(self, directory):
        super().save(directory)
        (directory / "huggingface").rename(directory / "weights")

    def load(self, directory):
        (directory / "weights").rename(directory / "huggingface")
        super().load(directory)


class ChangesItsBatch(RightTrainer):
    """Takes the mean off the rewards, in place."""

    def train_step(self, experiences, *, step):
        metrics = super().train_step(experiences, step=step)
        for experience in experiences:
            experience.reward -= 0.5
        return metrics


class SwallowsNaN(RightTrainer):
    """Takes 0 for what is NaN, and says nothing."""

    def train_step(self, experiences, *, step):
        is_odd = [not bool(torch.isfinite(e.advantages).all()) for e in experiences]
        if any(is_odd):
            return {}
        return super().train_step(experiences, step=step)


class TellsTensors(RightTrainer):
    """Returns its loss as a tensor."""

    def train_step(self, experiences, *, step):
        metrics = super().train_step(experiences, step=step)
        return metrics | {"actor/loss": torch.tensor(metrics["actor/loss"])}
