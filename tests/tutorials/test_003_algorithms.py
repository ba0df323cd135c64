"""003: the developer guide, algorithms and the older workflow form."""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch
from trinity.algorithm import (
    ADVANTAGE_FN,
    ALGORITHM_TYPE,
    POLICY_LOSS_FN,
    AdvantageFn,
    AlgorithmType,
    ExperienceModel,
    PolicyLossFn,
)
from trinity.algorithm.ops import masked_mean
from trinity.common.workflows import Task, Workflow
from trinity.monitor.jsonl import read_metrics
from trinity_testing.builders import a_batch
from trinity_testing.scripted_model import scripted_model


class MeanBaseline(AdvantageFn):
    """An advantage function that is written to verl's field names."""

    def __init__(self, opmd_baseline: str = "mean", tau: float = 1.0) -> None:
        self.opmd_baseline = opmd_baseline
        self.tau = tau

    def __call__(self, exps, **kwargs):
        mask = exps.batch["response_mask"].float()
        scores = exps.batch["token_level_rewards"].sum(dim=-1)
        groups: dict[str, list[int]] = {}
        for row, uid in enumerate(exps.non_tensor_batch["uid"]):
            groups.setdefault(uid, []).append(row)
        for members in groups.values():
            scores[members] = scores[members] - scores[members].mean()
        exps.batch["advantages"] = scores[:, None] * mask
        exps.batch["returns"] = exps.batch["advantages"]
        return exps, {"score": scores.mean().item()}

    @classmethod
    def default_args(cls):
        return {"opmd_baseline": "mean", "tau": 1.0}


class PlainGradient(PolicyLossFn):
    def __init__(self, tau: float = 1.0) -> None:
        self.tau = tau

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss = masked_mean(-advantages * logprob, action_mask) / (1.0 + self.tau)
        return loss, {"opmd_loss": loss.detach().item()}

    @classmethod
    def default_args(cls):
        return {"tau": 1.0}


def test_P072_the_older_positional_order_warns_once() -> None:
    class Older(Workflow):
        def __init__(self, model, task, auxiliary_models):
            super().__init__(model, task, auxiliary_models)

        def run(self):
            return []

    task, model = Task(workflow=Older, raw_task={}), scripted_model("2")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        workflow = task.to_workflow(model)

    assert (workflow.task, workflow.model) == (task, model)
    told = [w for w in caught if issubclass(w.category, DeprecationWarning)]
    assert len(told) == 1
    assert "task=" in str(told[0].message)


def test_P075_P080_and_P138_the_published_names_are_importable() -> None:
    algorithm = importlib.import_module("trinity.algorithm")
    for name in ("SampleStrategy", "KLFn", "EntropyLossFn", "KL_FN", "ENTROPY_LOSS_FN"):
        assert hasattr(algorithm, name)
    advantage = importlib.import_module("trinity.algorithm.advantage_fn")
    assert advantage.ADVANTAGE_FN is ADVANTAGE_FN
    assert advantage.AdvantageFn is AdvantageFn


def test_P076_P140_and_P141_an_advantage_function_reads_verls_names() -> None:
    batch, metrics = MeanBaseline()(a_batch(rewards=((1.0, 0.0),)))

    assert batch["advantages"][:, 0].tolist() == [0.5, -0.5]
    assert metrics == {"score": 0.0}


def test_P077_and_P082_a_loss_gets_the_fields_that_it_names() -> None:
    loss_fn = PlainGradient()

    assert set(loss_fn.select_keys) == {"action_mask", "advantages"}
    # -(0.5 * -1 + 0.5 * -2) / 2 tokens / (1 + tau) = 0.75 / 2
    loss, metrics = loss_fn(
        torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]]), torch.tensor([[0.5, 0.5]])
    )
    assert loss.item() == pytest.approx(0.375)
    assert metrics["opmd_loss"] == pytest.approx(0.375)


def test_P080_the_decorator_puts_a_class_where_yaml_finds_it(a_process) -> None:
    ADVANTAGE_FN.register_module("tutorial_baseline")(MeanBaseline)
    POLICY_LOSS_FN.register_module("tutorial_loss")(PlainGradient)

    assert ADVANTAGE_FN.get("tutorial_baseline") is MeanBaseline
    assert POLICY_LOSS_FN.get("tutorial_loss") is PlainGradient


def test_P083_and_P146_an_algorithm_type_has_the_published_attributes(a_process) -> None:
    class Mine(AlgorithmType):
        """An algorithm."""

        use_critic: bool = False
        use_reference: bool = True
        use_advantage: bool = True
        can_balance_batch: bool = True
        schema: type = ExperienceModel

        @classmethod
        def default_config(cls):
            return {"repeat_times": 2, "advantage_fn": "tutorial_baseline"}

    ALGORITHM_TYPE.register_module("tutorial_algorithm")(Mine)

    assert ALGORITHM_TYPE.get("tutorial_algorithm").default_config()["repeat_times"] == 2


def test_P081_P084_and_P145_opmd_comes_from_its_plugin_with_the_seven_defaults() -> None:
    assert ALGORITHM_TYPE.get("opmd").default_config() == {
        "repeat_times": 2,
        "sample_strategy": "warmup",
        "policy_loss_fn": "opmd",
        "advantage_fn": "opmd",
        "kl_penalty_fn": "none",
        "kl_loss_fn": "k2",
        "entropy_loss_fn": "default",
    }
    assert ADVANTAGE_FN.get("opmd").default_args() == {"opmd_baseline": "mean", "tau": 1.0}


