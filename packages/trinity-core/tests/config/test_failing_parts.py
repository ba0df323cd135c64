"""A part whose own code fails while a configuration is read is named, with its line."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.problem import listed
from trinity.errors import PluginError
from trinity.extend import PluginManager, set_manager

PARTS = """
from functools import wraps

from trinity.algorithm import ADVANTAGE_FN, ALGORITHM_TYPE, POLICY_LOSS_FN
from trinity.algorithm import AdvantageFn, AlgorithmType, PolicyLossFn
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.common.workflows import WORKFLOWS, Workflow
from trinity.extend import ComponentSpec, hookimpl


@POLICY_LOSS_FN.register_module("calls_a_base_that_takes_nothing")
class Loss(PolicyLossFn):
    def __init__(self, backend: str = "verl") -> None:
        super().__init__(behind=backend)

    def __call__(self, logprob, **kwargs):
        return logprob.sum(), {}


def no_small_groups(config):
    if config.algorithm.repeat_times < 8:
        yield config.source.problem("algorithm.repeat_times", "is less than 8.", "Set it to 8.")


@hookimpl
def trinity_advantage_fns():
    target = "trinity.algorithm.advantage_fn.grpo:GRPOAdvantageFn"
    return {
        "checks": ComponentSpec(target, checks=f"{__name__}:no_small_groups"),
        "checks_nothing": ComponentSpec(target, checks=f"{__name__}:missing"),
        "has_no_model": ComponentSpec(target, args_model=f"{__name__}:missing"),
    }


@ADVANTAGE_FN.register_module("has_no_defaults")
class Advantage(AdvantageFn):
    def __call__(self, exps, **kwargs):
        return exps, {}

    @classmethod
    def default_args(cls):
        return cls.missing


@ALGORITHM_TYPE.register_module("has_no_config")
class NoConfig(AlgorithmType):
    @classmethod
    def default_config(cls):
        raise KeyError("tau")


@ALGORITHM_TYPE.register_module("asserts")
class Asserts(AlgorithmType):
    @classmethod
    def default_config(cls):
        return {"repeat_times": 2, "advantage_fn": "grpo", "kl_loss_fn": "none"}

    @classmethod
    def check_config(cls, config):
        assert config.mode == "train", "only in mode train"


@REWARD_FUNCTIONS.register_module("likes_length")
class LikesLength(RewardFn):
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def __call__(self, *, response, truth=None, longest=8, **kwargs):
        return {"length": self.scale * min(len(response), longest)}


@REWARD_FUNCTIONS.register_module("scores_nothing")
class ScoresNothing(RewardFn):
    pass


@POLICY_LOSS_FN.register_module("misspells_a_field")
class MisspellsAField(PolicyLossFn):
    def __call__(self, log_probs, advantages, response_mask, *, old_log_probs, clip=0.2):
        return log_probs.sum(), {}


@POLICY_LOSS_FN.register_module("reads_a_bonus")
class ReadsABonus(PolicyLossFn):
    def __call__(self, logprob, bonus, whole_action_mask, epsilon=0.1, **kwargs):
        return logprob.sum(), {}


@POLICY_LOSS_FN.register_module("as_published")
class AsPublished(PolicyLossFn):
    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        return logprob.sum(), {}

    @property
    def select_keys(self):
        return ["old_logprob", "action_mask", "advantages", "nobody_gives_this"]


@ADVANTAGE_FN.register_module("wants_groups")
class WantsGroups(AdvantageFn):
    def __call__(self, exps, groups):
        return exps, {}


@ADVANTAGE_FN.register_module("wants_names")
class WantsNames(AdvantageFn):
    def __call__(self, *, exps):
        return exps, {}


@ADVANTAGE_FN.register_module("adds_a_bonus")
class AddsABonus(AdvantageFn):
    def __call__(self, exps):
        exps["bonus"] = exps["rewards"]
        return exps, {}


def with_groups(call):
    @wraps(call)
    def called(self, exps, **kwargs):
        return call(self, exps, {}, **kwargs)

    return called


@ADVANTAGE_FN.register_module("is_given_groups_by_a_decorator")
class IsGivenGroups(AdvantageFn):
    @with_groups
    def __call__(self, exps, groups, **kwargs):
        return exps, {}


@WORKFLOWS.register_module("has_no_run")
class HasNoRun(Workflow):
    pass


class Runs(Workflow):
    def run(self):
        return []


