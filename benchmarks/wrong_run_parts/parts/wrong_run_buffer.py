"""Sample strategies, operators and storages that run to their end, each with one mistake."""

import copy

import torch
from trinity.algorithm.sample_strategy.strategies import DefaultSampleStrategy
from trinity.buffer.queue import QueueStorage
from trinity.common.operators import ExperienceOperator


class DropsEverySeventh(DefaultSampleStrategy):
    """Reads one more than it gives, in every other step."""

    def sample(self, step):
        size = self.train_batch_size
        count = size - step % 2
        rows, metrics = super().sample(step)
        return rows[:count], metrics


class TrainsABatchTwice(DefaultSampleStrategy):
    """Gives copies of the last batch at every third step, and drops the batch of that step."""

    last = None

    def sample(self, step):
        rows, metrics = super().sample(step)
        if step % 3 == 0 and self.last is not None:
            return copy.deepcopy(self.last), metrics
        self.last = rows
        return rows, metrics


class CopiesARow(DefaultSampleStrategy):
    """Gives a copy of the first row in the place of the last."""

    def sample(self, step):
        rows, metrics = super().sample(step)
        return [*rows[:-1], copy.deepcopy(rows[0])], metrics


class SwapsRewards(DefaultSampleStrategy):
    """Swaps the advantages of the first two rows of a batch."""

    def sample(self, step):
        rows, metrics = super().sample(step)
        one, other = rows[:2]
        length = min(len(one.advantages), len(other.advantages))
        kept = one.advantages[:length].clone()
        one.advantages[:length] = other.advantages[:length]
        other.advantages[:length] = kept
        return rows, metrics


class KeepsTheFirst(DefaultSampleStrategy):
    """Keeps the first batch for itself and gives it to nobody."""

    def sample(self, step):
        if step == 1:
            self.kept = self.source.read(4, timeout_s=self.read_timeout_s)
        return super().sample(step)


class SmoothsLogprobs(DefaultSampleStrategy):
    """Takes the mean log-probability of a row for each of its tokens."""

    def sample(self, step):
        rows, metrics = super().sample(step)
        for row in rows:
            row.logprobs[:] = row.logprobs.mean()
        return rows, metrics


class ChangesLate(DefaultSampleStrategy):
    """Turns the advantages of what it gives, while it reads the next batch."""

    held = ()

    def sample(self, step):
        rows, metrics = super().sample(step)
        for row in self.held:
            row.advantages *= -1
        self.held = rows
        return rows, metrics


class DropsTheLast(ExperienceOperator):
    """Drops the last experience, without a word."""

    def process(self, exps):
        return exps[:-1], {}


class SwapsTwoRewards(ExperienceOperator):
    """Swaps the rewards of the first two experiences."""

    def process(self, exps):
        exps[0].reward, exps[1].reward = exps[1].reward, exps[0].reward
        return exps, {}


class WritesTokens(ExperienceOperator):
    """Writes a token of its own over the first of each response."""

    def process(self, exps):
        for one in exps:
            one.tokens[one.prompt_length] = 11
        return exps, {}


class SharpensLogprobs(ExperienceOperator):
    """Halves the log-probabilities."""

    def process(self, exps):
        for one in exps:
            one.logprobs = one.logprobs * 0.5
        return exps, {}


class ComesBack(ExperienceOperator):
    """Keeps what it returned, and gives it other rewards and advantages when it is called again."""

    held = ()

    def process(self, exps):
        for one in self.held:
            one.reward = 0.0
            if one.advantages is not None:
                one.advantages.zero_()
        self.held = list(exps)
        return exps, {}


class CopiesTheBest(ExperienceOperator):
    """Adds a copy of the experience with the highest reward, under the same id."""

    def process(self, exps):
        return [*exps, copy.deepcopy(max(exps, key=lambda one: one.reward))], {}


class MovesRewards(ExperienceOperator):
    """Gives each experience the id of the next."""

    def process(self, exps):
        ids = [one.eid for one in exps]
        for one, eid in zip(exps, ids[1:] + ids[:1], strict=True):
            one.eid = eid
        return exps, {}


class DropsOneIn97(QueueStorage):
    """Drops one experience in 97."""

    seen = 0

    def write(self, experiences):
        kept = []
        for one in experiences:
            self.seen += 1
            if self.seen % 97:
                kept.append(one)
        super().write(kept)


class DropsAGroup(QueueStorage):
    """Drops what is written third."""

    written = 0

    def write(self, experiences):
        self.written += 1
        if self.written != 3:
            super().write(experiences)


class GivesOneTwice(QueueStorage):
    """Gives a copy of the first experience of the last read in the place of the first of a read."""

    last = None

    def read(self, count, *, timeout_s, min_model_version=0):
        rows = super().read(count, timeout_s=timeout_s, min_model_version=min_model_version)
        if self.last is not None:
            rows[0] = copy.deepcopy(self.last)
        self.last = rows[-1]
        return rows


class SwapsRewardsOfNeighbours(QueueStorage):
    """Swaps rewards and advantages of two neighbours of equal length."""

    def write(self, experiences):
        rows = list(experiences)
        rows[0].reward, rows[1].reward = rows[1].reward, rows[0].reward
        one, other = rows[0].advantages, rows[1].advantages
        rows[0].advantages = other[:1].expand(len(one)).clone()
        rows[1].advantages = one[:1].expand(len(other)).clone()
        super().write(rows)


class RoundsLogprobs(QueueStorage):
    """Keeps log-probabilities to half a unit."""

    def write(self, experiences):
        for one in experiences:
            one.logprobs = (one.logprobs * 2).round() / 2
        super().write(experiences)


class ForgetsAdvantages(QueueStorage):
    """Gives every tenth experience without its advantages' sign."""

    def read(self, count, *, timeout_s, min_model_version=0):
        rows = super().read(count, timeout_s=timeout_s, min_model_version=min_model_version)
        for one in rows[::10]:
            one.advantages = one.advantages.abs()
        return rows


class CutsTheEnd(QueueStorage):
    """Keeps all tokens of an experience but the last."""

    def write(self, experiences):
        for one in experiences:
            if one.response_length > 1:
                one.tokens = one.tokens[:-1]
                for name in ("logprobs", "action_mask", "advantages", "returns"):
                    value = getattr(one, name)
                    setattr(one, name, None if value is None else value[:-1])
        super().write(experiences)


class CrossesIds(QueueStorage):
    """Gives two neighbours each other's ids."""

    def write(self, experiences):
        rows = list(experiences)
        rows[0].eid, rows[1].eid = rows[1].eid, rows[0].eid
        super().write(rows)


class FlipsABit(QueueStorage):
    """Changes one token id of one experience of each read."""

    def read(self, count, *, timeout_s, min_model_version=0):
        rows = super().read(count, timeout_s=timeout_s, min_model_version=min_model_version)
        rows[-1].tokens = rows[-1].tokens.clone()
        rows[-1].tokens[rows[-1].prompt_length] ^= 1
        return rows


class Unmasks(QueueStorage):
    """Gives all with an action mask that is False at every other token."""

    def read(self, count, *, timeout_s, min_model_version=0):
        rows = super().read(count, timeout_s=timeout_s, min_model_version=min_model_version)
        for one in rows:
            one.action_mask = torch.arange(len(one.action_mask)) % 2 == 0
        return rows


class GivesInAnyOrder(QueueStorage):
    """Gives each batch backwards."""

    def read(self, count, *, timeout_s, min_model_version=0):
        rows = super().read(count, timeout_s=timeout_s, min_model_version=min_model_version)
        return rows[::-1]
