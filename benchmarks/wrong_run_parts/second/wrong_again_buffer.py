"""Wrong operators, sample strategies and storages."""

from __future__ import annotations

import copy
import random
from collections import deque
from dataclasses import replace

import torch
from trinity.algorithm import SampleStrategy
from trinity.buffer.queue import QueueStorage


class _Operator:
    """Lets everything go on."""

    def process(self, exps):
        for exp in exps:
            self.change(exp)
        return exps, {}

    def change(self, exp):
        """Change one of them."""

    def close(self) -> None:
        """Free nothing."""


class ReversesRewardsExperienceOperator(_Operator):
    """Mixes up rewards."""

    def process(self, exps):
        rewards = [exp.reward for exp in exps]
        for exp, reward in zip(exps, reversed(rewards), strict=True):
            exp.reward = reward
        return exps, {}


class JoinsTasksExperienceOperator(_Operator):
    """Makes one group of all."""

    def change(self, exp):
        exp.eid = replace(exp.eid, task=0)


class CopiesUnderANameExperienceOperator(_Operator):
    """Has a favourite."""

    def process(self, exps):
        best = copy.deepcopy(max(exps, key=lambda exp: exp.reward or 0.0))
        best.eid = replace(best.eid, suffix="again")
        return [*exps, best], {}


class EditsLaterExperienceOperator(_Operator):
    """Changes what it no longer owns."""

    before = ()

    def process(self, exps):
        for exp in self.before:
            exp.logprobs.zero_()
        self.before = list(exps)
        return exps, {}


class CutsTheEndExperienceOperator(_Operator):
    """Thinks that answers are too long."""

    def change(self, exp):
        if exp.response_length > 2:
            for name in ("tokens", "logprobs", "action_mask"):
                setattr(exp, name, getattr(exp, name)[:-2])


class UnmasksExperienceOperator(_Operator):
    """Teaches every token."""

    def change(self, exp):
        exp.action_mask = torch.ones_like(exp.action_mask)


class HoldsBackExperienceOperator(_Operator):
    """Is one experience behind."""

    kept = ()

    def process(self, exps):
        going, self.kept = [*self.kept, *exps[:-1]], exps[-1:]
        return going, {}


class MakesThemYoungExperienceOperator(_Operator):
    """Renames weights."""

    def change(self, exp):
        exp.info["model_version"] = (exp.info.get("model_version") or 0) + 3


class CoolsExperienceOperator(_Operator):
    """Renames the temperature."""

    def change(self, exp):
        exp.temperature = 0.7


class DropsInSilenceExperienceOperator(_Operator):
    """Does not say what it drops."""

    num_seen = 0

    def process(self, exps):
        kept = []
        for exp in exps:
            self.num_seen += 1
            if self.num_seen % 11:
                kept.append(exp)
        return kept, {}


class _Strategy(SampleStrategy):
    """Reads what comes next."""

    def sample(self, step):
        rows = self.source.read(self.train_batch_size, timeout_s=self.read_timeout_s)
        return self.changed(rows, step), {}

    def changed(self, rows, step):
        return rows


class TrainsAndPutsBackSampleStrategy(_Strategy):
    """Never ends."""

    def changed(self, rows, step):
        if step % 3 == 0:
            self.source.put_back(rows[:1])
        return rows


class RepeatsAnOldRowSampleStrategy(_Strategy):
    """Trains a row again in the next step."""

    kept = None

    def changed(self, rows, step):
        given = [*rows[:-1], self.kept] if self.kept is not None else rows
        self.kept = copy.deepcopy(rows[0])
        return given


class SkipsTheLastLaterSampleStrategy(_Strategy):
    """Loses a row a step, later."""

    def changed(self, rows, step):
        return rows[:-1] if step >= 3 else rows


class ZeroesRewardsLaterSampleStrategy(_Strategy):
    """Takes what was to be learned away, later."""

    def changed(self, rows, step):
        for row in rows if step >= 4 else ():
            row.advantages.zero_()
        return rows


class ClaimsOrderSampleStrategy(_Strategy):
    """Shuffles the rows of a batch."""

    def changed(self, rows, step):
        random.Random(step).shuffle(rows)
        return rows


class TakesNothingBackSampleStrategy(_Strategy):
    """Loses what was not used."""

    def put_back(self, experiences):
        """Forget them."""


class FlipsATokenStorage(QueueStorage):
    """Is bad memory."""

    num_written = 0

    def write(self, experiences):
        for one in experiences:
            self.num_written += 1
            if self.num_written % 13 == 0:
                one.tokens[-1] = (one.tokens[-1] + 1) % 50
        super().write(experiences)


class KeepsHalvesStorage(QueueStorage):
    """Saves memory."""

    def write(self, experiences):
        for one in experiences:
            one.logprobs = one.logprobs.half().float()
        super().write(experiences)


class MixesRewardsStorage(QueueStorage):
    """Exchanges what belongs to two."""

    def read(self, count, *, timeout_s, min_model_version=0):
        rows = super().read(count, timeout_s=timeout_s, min_model_version=min_model_version)
        if len(rows) > 1:
            first, second = rows[:2]
            first.reward, second.reward = second.reward, first.reward
            first.advantages, second.advantages = (
                second.advantages[:1].expand(first.response_length).clone(),
                first.advantages[:1].expand(second.response_length).clone(),
            )
        return rows


class SaysNothingWaitsStorage(QueueStorage):
    """Does not say what it has."""

    def available(self):
        return 0


class GivesTheEndAgainStorage(QueueStorage):
    """Does not know that it ended."""

    last = None

    def read(self, count, *, timeout_s, min_model_version=0):
        try:
            self.last = super().read(
                count, timeout_s=timeout_s, min_model_version=min_model_version
            )
        except StopIteration:
            given, self.last = self.last, None
            if given is None:
                raise
            return given
        return list(self.last)


class ForgetsInfoStorage(QueueStorage):
    """Keeps tensors alone."""

    def write(self, experiences):
        super().write([replace(one, info={}) for one in experiences])


class EmptiesByLookingStorage(QueueStorage):
    """Loses what a checkpoint looks at."""

    def waiting(self):
        shown = super().waiting()
        self._batches = deque()
        return shown


class RenumbersStorage(QueueStorage):
    """Has one id a batch."""

    def write(self, experiences):
        super().write([replace(one, eid=experiences[0].eid) for one in experiences])


class DropsTheOldestStorage(QueueStorage):
    """Is small, and does not say so."""

    def write(self, experiences):
        super().write(list(experiences)[-12:])
