"""A reward that differs from answer to answer of a random model, so that weights change."""

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("share_of_letters")
class ShareOfLetters(RewardFn):
    def __call__(self, response=None, **kwargs):
        return {"letters": sum(map(str.isalpha, response or "")) / 8}
