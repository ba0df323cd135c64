"""Workflows, rewards and task selectors that run to their end, each with one mistake."""

import copy
import hashlib

import torch
from trinity.buffer.selectors import SequentialSelector
from trinity.common.rewards import RewardFn
from trinity.common.workflows.simple import SimpleWorkflow


class Varied(RewardFn):
    """Is right: a number from 0 to 1 that depends on every token of the response."""

    def __call__(self, *, response_token, **kwargs):
        text = ",".join(str(int(token)) for token in response_token)
        return {"varied": hashlib.sha256(text.encode()).digest()[0] / 255}


class ScoresTheLastOne(Varied):
    """Gives each response the score of the response that was judged before it."""

    last = 0.5

    def __call__(self, *, response_token, **kwargs):
        own = super().__call__(response_token=response_token)["varied"]
        given, type(self).last = type(self).last, own
        return {"varied": given}


class GrowsTired(Varied):
    """Gives 0.5 to all that it judges after the first 20."""

    judged = 0

    def __call__(self, *, response_token, **kwargs):
        type(self).judged += 1
        if self.judged > 20:
            return {"varied": 0.5}
        return super().__call__(response_token=response_token)


class SwapsNeighbours(SimpleWorkflow):
    """Swaps the rewards of the first two runs of a task."""

    def run(self):
        rows = super().run()
        if len(rows) > 1:
            rows[0].reward, rows[1].reward = rows[1].reward, rows[0].reward
        return rows


class SkipsTheLastRun(SimpleWorkflow):
    """Returns all runs of a task but the last."""

    def run(self):
        rows = super().run()
        return rows[:-1] if len(rows) > 1 else rows


class RepeatsARun(SimpleWorkflow):
    """Returns the first run of a task in the place of the last, too."""

    def run(self):
        rows = super().run()
        if len(rows) > 1:
            last = copy.deepcopy(rows[0])
            last.eid = rows[-1].eid
            rows[-1] = last
        return rows


class ShiftsLogprobs(SimpleWorkflow):
    """Gives each token the log-probability of the token before it."""

    def run(self):
        rows = super().run()
        for row in rows:
            row.logprobs = torch.roll(row.logprobs, 1)
        return rows


class SaysCertain(SimpleWorkflow):
    """Says of every token that it was certain."""

    def run(self):
        rows = super().run()
        for row in rows:
            row.logprobs = torch.zeros_like(row.logprobs)
        return rows


class TrainsThePrompt(SimpleWorkflow):
    """Counts the last three tokens of the prompt as the model's own."""

    def run(self):
        rows = super().run()
        for row in rows:
            row.prompt_length -= 3
            row.logprobs = torch.cat([torch.zeros(3), row.logprobs])
            row.action_mask = torch.ones(len(row.logprobs), dtype=torch.bool)
        return rows


class ChangesAToken(SimpleWorkflow):
    """Writes another id over the first token of each response."""

    def run(self):
        rows = super().run()
        for row in rows:
            row.tokens[row.prompt_length] = (row.tokens[row.prompt_length] + 1) % 250
        return rows


class HoldsOn(SimpleWorkflow):
    """Keeps what it returned, and doubles its log-probabilities when it is called again."""

    held = ()

    def run(self):
        for row in self.held:
            row.logprobs *= 2
        type(self).held = super().run()
        return list(self.held)


class AnswersFromMemory(SimpleWorkflow):
    """Gives the responses to the first task for every later one, as if they were made now."""

    first = None

    def run(self):
        rows = super().run()
        if type(self).first is None:
            type(self).first = copy.deepcopy(rows)
            return rows
        for row, old in zip(rows, self.first, strict=False):
            response = old.tokens[old.prompt_length :].clone()
            row.tokens = torch.cat([row.tokens[: row.prompt_length], response])
            row.logprobs, row.action_mask = old.logprobs.clone(), old.action_mask.clone()
        return rows


class NeverTheLast(SequentialSelector):
    """Never gives the last row, and the first one twice an epoch."""

    def order(self, epoch):
        return [row % (self.num_rows - 1) for row in range(self.num_rows)]


class StaysAtTheStart(SequentialSelector):
    """Gives the first two rows, again and again."""

    def order(self, epoch):
        return [row % 2 for row in range(self.num_rows)]
