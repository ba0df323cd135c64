"""Algorithms with one mistake each, and the parts that they are made of."""

from trinity.algorithm import AdvantageFn, AlgorithmType, KLFn


class Backwards(AdvantageFn):
    """Takes the mean for better than the best; every rule of advantages holds."""

    def __call__(self, exps, **kwargs):
        mask_BR = exps["action_mask"]
        scores_B = exps["rewards"].clone()
        for rows in exps.groups().values():
            scores_B[rows] = exps["rewards"][rows].mean() - exps["rewards"][rows]
        exps["advantages"] = scores_B[:, None] * mask_BR
        exps["returns"] = exps["advantages"].clone()
        return exps, {}


class TeacherKL(KLFn):
    """Compares with a teacher that no part provides."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return logprob - ref_logprob


class Grouped(AlgorithmType):
    """Compares the runs of a task with each other."""

    @classmethod
    def default_config(cls):
        return {"repeat_times": 2, "advantage_fn": "grpo", "kl_loss_fn": "none"}


class NamesNothing(Grouped):
    """Names a loss that no plugin gives."""

    @classmethod
    def default_config(cls):
        return super().default_config() | {"policy_loss_fn": "nowhere_loss"}


class MisspellsAKey(Grouped):
    """Sets a key that the configuration does not have."""

    @classmethod
    def default_config(cls):
        return super().default_config() | {"repeat_time": 4}


class NeedsATeacher(Grouped):
    """Has a part with a need, and tells nobody."""

    @classmethod
    def default_config(cls):
        return super().default_config() | {"kl_loss_fn": "teacher"}


class UnlearnsWhatIsGood(Grouped):
    """Makes bad answers likelier: an advantage with the wrong sign."""

    @classmethod
    def default_config(cls):
        return super().default_config() | {"advantage_fn": "backwards"}
