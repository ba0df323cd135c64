"""Parts of ``parts`` and ``second`` that may do what they do, by the contract of their kind."""

_METRICS = "what a loss tells as its metrics is its own"
_SELECTOR = "a selector gives any row numbers; only its state and their range are promised"
LEGAL = {
    "experience_operator/copies_the_best": "an operator may add a copy.deepcopy() of an experience",
    "experience_operator/drops_the_last": "an operator filters; experience_pipeline/num_read and "
    "num_written count it",
    "experience_operator/swaps_two_rewards": "an operator changes experiences: rewards, masks",
    "entropy_loss_fn/reports_one": _METRICS,
    "experience_operator/drops_in_silence": "an operator filters; experience_pipeline/num_read and "
    "num_written count it",
    "experience_operator/reverses_rewards": "an operator changes experiences: rewards, masks",
    "policy_loss_fn/reports_zero": _METRICS,
    "priority_fn/keeps_nothing": "what is not worth keeping is read once, and not again",
    "reward_fn/marks_the_info": "a reward may add to info, as published ones do",
    "task_selector/loves_the_first_row": _SELECTOR,
    "task_selector/never_the_last": _SELECTOR,
    "task_selector/skips_the_last_row": _SELECTOR,
    "task_selector/stays_at_the_start": _SELECTOR,
    "workflow/picks_the_best": "a workflow asks as often as it likes, and says which answers count",
    "workflow/rotates_rewards": "a workflow says what each of its rollouts is worth",
    "workflow/swaps_neighbours": "a workflow says what each of its rollouts is worth",
}