def test_P139_the_tutorials_module_path_is_served_by_the_plugin() -> None:
    module = importlib.import_module("trinity.algorithm.advantage_fn.opmd")

    assert module.OPMDAdvantageFn is ADVANTAGE_FN.get("opmd")


def test_P142_masked_mean_by_hand() -> None:
    values = torch.tensor([1.0, 2.0, 1e30])

    assert masked_mean(values, torch.tensor([True, True, False])).item() == pytest.approx(1.5)


def test_P086_given_arguments_merge_over_the_defaults(tmp_path) -> None:
    from trinity.common.config import load_config, probe, resolve

    path = tmp_path / "run.yaml"
    path.write_text(
        "algorithm:\n  algorithm_type: opmd\n  repeat_times: 8\n"
        "  advantage_fn_args: {opmd_baseline: logavgexp}\n  policy_loss_fn_args: {tau: 0.99}\n"
    )

    config = resolve(load_config(path, env={}), probe())

    assert config.algorithm.repeat_times == 8
    assert config.algorithm.advantage_fn_args == {"opmd_baseline": "logavgexp", "tau": 1.0}
    assert config.algorithm.policy_loss_fn_args["tau"] == 0.99


@pytest.mark.slow
def test_P085_and_P143_opmd_alone_in_the_yaml_trains_and_logs_its_loss(
    config_dict, write_yaml, trinity, run_dir
) -> None:
    config_dict["algorithm"] = {"algorithm_type": "opmd"}

    ended = trinity("run", "--local", "--config", write_yaml(config_dict))

    assert ended.code == 0, ended.stderr
    (plugins,) = [line for line in ended.stdout.splitlines() if line.startswith("plugins: ")]
    assert "opmd" in plugins
    logged = read_metrics(run_dir / "monitor")
    assert any(name.endswith("opmd_loss") for row in logged for name in row)


def test_P081_plugins_show_prints_both_arguments_with_their_defaults(trinity) -> None:
    shown = trinity("plugins", "show", "advantage_fn/opmd").stdout

    assert "opmd_baseline: Baseline = 'mean'" in shown
    assert "tau: float = 1.0" in shown


@pytest.fixture
def show(tmp_path, trinity):
    """Return a function that reads ``trinity config show``: path -> (value, origin)."""

    def lines(text: str) -> dict[str, tuple[str, str]]:
        (tmp_path / "run.yaml").write_text(text)
        shown = trinity("config", "show", "run.yaml").stdout.splitlines()
        pairs = [line.partition(" = ") for line in shown if " = " in line]
        return {
            path: tuple(part.strip() for part in rest.partition(" # ")[::2])
            for path, _, rest in pairs
        }

    return lines


def test_P084_and_P145_opmd_alone_shows_the_seven_values_and_their_origin(show) -> None:
    shown = show("algorithm:\n  algorithm_type: opmd\n")

    expected = {
        "repeat_times": "2",
        "sample_strategy": "'warmup'",
        "advantage_fn": "'opmd'",
        "policy_loss_fn": "'opmd'",
        "kl_penalty_fn": "'none'",
        "kl_loss_fn": "'k2'",
        "entropy_loss_fn": "'default'",
    }
    assert {key: shown[f"algorithm.{key}"] for key in expected} == {
        key: (value, "algorithm opmd") for key, value in expected.items()
    }


def test_P086_config_show_prints_what_the_yaml_overrides_and_what_it_leaves(show) -> None:
    shown = show(
        "algorithm:\n  algorithm_type: opmd\n  repeat_times: 8\n"
        "  advantage_fn_args: {opmd_baseline: logavgexp}\n  policy_loss_fn_args: {tau: 0.99}\n"
    )

    assert shown["algorithm.repeat_times"] == ("8", "run.yaml:3")
    assert shown["algorithm.advantage_fn_args.opmd_baseline"] == ("'logavgexp'", "run.yaml:4")
    assert shown["algorithm.advantage_fn_args.tau"] == ("1.0", "advantage_fn opmd")
    assert shown["algorithm.policy_loss_fn_args.tau"] == ("0.99", "run.yaml:5")


@pytest.mark.parametrize("schema", [ExperienceModel, "experience"])
@pytest.mark.slow
def test_P080_P083_P143_and_P146_an_algorithm_of_ones_own_trains_and_logs_its_metrics(
    schema, config_dict, run_it, logged
) -> None:
    class Mine(AlgorithmType):
        """An algorithm."""

        use_critic: bool = False
        use_reference: bool = False
        use_advantage: bool = True
        can_balance_batch: bool = True

        @classmethod
        def default_config(cls):
            return {
                "repeat_times": 2,
                "advantage_fn": "tutorial_baseline",
                "policy_loss_fn": "tutorial_loss",
                "kl_loss_fn": "none",
            }

    Mine.schema = schema
    ADVANTAGE_FN.register_module("tutorial_baseline")(MeanBaseline)
    POLICY_LOSS_FN.register_module("tutorial_loss")(PlainGradient)
    ALGORITHM_TYPE.register_module("tutorial_algorithm")(Mine)
    config_dict["algorithm"] = {"algorithm_type": "tutorial_algorithm"}

    steps = logged(run_it(), "trainer")

    assert [step["perf/num_samples"] for step in steps] == [8.0, 8.0]  # 4 tasks x 2 runs
    for step in steps:
        assert any(name.endswith("opmd_loss") for name in step)
        assert any(name.endswith("/score") for name in step)
