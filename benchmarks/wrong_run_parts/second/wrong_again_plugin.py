"""The second set of wrong parts: written from the pages of the kinds, by somebody else.

Each part is a built-in one, or the example of its page, that is wrong in one respect. They were
written without a look at the audit, at the first set or at what looks for either.
"""

from __future__ import annotations

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1
QUEUE = frozenset({"waiting", "put_back", "drop_older", "in_order"})
ENGINE = frozenset({"logprobs", "seeded_by_key", "weights:memory", "scores", "stop_strings"})
ENGINE |= {"busy_s", "in_flight", "structure"}
TRAINER = frozenset({"ref_logprob", "entropys"})
IN_ORDER = frozenset({"in_order"})

ROLLOUTS = {
    "workflow/answers_from_memory": "gives the first answers to a question again in each epoch",
    "workflow/adds_a_token": "appends a token that nobody sampled, with log-probability 0",
    "workflow/trains_the_prompt": "lets the response begin at the second token of the prompt",
    "workflow/hides_its_temperature": "samples at temperature 0.5 and says 1",
    "workflow/rotates_rewards": "gives each answer the reward of the one before",
    "workflow/shifts_logprobs": "gives each token the log-probability of its neighbour",
    "workflow/backdates": "says that weights three steps older sampled the answer",
    "workflow/keeps_the_rewarded": "leaves out the answers of the least reward",
    "workflow/joins_answers": "appends the next answer to each, as if it had followed it",
    "workflow/picks_the_best": "asks for twice as many answers and keeps the better half",
    "reward_fn/asks_the_clock": "rewards in even milliseconds",
    "reward_fn/keeps_the_first_truth": "compares with the first truth that it was given",
    "reward_fn/tires": "gives 0 after forty calls",
    "reward_fn/marks_the_info": "writes its score to the info that it was given",
    "reward_fn/is_finite_in_double": "scores 1e300, which float32 does not hold",
    "task_selector/gives_fewer_later": "gives a row less than asked for from the third call on",
    "task_selector/loves_the_first_row": "gives row 0 each time",
    "task_selector/skips_the_last_row": "never gives the last row",
    "rollout_engine/is_greedy": "takes the likeliest token whatever the temperature",
    "rollout_engine/samples_sharper": "samples at 0.6 of the temperature, and says what that gives",
    "rollout_engine/says_version_zero": "says that the base model sampled each reply",
    "rollout_engine/loads_half": "takes every second weight of a sync",
    "rollout_engine/loads_the_last_but_one": "takes the weights of the sync before",
    "rollout_engine/repeats_a_sample": "gives the first sample n times",
    "rollout_engine/misses_a_sample": "gives a sample less than asked for",
    "rollout_engine/ends_with_certainty": "gives the last token of each reply log-probability 0",
    "rollout_engine/sorts_logprobs": "gives the log-probabilities of a reply in ascending order",
    "rollout_engine/rounds_weights": "rounds the weights of a sync to bfloat16",
    "rollout_engine/goes_beyond": "samples three tokens more than it was allowed",
    "rollout_engine/answers_the_last_prompt": "continues each prompt without its last token",
}
ALGORITHM = {
    "advantage_fn/opens_the_mask": "sets the mask of all tokens, and scores them all",
    "advantage_fn/forgets_the_logprobs": "sets the batch's old log-probabilities to 0",
    "advantage_fn/swaps_groups": "gives each group the scores of the next one",
    "advantage_fn/halves_rewards_later": "halves the rewards of the call before",
    "advantage_fn/renames_runs": "makes all rows run 0 of their task",
    "advantage_fn/renews_the_version": "says that the newest weights sampled each row",
    "advantage_fn/drops_with_licence": "says that it changes rows, and drops every other one",
    "advantage_fn/knows_one_group": "scores the first group and gives all others 0",
    "policy_loss_fn/takes_the_neighbours": "weighs each row by the advantage of the row before",
    "policy_loss_fn/rests": "is 0 in every second call",
    "policy_loss_fn/edits_advantages_later": "negates the advantages in place from call 4 on",
    "policy_loss_fn/reports_zero": "says that its loss is 0",
    "policy_loss_fn/keeps_all": "keeps each graph that it made",
    "policy_loss_fn/drops_at_random": "drops a tenth of the tokens by torch's generator",
    "policy_loss_fn/teaches_early_tokens": "detaches the later half of the columns",
    "kl_fn/compares_with_itself": "compares the policy with itself",
    "kl_fn/rewards_distance": "is negative, so that distance is rewarded",
    "kl_fn/grows_its_weight": "doubles its coefficient in each call",
    "entropy_loss_fn/is_detached": "detaches the entropy that it weighs",
    "entropy_loss_fn/sums": "sums whatever the mode says",
    "entropy_loss_fn/reports_one": "says that the entropy is 1",
    "algorithm/imitates": "trains the likelihood of what was sampled, whatever its reward",
    "algorithm/wants_pairs": "says that its rows are preference pairs",
    "algorithm/has_no_advantage": "says that it needs no advantages, with a loss that does",
}
BUFFER = {
    "experience_operator/reverses_rewards": "gives the first experience the last one's reward",
    "experience_operator/joins_tasks": "makes all experiences those of task 0",
    "experience_operator/copies_under_a_name": "lets a copy of the best go on under another id",
    "experience_operator/edits_later": "sets log-probabilities of the step before to 0",
    "experience_operator/cuts_the_end": "cuts the last two tokens of each response off",
    "experience_operator/unmasks": "sets the mask of all tokens",
    "experience_operator/holds_back": "lets an experience of each step go on with the next step",
    "experience_operator/makes_them_young": "says that newer weights sampled the experiences",
    "experience_operator/cools": "says that the temperature was 0.7",
    "experience_operator/drops_in_silence": "drops every eleventh experience without a metric",
    "sample_strategy/trains_and_puts_back": "puts what it gives back into the buffer",
    "sample_strategy/repeats_an_old_row": "gives a row of the step before instead of the last one",
    "sample_strategy/skips_the_last_later": "leaves out the last row from the third step on",
    "sample_strategy/zeroes_rewards_later": "sets advantages to 0 from the fourth step on",
    "sample_strategy/claims_order": "says that it keeps the order, and shuffles",
    "sample_strategy/takes_nothing_back": "forgets what is given back to it",
    "storage/flips_a_token": "changes a token of every thirteenth experience",
    "storage/keeps_halves": "keeps log-probabilities in float16",
    "storage/mixes_rewards": "exchanges the rewards of the first two experiences of a read",
    "storage/says_nothing_waits": "says that nothing is there to be read",
    "storage/gives_the_end_again": "gives the last batch again after its end",
    "storage/forgets_info": "stores experiences without their info",
    "storage/empties_by_looking": "takes what it shows as waiting",
    "storage/renumbers": "gives every experience the id of the first of its batch",
    "storage/drops_the_oldest": "keeps the newest twelve experiences",
    "priority_fn/judges_late": "sets the reward of what it judged thrice to 0",
    "priority_fn/keeps_nothing": "says that nothing is worth keeping",
    "reply_parser/raises": "raises where a tool call is no JSON",
    "reply_parser/loses_text": "gives no content where there are no tools",
    "reply_parser/repairs": "completes a tool call that was cut off",
}
WEIGHTS = {
    "trainer/halves_batches": "trains the first half of each batch",
    "trainer/trains_twice": "makes two optimizer steps of a batch and counts one",
    "trainer/gives_old_weights": "gives the weights of the step before under the new version",
    "trainer/undoes_its_steps": "takes each of its steps back",
    "trainer/counts_double": "counts two versions for a step",
    "trainer/reports_the_last_step": "gives the metrics of the step before",
    "trainer/sorts_rewards": "sorts the advantages of a batch among its rows",
    "trainer/copies_nothing": "gives its own tensors where a copy is asked for",
    "trainer/ignores_advantages": "trains every row with advantage 1",
    "sync_method/serves_the_first": "sends weights to the first engine only",
    "sync_method/says_newer": "returns a version that nobody has yet",
    "sync_method/rests": "sends nothing every second time",
    "sync_method/adds_noise": "adds noise of 1e-4 to a weight",
    "sync_method/swaps_layers": "exchanges two weights of one shape",
    "monitor/averages": "logs the mean of this value and the last",
    "monitor/counts_in_whole_numbers": "rounds to whole numbers",
    "monitor/is_a_step_late": "writes metrics under the step before",
    "monitor/empties_what_it_gets": "empties the mapping that it was given",
    "monitor/forgets_the_end": "keeps lines in memory and writes those that are five old",
    "monitor/leaves_out_long_names": "leaves out metrics with long names",
    "advisor/empties_metrics": "empties the metrics that it observes",
    "advisor/raises": "raises at the second step",
    "advisor/always_warns": "gives the same advice whatever it sees",
}
MODULES = {"rollout_engine": "engines", "priority_fn": "others", "reply_parser": "others"}
PROVIDES = {"storage": QUEUE, "rollout_engine": ENGINE, "trainer": TRAINER}


