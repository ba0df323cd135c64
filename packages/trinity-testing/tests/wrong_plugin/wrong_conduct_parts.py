"""Components that do something beside their work, one thing each."""

import contextlib
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import torch
from trinity.algorithm import AdvantageFn, EntropyLossFn, KLFn, PolicyLossFn, SampleStrategy
from trinity.buffer.operators import ExperienceOperator
from trinity.common.ports import PriorityFn
from trinity.common.rewards import RewardFn
from wrong_loss_parts import Right as RightLoss
from wrong_workflow_parts import Right as RightWorkflow


class NeverReturns(RightWorkflow):
    """Waits for what never comes."""

    def run(self):
        threading.Event().wait()


class ReadsForEver(SampleStrategy):
    """Begins its buffer anew where it ends, and looks for a row that is not there."""

    def sample(self, step):
        while True:
            time.sleep(0.01)
            with contextlib.suppress(StopIteration):
                self.source.read(1, timeout_s=self.read_timeout_s)


class CallsExit(RewardFn):
    """Calls sys.exit() where it cannot judge."""

    def __call__(self, **kwargs):
        sys.exit("no judge")


class EndsTheProcess(RightWorkflow):
    """Ends the process without a word."""

    def run(self):
        os._exit(5)


class Crashes(PolicyLossFn):
    """Crashes as a wrong kernel does."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        os.kill(os.getpid(), signal.SIGSEGV)


class Interrupts(RewardFn):
    """Raises what only a person at the keyboard may."""

    def __call__(self, **kwargs):
        raise KeyboardInterrupt


class MakesDoubles(RightLoss):
    """Makes float64 the default type of all later tensors."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        torch.set_default_dtype(torch.float64)
        return super().__call__(logprob, action_mask, advantages)


class TurnsGradientsOff(AdvantageFn):
    """Turns gradients off and leaves them off."""

    def __call__(self, exps, **kwargs):
        torch.set_grad_enabled(False)
        exps["advantages"] = exps["rewards"][:, None] * exps["action_mask"]
        return exps, {}


class TakesOneThread(RewardFn):
    """Lets torch have one thread from now on."""

    def __call__(self, **kwargs):
        torch.set_num_threads(1)
        return {"calm": 1.0}


class IgnoresOverflow(RightWorkflow):
    """Tells numpy to be silent about overflow."""

    def run(self):
        np.seterr(all="ignore")
        return super().run()


class SeedsTorch(AdvantageFn):
    """Seeds torch, so that each step of the trainer draws the same numbers."""

    def __call__(self, exps, **kwargs):
        torch.manual_seed(0)
        exps["advantages"] = exps["rewards"][:, None] * exps["action_mask"]
        return exps, {}


class SeedsTheWorld(RightWorkflow):
    """Seeds the interpreter's generator."""

    def run(self):
        random.seed(42)
        return super().run()


class ScalesRewards(AdvantageFn):
    """Halves the rewards in place, which metrics and other parts read."""

    def __call__(self, exps, **kwargs):
        exps["rewards"].mul_(0.5)
        exps["advantages"] = exps["rewards"][:, None] * exps["action_mask"]
        return exps, {}


class MasksInPlace(RightLoss):
    """Zeroes masked advantages in the batch's own tensor, those of positive ones too."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss = super().__call__(logprob, action_mask, advantages)
        advantages.clamp_(max=0.5)
        return loss


class WritesToTheConversation(RewardFn):
    """Appends its own question to the conversation that it judges."""

    def __call__(self, messages=(), **kwargs):
        if messages:
            messages.append({"role": "user", "content": "Is that right?"})
        return {"asked": 1.0}


class RenamesTheKeys(RightWorkflow):
    """Sets another key in the format that all runs of the task set share."""

    def run(self):
        made = super().run()
        self.task.format_args.prompt_key = "problem"
        return made


class RewardsTheLate(SampleStrategy):
    """Raises the reward of what it samples."""

    def sample(self, step):
        batch = self.source.read(self.train_batch_size, timeout_s=self.read_timeout_s)
        for experience in batch:
            experience.reward += 1.0
        return batch, {}


class HidesTheLastToken(ExperienceOperator):
    """Writes an end-of-text token over what was sampled."""

    def process(self, exps):
        for experience in exps:
            experience.tokens[-1] = 0
        return exps, {}


class CountsUses(PriorityFn):
    """Counts a use where it only judges."""

    def __call__(self, experiences):
        info = experiences[0].info
        info["use_count"] = info.get("use_count", 0) + 1
        return 1.0, True


class KeepsABaseline(AdvantageFn):
    """Subtracts a mean over all calls so far, which no checkpoint holds."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def __call__(self, exps, **kwargs):
        self.total += float(exps["rewards"].sum()) + self.count
        self.count += len(exps)
        scores_B = exps["rewards"] - self.total / self.count
        exps["advantages"] = scores_B[:, None] * exps["action_mask"]
        return exps, {}


class RefusesToBeBuilt(RewardFn):
    """Raises in its constructor."""

    def __init__(self):
        raise ValueError("the judge's address is not set")

    def __call__(self, **kwargs):
        return {"judged": 1.0}


class ClampsInPlace(KLFn):
    """Clamps the reference's log-probabilities in place."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        estimate = 0.5 * (ref_logprob - logprob).square()
        ref_logprob.clamp_(max=-1.05)
        return estimate


class RoundsEntropy(EntropyLossFn):
    """Rounds the entropy in place."""

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs):
        value = torch.where(action_mask, entropy, 0.0).sum() / action_mask.sum()
        entropy.round_(decimals=2)
        return self.entropy_coef * value, {}