@WORKFLOWS.register_module("wants_a_url")
class WantsAUrl(Runs):
    def __init__(self, task, model, auxiliary_models, url):
        super().__init__(task=task, model=model)


@WORKFLOWS.register_module("leaves_judges_out")
class LeavesJudgesOut(Runs):
    def __init__(self, task, model):
        super().__init__(task=task, model=model)


@WORKFLOWS.register_module("in_the_older_order")
class InTheOlderOrder(Runs):
    def __init__(self, model, task, auxiliary_models=None, **options):
        super().__init__(task=task, model=model)
"""

ADDING = """
from trinity.algorithm import ADVANTAGE_FN, AdvantageFn


@ADVANTAGE_FN.register_module("adds_what_it_is_told")
class Adds(AdvantageFn):
    def __init__(self, field="bo" + "nus"):
        self.field = field

    def __call__(self, exps):
        exps[self.field] = exps["rewards"]
        return exps, {}
"""


@pytest.fixture
def file(tmp_path):
    """Return the file of the parts, whose folder is in use as ``--plugin-dir``."""
    path = tmp_path / "parts" / "failing.py"
    path.parent.mkdir()
    path.write_text(dedent(PARTS).lstrip())
    before = set_manager(PluginManager.discover(env={}, plugin_dirs=[str(path.parent)]))
    yield path
    set_manager(before)


@pytest.fixture
def problems(file, cpu, a_run):
    """Return a function that gives what is wrong with a run of these settings."""

    def found(*overrides: str) -> str:
        config = resolve(load_config(a_run(), overrides=overrides), cpu)
        return "\n".join(listed(check(config, cpu)))

    return found


def line_of(text: str) -> int:
    return dedent(PARTS).lstrip().splitlines().index(text) + 1


def test_a_constructor_that_fails_is_a_problem_with_the_line_in_it(problems, file) -> None:
    found = problems("algorithm.policy_loss_fn=calls_a_base_that_takes_nothing")

    line = line_of("        super().__init__(behind=backend)")
    assert "algorithm.policy_loss_fn_args: Loss cannot be built with them: TypeError: " in found
    assert f" at {file}:{line}. Correct them." in found


def test_defaults_that_fail_name_their_part_and_line(problems, file) -> None:
    with pytest.raises(PluginError) as raised:
        problems("algorithm.advantage_fn=has_no_defaults")

    text = "default_args() of advantage_fn has_no_defaults failed: AttributeError: "
    assert str(raised.value).startswith(text)
    assert f" at {file}:{line_of('        return cls.missing')}. " in str(raised.value)


def test_the_defaults_of_an_algorithm_that_fail_name_it_and_the_line(problems, file) -> None:
    with pytest.raises(PluginError) as raised:
        problems("algorithm.algorithm_type=has_no_config")

    line = line_of('        raise KeyError("tau")')
    text = f"default_config() of algorithm has_no_config failed: KeyError: 'tau' at {file}:{line}."
    assert str(raised.value).startswith(text)


def test_an_algorithms_own_check_may_fail_by_an_assertion(problems, file) -> None:
    found = problems("algorithm.algorithm_type=asserts")

    assert "its check_config() failed: AssertionError: only in mode train at " in found


def test_a_reward_takes_arguments_of_its_calls_and_knows_a_misspelt_one(problems) -> None:
    taskset = "buffer.explorer_input.taskset"
    settings = [f"{taskset}.default_reward_fn_type=likes_length"]
    args = f"{taskset}.reward_fn_args"

    assert problems(*settings, f"{args}={{scale: 2.0, longest: 4}}") == ""
    assert "Did you mean 'longest'? It takes: scale, longest." in problems(
        *settings, f"{args}={{longst: 4}}"
    )


def test_a_component_in_use_checks_the_configuration_itself(problems) -> None:
    found = problems("algorithm.advantage_fn=checks")

    assert found.endswith(":3: algorithm.repeat_times: is less than 8. Set it to 8.")
    assert problems("algorithm.advantage_fn=checks", "algorithm.repeat_times=8") == ""


def test_checks_that_cannot_be_called_are_named(problems) -> None:
    with pytest.raises(PluginError, match=r"missing of advantage_fn checks_nothing failed: "):
        problems("algorithm.advantage_fn=checks_nothing")


def test_a_model_of_arguments_that_is_not_there_is_named(problems) -> None:
    with pytest.raises(PluginError, match=r"^args_model .*missing of advantage_fn has_no_model "):
        problems("algorithm.advantage_fn=has_no_model")


@pytest.mark.parametrize(
    ("kind", "name", "what"),
    [
        ("workflow", "has_no_run", "HasNoRun does not define run(). Define it."),
        ("workflow", "wants_a_url", "auxiliary_models: missing a required argument: 'url'. Let "),
        ("workflow", "leaves_judges_out", "unexpected keyword argument 'auxiliary_models'. Let "),
        ("reward_fn", "scores_nothing", "ScoresNothing does not define __call__(). Define it."),
    ],
)
def test_a_class_that_no_run_could_build_is_a_problem_at_its_key(
    problems, file, kind, name, what
) -> None:
    key = f"buffer.explorer_input.taskset.default_{kind}_type"
    found = problems(f"{key}={name}")

    assert f"{key}: {name} (plugin-dir {file}) is no {kind}: " in found
    assert what in found


def test_a_workflow_of_the_older_order_is_built_by_name(problems) -> None:
    key = "buffer.explorer_input.taskset.default_workflow_type"

    assert problems(f"{key}=in_the_older_order") == ""


def test_a_loss_that_names_a_field_that_nobody_passes_is_a_problem_at_its_key(
    problems, file
) -> None:
    found = problems("algorithm.policy_loss_fn=misspells_a_field")

    line = line_of("class MisspellsAField(PolicyLossFn):") + 1
    whose = f"misspells_a_field (plugin-dir {file}) cannot be called at {file}:{line}: it"
    assert f"algorithm.policy_loss_fn: {whose} needs 'log_probs', which Trinity does not " in found
    assert "Did you mean 'logprob'? Fields of the batch are passed, by name: logprob, " in found
    assert "or take it in __init__ (policy_loss_fn_args)." in found
    assert len(found.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("wants_groups", "missing a required argument: 'groups'"),
        ("wants_names", "too many positional arguments"),
    ],
)
def test_an_advantage_function_that_a_batch_alone_cannot_call_is_a_problem(
    name, why, problems, file
) -> None:
    found = problems(f"algorithm.advantage_fn={name}")

    assert (
        f"algorithm.advantage_fn: {name} (plugin-dir {file}) cannot be called at {file}:" in found
    )
    assert f": {why}. It is passed the batch, by position, and nothing " in found
    assert len(found.splitlines()) == 1


@pytest.mark.parametrize(
    "setting",
    [
        "policy_loss_fn=as_published",
        "advantage_fn=is_given_groups_by_a_decorator",
        "advantage_fn=adds_a_bonus",
    ],
)
def test_what_a_train_step_calls_without_an_error_is_no_problem(setting, problems) -> None:
    assert problems(f"algorithm.{setting}") == ""


def test_a_field_of_the_users_own_is_no_problem_where_a_component_names_it(problems) -> None:
    loss, adds = "algorithm.policy_loss_fn=reads_a_bonus", "algorithm.advantage_fn=adds_a_bonus"

    assert "reads_a_bonus" in problems(loss)
    assert problems(loss, adds) == ""


def test_a_field_that_an_unknown_component_may_add_is_only_noticed(file, cpu, a_run) -> None:
    (file.parent / "adding.py").write_text(ADDING)
    set_manager(PluginManager.discover(env={}, plugin_dirs=[str(file.parent)]))
    settings = ["policy_loss_fn=reads_a_bonus", "advantage_fn=adds_what_it_is_told"]
    config = resolve(load_config(a_run(), overrides=[f"algorithm.{s}" for s in settings]), cpu)

    (found,) = check(config, cpu)
    assert (found.severity, "needs 'bonus'" in found.message) == ("notice", True)


def test_a_name_that_is_gone_is_told_with_what_the_run_was_started_with(
    problems, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoints" / "Trinity-RFT" / "rft"
    folder.mkdir(parents=True)
    row = {"distribution": "rooms-of-mine", "version": "1.2", "path": None}
    here = {"distribution": "trinity-core", "version": "0.1.0", "path": None}
    (folder / "plugins.json").write_text(json.dumps([here, row]))

    found = problems("algorithm.policy_loss_fn=of_rooms")

    assert found.endswith(
        "This run was started with rooms-of-mine==1.2, which is not installed now. "
        "Run: python -m pip install rooms-of-mine==1.2"
    )
