"""Which mistake is there for which check: at least one for each.

The components stand in ``wrong_*_parts.py`` and are given by ``wrong_plugin.py``; a mistake of a
whole plugin is a plugin of its own here.
"""

from __future__ import annotations

import ast
import runpy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["PLUGINS", "WRONG", "Wrong", "mistake_of"]

HERE = Path(__file__).parent
GOOD = "TRINITY_PLUGIN_API = 1\n"


@dataclass(frozen=True)
class WrongPlugin:
    """A plugin module with one mistake, in its source or in the metadata around it."""

    mistake: str
    source: str = GOOD
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Wrong:
    """A check, and what it must catch."""

    check: str
    subject: str  # "kind/name" of the plugin `wrong`, or a name of PLUGINS
    also: tuple[str, ...] = ()  # further checks that find the same mistake
    limit_s: float | None = None  # how long a check may take; None: as it says


BUSY = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.2: pass\n"
AT_HOME = """
import sys
if sys.argv[0].endswith("default_worker.py"):
    raise ImportError("it finds its licence only on the machine of its author")
"""

PLUGINS = {
    "torn": WrongPlugin("imports a module that is not there", GOOD + "import nowhere_at_all\n"),
    "silent": WrongPlugin("does not say which plugin API it speaks", "x = 1\n"),
    "nameless": WrongPlugin("has no summary in its metadata", metadata=(("summary", ""),)),
    "unlicensed": WrongPlugin("names no licence", metadata=(("license_expression", ""),)),
    "open": WrongPlugin("lets in every future core", metadata=(("requires", "trinity-core>=0.1"),)),
    "slow": WrongPlugin("computes for 200 ms while it is imported", GOOD + BUSY),
    "heavy": WrongPlugin("imports numpy in the plugin module", GOOD + "import numpy\n"),
    "meddling": WrongPlugin(
        "sets an environment variable while it is imported",
        GOOD + "import os; os.environ['KIT'] = '1'\n",
    ),
    "homebound": WrongPlugin("can be imported in the first process of a run only", GOOD + AT_HOME),
}

EVERY_USE = ("conduct.*", "reward_fn.*")

