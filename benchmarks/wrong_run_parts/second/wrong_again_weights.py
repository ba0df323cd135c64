"""Wrong trainers, sync methods, monitors and advisors."""

from __future__ import annotations

import torch
from trinity.common.ports import Advice, Advisor, SyncMethod, WeightSnapshot, WeightVersion
from trinity.monitor.jsonl import JsonlMonitor
from trinity.trainer.torch_trainer import TorchTrainer


class HalvesBatchesTrainer(TorchTrainer):
    """Leaves the second half out."""

    def train_step(self, experiences, *, step):
        return super().train_step(experiences[: (len(experiences) + 1) // 2], step=step)


class TrainsTwiceTrainer(TorchTrainer):
    """Is twice as eager."""

    def train_step(self, experiences, *, step):
        super().train_step(experiences, step=step)
        self._version -= 1
        return super().train_step(experiences, step=step)


class GivesOldWeightsTrainer(TorchTrainer):
    """Is one step behind with what it gives."""

    kept = None

    def snapshot(self, *, copy):
        now = super().snapshot(copy=True)
        given, self.kept = self.kept or now, now
        return WeightSnapshot(version=now.version, tensors=given.tensors)


class UndoesItsStepsTrainer(TorchTrainer):
    """Learns nothing."""

    def train_step(self, experiences, *, step):
        before = [one.detach().clone() for one in self.model.parameters()]
        metrics = super().train_step(experiences, step=step)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
        return metrics


class CountsDoubleTrainer(TorchTrainer):
    """Counts a step twice."""

    def train_step(self, experiences, *, step):
        metrics = super().train_step(experiences, step=step)
        self._version += 1
        return metrics


class ReportsTheLastStepTrainer(TorchTrainer):
    """Is one step behind with what it says."""

    kept = None

    def train_step(self, experiences, *, step):
        now = super().train_step(experiences, step=step)
        given, self.kept = self.kept or now, now
        return given


class SortsRewardsTrainer(TorchTrainer):
    """Gives the first rows the best advantages."""

    def train_step(self, experiences, *, step):
        scores = sorted((float(one.advantages[0]) for one in experiences), reverse=True)
        for one, score in zip(experiences, scores, strict=True):
            one.advantages = torch.full_like(one.advantages, score)
        return super().train_step(experiences, step=step)


class CopiesNothingTrainer(TorchTrainer):
    """Saves memory."""

    def snapshot(self, *, copy):
        return super().snapshot(copy=False)


class IgnoresAdvantagesTrainer(TorchTrainer):
    """Finds all rows good."""

    def train_step(self, experiences, *, step):
        for one in experiences:
            one.advantages = torch.ones_like(one.advantages)
        return super().train_step(experiences, step=step)


class _Sync(SyncMethod):
    """Gives every engine the weights."""

    def __init__(self, engines) -> None:
        self.engines = list(engines)
        self.num_syncs = 0

    def sync(self, snapshot):
        self.num_syncs += 1
        weights = snapshot()
        tensors = {name: tensor.clone() for name, tensor in weights.tensors.items()}
        self.change(tensors)
        for engine in self.reached():
            engine.load_weights(WeightSnapshot(version=weights.version, tensors=tensors))
        return weights.version

    def change(self, tensors):
        """Change the weights."""

    def reached(self):
        return self.engines


class ServesTheFirstSyncMethod(_Sync):
    """Forgets the others."""

    def reached(self):
        return self.engines[:1]


class SaysNewerSyncMethod(_Sync):
    """Is ahead of itself."""

    def sync(self, snapshot):
        return WeightVersion(super().sync(snapshot) + 1)


class RestsSyncMethod(_Sync):
    """Works half of the time."""

    def reached(self):
        return self.engines if self.num_syncs % 2 else []


class AddsNoiseSyncMethod(_Sync):
    """Is a bad line."""

    def change(self, tensors):
        first = next(iter(tensors.values()))
        first += 1e-4 * torch.randn(first.shape, generator=torch.Generator().manual_seed(1))


class SwapsLayersSyncMethod(_Sync):
    """Mixes up names."""

    def change(self, tensors):
        names = list(tensors)
        for name in names:
            same = [n for n in names if n != name and tensors[n].shape == tensors[name].shape]
            if same and tensors[name].dim() > 1:
                tensors[name], tensors[same[0]] = tensors[same[0]], tensors[name]
                return


class AveragesMonitor(JsonlMonitor):
    """Smooths."""

    before: dict[str, float] | None = None

    def log(self, metrics, *, step):
        before, self.before = self.before or {}, dict(metrics)
        smooth = {name: (value + before.get(name, value)) / 2 for name, value in metrics.items()}
        super().log(smooth, step=step)


class CountsInWholeNumbersMonitor(JsonlMonitor):
    """Has no decimals."""

    def log(self, metrics, *, step):
        super().log({name: float(round(value)) for name, value in metrics.items()}, step=step)


class IsAStepLateMonitor(JsonlMonitor):
    """Counts from 0."""

    def log(self, metrics, *, step):
        super().log(metrics, step=step - 1)


class EmptiesWhatItGetsMonitor(JsonlMonitor):
    """Cleans up."""

    def log(self, metrics, *, step):
        super().log(dict(metrics), step=step)
        metrics.clear()


class ForgetsTheEndMonitor(JsonlMonitor):
    """Does not write what it has at its end."""

    def __init__(self, *, directory, role) -> None:
        super().__init__(directory=directory, role=role)
        self.lines = []

    def log(self, metrics, *, step):
        self.lines.append((dict(metrics), step))
        if len(self.lines) > 5:
            first, number = self.lines.pop(0)
            super().log(first, step=number)


class LeavesOutLongNamesMonitor(JsonlMonitor):
    """Has narrow columns."""

    def log(self, metrics, *, step):
        kept = {name: value for name, value in metrics.items() if len(name) <= 24}
        super().log(kept, step=step)


class EmptiesMetricsAdvisor(Advisor):
    """Cleans up."""

    def observe(self, seen):
        seen.metrics.clear()


class RaisesAdvisor(Advisor):
    """Expects a metric that is not always there."""

    def observe(self, seen):
        if seen.step >= 2:
            return seen.metrics["a/metric/that/nobody/logs"]
        return None


class AlwaysWarnsAdvisor(Advisor):
    """Has one opinion."""

    def observe(self, seen):
        return Advice(seen=f"step {seen.step} is a step", remedy="Do not train")
