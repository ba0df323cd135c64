"""Parts of ``parts`` that may do what they do, by the contract of their kind."""

_SELECTOR = "a selector gives any row numbers; only its state and their range are promised"
LEGAL = {
    "experience_operator/copies_the_best": "an operator may add a copy.deepcopy() of an experience",
    "experience_operator/drops_the_last": "an operator filters; experience_pipeline/num_read and "
    "num_written count it",
    "experience_operator/swaps_two_rewards": "an operator changes experiences: rewards, masks",
    "task_selector/never_the_last": _SELECTOR,
    "task_selector/stays_at_the_start": _SELECTOR,
    "workflow/swaps_neighbours": "a workflow says what each of its rollouts is worth",
}