WRONG = (
    Wrong("static.entry_point", "torn"),
    Wrong("static.api_declared", "silent"),
    Wrong("static.metadata", "nameless"),
    Wrong("static.license", "unlicensed"),
    Wrong("static.requires_core", "open"),
    Wrong("import.budget", "slow"),
    Wrong("import.no_heavy", "heavy", also=("import.*",)),
    Wrong("import.no_side_effects", "meddling"),
    Wrong("component.resolves", "advantage_fn/missing"),
    Wrong("component.resolves", "advantage_fn/args_model_is_missing"),
    Wrong("component.subclass", "advantage_fn/wrong_base"),
    Wrong("component.subclass", "workflow/needs_a_url", also=("conduct.builds",)),
    Wrong("component.subclass", "workflow/has_no_run", also=("conduct.builds",)),
    Wrong("component.documented", "advantage_fn/needs_argument", also=("conduct.builds",)),
    Wrong("component.subclass", "monitor/has_no_base"),
    Wrong("component.abilities", "storage/claims_to_count"),
    Wrong("component.abilities", "storage/half_a_state"),
    Wrong("component.picklable", "advantage_fn/hidden"),
    Wrong("conduct.builds", "advantage_fn/needs_argument", also=("component.documented",)),
    Wrong("conduct.builds", "reward_fn/refuses_to_be_built"),
    Wrong("conduct.ends", "workflow/never_returns", limit_s=6.0),
    Wrong("conduct.ends", "sample_strategy/reads_for_ever", limit_s=6.0),
    Wrong("conduct.ends", "workflow/ends_the_process"),
    Wrong("conduct.ends", "policy_loss_fn/crashes"),
    Wrong("conduct.ends", "reward_fn/calls_exit", also=EVERY_USE),
    Wrong("conduct.ends", "reward_fn/interrupts", also=EVERY_USE),
    Wrong("conduct.settings", "policy_loss_fn/makes_doubles", also=("policy_loss_fn.dtype",)),
    Wrong("conduct.settings", "advantage_fn/turns_gradients_off"),
    Wrong("conduct.settings", "reward_fn/takes_one_thread"),
    Wrong("conduct.settings", "workflow/ignores_overflow"),
    Wrong("conduct.seed", "advantage_fn/seeds_torch"),
    Wrong("conduct.seed", "workflow/seeds_the_world"),
    Wrong("conduct.inputs", "advantage_fn/scales_rewards"),
    Wrong(
        "conduct.inputs",
        "policy_loss_fn/masks_in_place",
        also=("conduct.repeats", "policy_loss_fn.*"),
    ),
    Wrong("conduct.inputs", "reward_fn/writes_to_the_conversation"),
    Wrong("conduct.inputs", "workflow/renames_the_keys"),
    Wrong("conduct.inputs", "sample_strategy/rewards_the_late"),
    Wrong("conduct.inputs", "experience_operator/hides_the_last_token"),
    Wrong("conduct.inputs", "priority_fn/counts_uses"),
    Wrong("conduct.inputs", "kl_fn/clamps_in_place", also=("conduct.repeats",)),
    Wrong(
        "conduct.inputs",
        "entropy_loss_fn/rounds_entropy",
        also=("conduct.repeats", "entropy_loss_fn.*"),
    ),
    Wrong("conduct.repeats", "advantage_fn/keeps_a_baseline"),
    Wrong("workflow.runs_scripted", "workflow/rewards_nan"),
    Wrong("workflow.runs_scripted", "workflow/returns_nothing", also=("workflow.*",)),
    Wrong("workflow.token_ids", "workflow/tokenises_again"),
    Wrong("workflow.token_ids", "workflow/renders_again"),
    Wrong("workflow.token_ids", "workflow/makes_up_logprobs"),
    Wrong("workflow.lengths", "workflow/changes_lengths", also=("workflow.token_ids",)),
    Wrong("workflow.repeats", "workflow/repeats_twice"),
    Wrong("workflow.reset", "workflow/remembers"),
    Wrong("workflow.isolation", "workflow/shares_state"),
    Wrong("workflow.failure_typed", "workflow/hides_failures"),
    Wrong("workflow.failure_typed", "workflow/wraps_failures"),
    Wrong("workflow.cleanup", "workflow/leaves_a_thread"),
    Wrong("workflow.cleanup", "workflow/leaves_a_file"),
    Wrong("workflow.determinism", "workflow/draws_at_random", also=("workflow.*",)),
    Wrong("conduct.inputs", "workflow/changes_its_task", also=("workflow.*",)),
    Wrong("reward_fn.finite", "reward_fn/nan_for_empty"),
    Wrong("reward_fn.finite", "reward_fn/chokes_on_braces"),
    Wrong("reward_fn.finite", "reward_fn/raises_on_odd_text"),
    Wrong("reward_fn.finite", "reward_fn/returns_a_number"),
    Wrong("reward_fn.pure", "reward_fn/counts_calls"),
    Wrong("reward_fn.pure", "reward_fn/keeps_its_first_truth"),
    Wrong("conduct.inputs", "reward_fn/notes_its_score"),
    Wrong("reward_fn.batch_equals_single", "reward_fn/grades_on_a_curve"),
    Wrong("advantage_fn.shape_mask", "advantage_fn/teaches_masked"),
    Wrong("advantage_fn.shape_mask", "advantage_fn/unmasks_all", also=("advantage_fn.masked",)),
    Wrong("advantage_fn.permutation", "advantage_fn/groups_by_place"),
    Wrong("advantage_fn.group_of_one", "advantage_fn/divides_by_spread"),
    Wrong("advantage_fn.equal_rewards", "advantage_fn/claims_zero"),
    Wrong("advantage_fn.no_grad", "advantage_fn/carries_gradient"),
    Wrong("advantage_fn.masked", "advantage_fn/reads_masked"),
    Wrong("policy_loss_fn.scalar", "policy_loss_fn/is_a_vector"),
    Wrong("policy_loss_fn.finite_grad", "policy_loss_fn/overflows"),
    Wrong("policy_loss_fn.masked", "policy_loss_fn/masks_too_late"),
    Wrong("policy_loss_fn.padding", "policy_loss_fn/counts_padding"),
    Wrong("policy_loss_fn.zero_advantage", "policy_loss_fn/claims_zero"),
    Wrong("policy_loss_fn.microbatches", "policy_loss_fn/wrong_normalizer"),
    Wrong(
        "policy_loss_fn.microbatches", "policy_loss_fn/forgets_slowly", also=("conduct.repeats",)
    ),
    Wrong("policy_loss_fn.metrics_plain", "policy_loss_fn/metrics_are_tensors"),
    Wrong("policy_loss_fn.gradient", "policy_loss_fn/is_detached"),
    Wrong("policy_loss_fn.gradient", "policy_loss_fn/is_constant"),
    Wrong("policy_loss_fn.backward", "policy_loss_fn/goes_backward_itself"),
    Wrong("policy_loss_fn.dtype", "policy_loss_fn/is_double"),
    Wrong("policy_loss_fn.direction", "policy_loss_fn/forgets_the_sign"),
    Wrong("policy_loss_fn.direction", "policy_loss_fn/punishes_all"),
    Wrong("kl_fn.shape", "kl_fn/sums_rows"),
    Wrong("kl_fn.zero", "kl_fn/adds_a_bonus"),
    Wrong("kl_fn.positive", "kl_fn/has_the_wrong_sign"),
    Wrong("kl_fn.masked", "kl_fn/reads_masked"),
    Wrong("entropy_loss_fn.scalar", "entropy_loss_fn/is_a_row"),
    Wrong("entropy_loss_fn.masked", "entropy_loss_fn/reads_masked"),
    Wrong("entropy_loss_fn.direction", "entropy_loss_fn/punishes_doubt"),
    Wrong("entropy_loss_fn.direction", "entropy_loss_fn/is_cut_off"),
    Wrong("entropy_loss_fn.mean", "entropy_loss_fn/adds_up"),
    Wrong("experience_operator.returns", "experience_operator/counts_in_words"),
    Wrong("experience_operator.nothing_twice", "experience_operator/repeats_the_best"),
    Wrong("experience_operator.mask", "experience_operator/unmasks_all"),
    Wrong("task_selector.rows", "task_selector/goes_beyond"),
    Wrong("task_selector.state", "task_selector/forgets_its_place"),
    Wrong("reply_parser.total", "reply_parser/raises_on_bad_json"),
    Wrong("reply_parser.malformed", "reply_parser/repairs_a_call"),
    Wrong("reply_parser.plain", "reply_parser/is_silent_without_tools"),
    Wrong("reply_parser.ids", "reply_parser/numbers_its_calls"),
    Wrong("priority_fn.finite", "priority_fn/needs_a_version"),
    Wrong("priority_fn.state", "priority_fn/counts_judgements"),
    Wrong("sample_strategy.nothing_lost", "sample_strategy/drops_one"),
    Wrong("sample_strategy.nothing_twice", "sample_strategy/repeats_one"),
    Wrong("sample_strategy.state", "sample_strategy/forgets_what_it_holds"),
    Wrong("sample_strategy.short_batch", "sample_strategy/halves_batches"),
    Wrong("sample_strategy.ends", "sample_strategy/goes_on_after_the_end"),
    Wrong("sample_strategy.empty", "sample_strategy/makes_a_batch_of_nothing"),
    Wrong("sample_strategy.timeout", "sample_strategy/loses_by_a_timeout"),
    Wrong("sample_strategy.timeout", "sample_strategy/waits_an_hour"),
    Wrong("sample_strategy.order", "sample_strategy/claims_an_order"),
    Wrong("sample_strategy.put_back", "sample_strategy/takes_nothing_back"),
    Wrong("sample_strategy.metrics_plain", "sample_strategy/metric_is_a_word"),
    Wrong("storage.nothing_lost", "storage/drops_the_last", also=("storage.put_back",)),
    Wrong("storage.nothing_twice", "storage/gives_one_twice", also=("storage.put_back",)),
    Wrong("storage.order", "storage/gives_the_newest", also=("storage.put_back",)),
    Wrong("storage.fields", "storage/forgets_the_mask"),
    Wrong("storage.timeout", "storage/takes_too_early"),
    Wrong("storage.wakes", "storage/wakes_nobody"),
    Wrong("storage.close", "storage/never_ends"),
    Wrong("storage.state", "storage/waits_for_one"),
    Wrong("storage.put_back", "storage/puts_back_last"),
    Wrong("storage.two_writers", "storage/has_no_lock"),
    Wrong("trainer.step", "trainer/teaches_nothing"),
    Wrong("trainer.version", "trainer/counts_from_one"),
    Wrong("trainer.copy", "trainer/never_copies"),
    Wrong("trainer.checkpoint", "trainer/forgets_the_optimizer"),
    Wrong("trainer.model_folder", "trainer/saves_no_model"),
    Wrong("trainer.pure", "trainer/changes_its_batch"),
    Wrong("trainer.finite", "trainer/swallows_nan"),
    Wrong("trainer.metrics_plain", "trainer/tells_tensors"),
    Wrong("rollout_engine.completions", "rollout_engine/gives_one_only"),
    Wrong("rollout_engine.completions", "rollout_engine/draws_once"),
    Wrong("rollout_engine.max_new_tokens", "rollout_engine/goes_on_too_long"),
    Wrong("rollout_engine.logprobs", "rollout_engine/tells_the_cut_softmax"),
    Wrong("rollout_engine.greedy", "rollout_engine/takes_the_second"),
    Wrong("rollout_engine.stop", "rollout_engine/stops_nowhere"),
    Wrong("rollout_engine.scores", "rollout_engine/scores_too_well"),
    Wrong("rollout_engine.seeded", "rollout_engine/draws_in_order"),
    Wrong("rollout_engine.structure", "rollout_engine/holds_to_nothing"),
    Wrong("rollout_engine.load_weights", "rollout_engine/keeps_old_weights"),
    Wrong("rollout_engine.close", "rollout_engine/answers_when_closed"),
    Wrong("rollout_engine.cancel", "rollout_engine/dies_of_a_cancel"),
    Wrong("rollout_engine.threads", "rollout_engine/shares_its_prompt"),
    Wrong("rollout_engine.run_keys", "rollout_engine/counts_runs"),
    Wrong("sync_method.all_engines", "sync_method/forgets_the_last"),
    Wrong("sync_method.tensors", "sync_method/changes_the_type"),
    Wrong("sync_method.version", "sync_method/returns_nothing"),
    Wrong("sync_method.failure", "sync_method/hides_failures"),
    Wrong("sync_method.again", "sync_method/syncs_once"),
    Wrong("advisor.takes", "advisor/wants_every_metric"),
    Wrong("advisor.pure", "advisor/marks_the_metrics"),
    Wrong("advisor.quiet", "advisor/always_complains"),
    Wrong("advisor.quick", "advisor/thinks_long"),
    Wrong("monitor.takes", "monitor/chokes_on_nan", also=("monitor.pure",)),
    Wrong("monitor.pure", "monitor/adds_the_step"),
    Wrong("monitor.steps", "monitor/only_goes_on"),
    Wrong("monitor.close", "monitor/closes_once"),
    Wrong("monitor.resume", "monitor/writes_over"),
    Wrong("monitor.roles", "monitor/shares_a_file"),
    Wrong("algorithm.parts", "algorithm/names_nothing"),
    Wrong("algorithm.defaults", "algorithm/misspells_a_key"),
    Wrong("algorithm.needs", "algorithm/needs_a_teacher"),
    Wrong("algorithm.learns", "algorithm/unlearns_what_is_good"),
    Wrong("ray.digest", "homebound"),
    Wrong("ray.component", "reward_fn/stays_at_home"),
    Wrong("ray.component", "reward_fn/ends_the_worker"),
)


def mistake_of(wrong: Wrong) -> str:
    """Return in words what is wrong; of a component, the first line of its docstring."""
    if wrong.subject in PLUGINS:
        return PLUGINS[wrong.subject].mistake
    text = _docstrings().get(_targets()[wrong.subject], "Names a class that is not there.")
    return (text[0].lower() + text[1:]).rstrip(".")


@cache
def _targets() -> dict[str, str]:
    """Return the class of each component, as ``kind/name`` -> its name."""
    from trinity.extend.kinds import KINDS

    hooks = runpy.run_path(str(HERE / "wrong_plugin.py"))
    given = {}
    for kind in KINDS:
        for name, spec in hooks.get(KINDS[kind].hook, dict)().items():
            given[f"{kind}/{name}"] = getattr(spec, "target", spec).rpartition(":")[2]
    return given


@cache
def _docstrings() -> dict[str, str]:
    """Return the first line of each class's docstring."""
    found = {"hidden": "Stands where no other process finds it."}
    for file in HERE.glob("wrong_*_parts.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = (ast.get_docstring(node) or "").splitlines()[0]
    return found
