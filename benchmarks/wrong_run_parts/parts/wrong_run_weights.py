"""Engines, trainers and sync methods that run to their end, each with one mistake."""

import copy
from concurrent.futures import Future
from dataclasses import replace

import torch
from trinity.common.ports import WeightSnapshot
from trinity.engines.transformers_engine import TransformersEngine
from trinity.synchronizer.memory_sync import MemorySync
from trinity.trainer.torch_trainer import TorchTrainer


class Changed(TransformersEngine):
    """Is right: hands on what the embedded engine answers."""

    def submit(self, request):
        own, future = super().submit(request), Future()

        def hand_on(done):
            if done.exception() is not None:
                future.set_exception(done.exception())
            else:
                future.set_result([self.told(one) for one in done.result()])

        own.add_done_callback(hand_on)
        return future

    def told(self, completion):
        return completion


class TellsTooMuch(Changed):
    """Adds 0.3 to each log-probability."""

    def told(self, completion):
        logprobs = tuple(min(0.0, value + 0.3) for value in completion.logprobs)
        return replace(completion, logprobs=logprobs)


class LiesToOneInTen(Changed):
    """Says -1 of every token of each tenth completion."""

    count = 0

    def told(self, completion):
        self.count += 1
        if self.count % 10:
            return completion
        return replace(completion, logprobs=(-1.0,) * len(completion.token_ids))


class SaysNewer(Changed):
    """Says that its weights are one version newer than they are."""

    def told(self, completion):
        return replace(completion, weight_version=completion.weight_version + 1)


class SaysFirst(Changed):
    """Says of every completion that the base model made it."""

    def told(self, completion):
        return replace(completion, weight_version=0)


class CutsTheReply(Changed):
    """Leaves out the last token of each completion."""

    def told(self, completion):
        if len(completion.token_ids) < 2:
            return completion
        return replace(
            completion, token_ids=completion.token_ids[:-1], logprobs=completion.logprobs[:-1]
        )


class WritesOver(Changed):
    """Writes another id over the first token of each completion."""

    def told(self, completion):
        first = (completion.token_ids[0] + 1) % 250
        return replace(completion, token_ids=(first, *completion.token_ids[1:]))


class ColderThanTold(TransformersEngine):
    """Samples at half the temperature that it is asked for, and tells what belongs to that."""

    def submit(self, request):
        return super().submit(replace(request, temperature=request.temperature / 2))


class EveryOtherTime(TransformersEngine):
    """Takes over the weights at every other sync, and the version at all."""

    count = 0

    def load_weights(self, snapshot):
        self.count += 1
        if self.count % 2:
            super().load_weights(snapshot)
        else:
            super().load_weights(WeightSnapshot(version=snapshot.version, tensors=held(self)))


class ForgetsATensor(TransformersEngine):
    """Leaves its last norm as it was."""

    def load_weights(self, snapshot):
        tensors = dict(snapshot.tensors)
        name = "model.norm.weight"
        tensors[name] = held(self)[name]
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


class HalfOldHalfNew(TransformersEngine):
    """Takes the mean of old and new weights."""

    def load_weights(self, snapshot):
        old = held(self)
        tensors = {name: (old[name] + new) / 2 for name, new in snapshot.tensors.items()}
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


class AddsNoise(TransformersEngine):
    """Adds a hundredth of noise to the weights it is given."""

    def load_weights(self, snapshot):
        tensors = {n: t + 0.01 * torch.randn_like(t) for n, t in snapshot.tensors.items()}
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


class RoundsWeights(TransformersEngine):
    """Rounds the weights to bfloat16, where float32 is asked for."""

    def load_weights(self, snapshot):
        tensors = {name: t.bfloat16().float() for name, t in snapshot.tensors.items()}
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


def held(engine):
    return {name: tensor.detach().clone() for name, tensor in engine._module.named_parameters()}


class StepsTwice(TorchTrainer):
    """Trains each batch twice, and counts it once."""

    def train_step(self, experiences, *, step):
        super().train_step(experiences, step=step)
        self._version -= 1
        return super().train_step(experiences, step=step)


class SkipsTheLastRow(TorchTrainer):
    """Trains all rows of a batch but the last."""

    def train_step(self, experiences, *, step):
        return super().train_step(experiences[:-1], step=step)


