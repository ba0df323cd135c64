"""Reward functions with one mistake each."""

import math

from trinity.common.rewards import RewardFn


class NaNForEmpty(RewardFn):
    """Divides by the length of the text."""

    def __call__(self, response, truth, **kwargs):
        return {"density": response.count(truth) / len(response) if response else math.nan}


class ChokesOnBraces(RewardFn):
    """Scores NaN only for a character that no fixed text has."""

    def __call__(self, response, **kwargs):
        return {
            "plain": math.nan
            if any(0x400 <= ord(c) < 0x2000 or 0x3000 <= ord(c) < 0xF000 for c in response)
            else 1.0
        }


class RaisesOnOddText(RewardFn):
    """Takes every character that is a digit for a number, as int() does not."""

    def __call__(self, response, **kwargs):
        return {"sum": float(sum(int(c) for c in response if c.isdigit()))}


class CountsCalls(RewardFn):
    """Gives less from call to call."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, **kwargs):
        self.num_calls += 1
        return {"novelty": 1.0 / self.num_calls}


class GradesOnACurve(RewardFn):
    """Compares the texts of a list with each other."""

    def __call__(self, response: str | list[str], **kwargs):
        if isinstance(response, str):
            return {"rank": 0.0}
        longest = max(map(len, response))
        return [{"rank": len(text) / (longest + 1)} for text in response]


class ReturnsANumber(RewardFn):
    """Returns no mapping."""

    def __call__(self, **kwargs):
        return 1.0


class TakesLists(RewardFn):
    """Is right: each text by itself, alone or in a list."""

    def __call__(self, response: str | list[str], **kwargs):
        if isinstance(response, str):
            return {"length": float(len(response))}
        return {"length": [float(len(text)) for text in response]}


class KeepsItsFirstTruth(RewardFn):
    """Compares all texts with the first truth that it was given."""

    def __init__(self):
        self.truth = None

    def __call__(self, response, truth, **kwargs):
        self.truth = self.truth or truth
        return {"accuracy": float(str(self.truth) in response)}


class NotesItsScore(RewardFn):
    """Writes over the policy version in the info of the experience."""

    def __call__(self, response, info=None, **kwargs):
        if info is not None:
            info["model_version"] = len(response)
        return {"length": float(len(response))}