def all_parts() -> dict[str, tuple[ComponentSpec, str]]:
    """Return each part with what is wrong about it."""
    lists = {"rollouts": ROLLOUTS, "algorithm": ALGORITHM, "buffer": BUFFER, "weights": WEIGHTS}
    found = {}
    for module, parts in lists.items():
        for subject, text in parts.items():
            kind, name = subject.split("/")
            provides = IN_ORDER if name == "claims_order" else PROVIDES.get(kind, frozenset())
            own = MODULES.get(kind, module)
            target = f"wrong_again_{own}:{_class_of(name, kind)}"
            found[subject] = ComponentSpec(target, provides=provides), text
    return found


def _class_of(name: str, kind: str) -> str:
    return "".join(word.title() for word in [*name.split("_"), *kind.split("_")])


def _named(kind: str) -> dict[str, ComponentSpec]:
    parts = all_parts().items()
    return {key.split("/")[1]: spec for key, (spec, _) in parts if key.startswith(f"{kind}/")}


@hookimpl
def trinity_workflows():
    return _named("workflow")


@hookimpl
def trinity_reward_fns():
    return _named("reward_fn")


@hookimpl
def trinity_task_selectors():
    return _named("task_selector")


@hookimpl
def trinity_rollout_engines():
    return _named("rollout_engine")


@hookimpl
def trinity_advantage_fns():
    return _named("advantage_fn")


@hookimpl
def trinity_policy_loss_fns():
    return _named("policy_loss_fn")


@hookimpl
def trinity_kl_fns():
    return _named("kl_fn")


@hookimpl
def trinity_entropy_loss_fns():
    return _named("entropy_loss_fn")


@hookimpl
def trinity_algorithm_types():
    return _named("algorithm")


@hookimpl
def trinity_experience_operators():
    return _named("experience_operator")


@hookimpl
def trinity_sample_strategies():
    return _named("sample_strategy")


@hookimpl
def trinity_storages():
    return _named("storage")


@hookimpl
def trinity_priority_fns():
    return _named("priority_fn")


@hookimpl
def trinity_reply_parsers():
    return _named("reply_parser")


@hookimpl
def trinity_trainers():
    return _named("trainer")


@hookimpl
def trinity_sync_methods():
    return _named("sync_method")


@hookimpl
def trinity_monitors():
    return _named("monitor")


@hookimpl
def trinity_advisors():
    return _named("advisor")