class RestsEveryThirdStep(TorchTrainer):
    """Trains nothing at every third step, and tells the metrics of the last."""

    last = None

    def train_step(self, experiences, *, step):
        if step % 3 == 0 and self.last is not None:
            self._version += 1
            return dict(self.last)
        self.last = super().train_step(experiences, step=step)
        return dict(self.last)


class GivesYesterdays(TorchTrainer):
    """Gives the weights of the step before, under the version of this one."""

    old = None

    def train_step(self, experiences, *, step):
        self.old = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        return super().train_step(experiences, step=step)

    def snapshot(self, *, copy):
        now = super().snapshot(copy=copy)
        return now if self.old is None else WeightSnapshot(version=now.version, tensors=self.old)


class LeavesOutATensor(TorchTrainer):
    """Gives all weights but the last norm's."""

    def snapshot(self, *, copy):
        now = super().snapshot(copy=copy)
        tensors = {name: t for name, t in now.tensors.items() if name != "model.norm.weight"}
        return WeightSnapshot(version=now.version, tensors=tensors)


class LowersRewards(TorchTrainer):
    """Takes a half off the rewards and advantages of its batch, after the step."""

    def train_step(self, experiences, *, step):
        metrics = super().train_step(experiences, step=step)
        for one in experiences:
            one.reward -= 0.5
            one.advantages -= 0.5
        return metrics


class ClimbsDown(TorchTrainer):
    """Turns all advantages before it trains."""

    def train_step(self, experiences, *, step):
        turned = copy.deepcopy(list(experiences))
        for one in turned:
            one.advantages = -one.advantages
        return super().train_step(turned, step=step)


class SaysAllIsWell(TorchTrainer):
    """Tells a loss and a gradient norm of 0."""

    def train_step(self, experiences, *, step):
        metrics = super().train_step(experiences, step=step)
        return metrics | {"actor/loss": 0.0, "actor/grad_norm": 0.0}


class TrainsOtherTokens(TorchTrainer):
    """Trains the tokens of each row in the reverse order."""

    def train_step(self, experiences, *, step):
        turned = copy.deepcopy(list(experiences))
        for one in turned:
            one.tokens[one.prompt_length :] = one.tokens[one.prompt_length :].flip(0)
        return super().train_step(turned, step=step)


class SendsNothing(MemorySync):
    """Says that all weights went out, and sends none."""

    def sync(self, snapshot):
        return snapshot().version


class SendsTheVersion(MemorySync):
    """Sends the weights that the engines were given first, with the new version."""

    first = None

    def sync(self, snapshot):
        now = snapshot()
        if self.first is None:
            self.first = {name: tensor.clone() for name, tensor in now.tensors.items()}
        return super().sync(lambda: WeightSnapshot(version=now.version, tensors=self.first))


class ScalesAll(MemorySync):
    """Multiplies each weight by 1.01."""

    def sync(self, snapshot):
        now = snapshot()
        tensors = {name: tensor * 1.01 for name, tensor in now.tensors.items()}
        return super().sync(lambda: WeightSnapshot(version=now.version, tensors=tensors))


class FirstEngineOnly(MemorySync):
    """Brings weights to the first engine, and the version to all."""

    def __init__(self, engines):
        super().__init__(engines[:1])
        self.others = list(engines[1:])

    def sync(self, snapshot):
        for engine in self.others:
            engine._answering.version = snapshot().version
        return super().sync(snapshot)


class SwapsTwoTensors(MemorySync):
    """Gives the gate and the up projection of the first layer each other's weights."""

    def sync(self, snapshot):
        now = snapshot()
        tensors, layer = dict(now.tensors), "model.layers.0.mlp."
        one, other = f"{layer}gate_proj.weight", f"{layer}up_proj.weight"
        tensors[one], tensors[other] = tensors[other].clone(), tensors[one].clone()
        return super().sync(lambda: WeightSnapshot(version=now.version, tensors=tensors))


class SaysOneLess(MemorySync):
    """Returns the version before the one that it brought."""

    def sync(self, snapshot):
        return super().sync(snapshot) - 1


class SendsHalf(MemorySync):
    """Sends the tensors of the first layer only."""

    def sync(self, snapshot):
        now = snapshot()
        for engine in self._engines:
            old = held(engine)
            tensors = {n: t if "layers.0" in n else old[n] for n, t in now.tensors.items()}
            engine.load_weights(WeightSnapshot(version=now.version, tensors=tensors))
        return now.version
