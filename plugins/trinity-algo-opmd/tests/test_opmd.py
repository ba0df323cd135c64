from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from trinity.algorithm import ADVANTAGE_FN, ALGORITHM_TYPE, POLICY_LOSS_FN
from trinity.algorithm.kl_fn import K2KLFn
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience
from trinity.extend import get_manager
from trinity_algo_opmd.advantage import OPMDAdvantageFn, OPMDBatchAdvantageFn
from trinity_algo_opmd.algorithm import OPMDAlgorithm
from trinity_algo_opmd.loss import OPMDPolicyLossFn

GOLDEN = Path(__file__).parent / "golden"


def golden_cases(file, fn):
    cases = json.loads((GOLDEN / f"{file}.json").read_text())
    return [pytest.param(case, id=case["id"]) for case in cases if case["fn"] == fn]


def tensor(value):
    dtype = torch.bool if value["dtype"] == "bool" else torch.float64
    return torch.tensor(value["data"], dtype=dtype).reshape(value["shape"])


def a_row(reward, *, task=0, run=0, mask=(1, 1)):
    return Experience(
        tokens=[7] * (1 + len(mask)),
        prompt_length=1,
        reward=reward,
        action_mask=list(mask),
        eid=EID(0, task, run),
    )


def advantages_of(rewards, **args):
    rows = [a_row(reward, run=run) for run, reward in enumerate(rewards)]
    batch, _ = OPMDAdvantageFn(**args)(ExperienceBatch.from_experiences(rows))
    return batch["advantages"][:, 0].tolist()


@pytest.mark.parametrize("case", golden_cases("opmd_advantage", "opmd"))
def test_the_advantage_agrees_with_the_golden_cases(case):
    rows = [
        Experience(
            tokens=[7] * (1 + len(row["action_mask"])),
            reward=row["reward"],
            action_mask=row["action_mask"],
            eid=EID(**row["eid"]),
        )
        for row in case["inputs"]["experiences"]
    ]
    batch = ExperienceBatch.from_experiences(rows)
    batch["rewards"] = torch.tensor([row.reward for row in rows], dtype=torch.float64)
    batch["token_level_rewards"] = batch["token_level_rewards"].double()

    batch, metrics = OPMDAdvantageFn(**case["args"])(batch)

    ids = [str(row.eid) for row in rows]
    assert [ids.index(str(exp.eid)) for exp in batch.experiences] == case["outputs"]["order"]
    assert metrics == pytest.approx(case["outputs"]["metrics"], rel=1e-9)
    for row, expected in enumerate(case["outputs"]["advantages"]):
        got = batch["advantages"][row, : len(expected)].tolist()
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", golden_cases("opmd_advantage", "opmd_verl"))
def test_the_advantage_on_token_rewards_agrees_with_the_golden_cases(case):
    inputs = case["inputs"]
    fields = {name: tensor(inputs[name]) for name in ("token_level_rewards", "response_mask")}
    rows = [a_row(0.0, run=run) for run in range(len(inputs["uid"]))]
    batch = ExperienceBatch(rows, fields=fields, non_tensor_fields={"uid": inputs["uid"]})

    batch, _ = OPMDBatchAdvantageFn(**case["args"])(batch)

    expected = tensor(case["outputs"]["advantages"])  # in the trainer, rows stay where they are
    torch.testing.assert_close(batch["advantages"], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", golden_cases("opmd_policy_loss", "opmd"))
def test_the_loss_agrees_with_the_golden_cases(case):
    fields = {name: tensor(value) for name, value in case["inputs"].items()}
    fields["logprob"].requires_grad_()
    loss, metrics = OPMDPolicyLossFn(**case["args"])(
        fields["logprob"], fields["action_mask"], fields["advantages"]
    )
    loss.backward()

    assert loss.item() == pytest.approx(case["outputs"]["loss"], rel=1e-6, abs=1e-9)
    if "metrics" in case["outputs"]:
        assert metrics == pytest.approx(case["outputs"]["metrics"], rel=1e-6, abs=1e-9)
    expected = tensor(case["outputs"]["grad_logprob"])
    torch.testing.assert_close(fields["logprob"].grad, expected, rtol=1e-6, atol=1e-9)


def test_the_mean_of_1_and_0_leaves_plus_and_minus_a_half():
    assert advantages_of([1.0, 0.0]) == [0.5, -0.5]


def test_logavgexp_of_1_and_0_is_0_6201():
    # tau ln((e^1 + e^0) / 2) with tau = 1: ln(1.85914) = 0.62011
    assert advantages_of([1.0, 0.0], opmd_baseline="logavgexp") == pytest.approx(
        [1.0 - 0.62011, -0.62011], abs=1e-5
    )


@pytest.mark.parametrize("baseline", ["mean", "logavgexp"])
@pytest.mark.parametrize("reward", [0.7, 5000.0])
def test_equal_rewards_teach_exactly_nothing(baseline, reward):
    assert advantages_of([reward] * 5, opmd_baseline=baseline, tau=0.1) == [0.0] * 5


@pytest.mark.parametrize("baseline", ["mean", "logavgexp"])
def test_a_group_of_one_keeps_its_reward(baseline):
    assert advantages_of([3.0], opmd_baseline=baseline) == [3.0]


def test_masked_tokens_have_no_advantage():
    rows = [a_row(1.0, mask=(1, 0, 1)), a_row(0.0, run=1, mask=(0, 1, 1))]
    batch, _ = OPMDAdvantageFn()(ExperienceBatch.from_experiences(rows))

    assert batch["advantages"].tolist() == [[0.5, 0.0, 0.5], [0.0, -0.5, -0.5]]


def test_the_loss_is_the_mean_of_minus_a_logprob_by_1_plus_tau():
    # tokens: -(2 * -1) = 2 and -(-1 * -3) = -3; mean -0.5; / (1 + 3)
    loss, metrics = OPMDPolicyLossFn(tau=3.0)(
        torch.tensor([[-1.0, -3.0, math.nan]]),
        torch.tensor([[True, True, False]]),
        torch.tensor([[2.0, -1.0, 1e30]]),
    )

    assert loss.item() == pytest.approx(-0.125)
    assert metrics == {"opmd_loss": pytest.approx(-0.125)}


def test_the_regulariser_is_half_the_squared_distance_from_the_reference():
    # ((0.4)^2 + (0.2)^2) / 2 / 2 tokens = 0.05, times kl_coef 0.1
    loss, metrics = K2KLFn(kl_coef=0.1).calculate_kl_loss(
        torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.4, -1.8]]), torch.tensor([[True, True]])
    )

    assert loss.item() == pytest.approx(0.005)
    assert metrics["kl_loss"] == pytest.approx(0.05)


def test_a_misspelt_baseline_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"opmd_baseline is 'men'\. Did you mean 'mean'\?"):
        OPMDAdvantageFn(opmd_baseline="men")


@pytest.mark.parametrize(("part", "tau"), [(OPMDAdvantageFn, 0.0), (OPMDPolicyLossFn, -0.1)])
def test_a_tau_that_makes_no_sense_is_refused(part, tau):
    with pytest.raises(ValueError, match=f"tau is {tau}"):
        part(tau=tau)


def test_the_published_defaults_are_kept():
    assert OPMDAdvantageFn.default_args() == {"opmd_baseline": "mean", "tau": 1.0}
    assert OPMDPolicyLossFn.default_args() == {"tau": 1.0, "loss_agg_mode": "token-mean"}
    assert OPMDPolicyLossFn().select_keys == ["action_mask", "advantages"]
    assert OPMDAlgorithm.default_config() == {
        "repeat_times": 2,
        "sample_strategy": "warmup",
        "policy_loss_fn": "opmd",
        "advantage_fn": "opmd",
        "kl_penalty_fn": "none",
        "kl_loss_fn": "k2",
        "entropy_loss_fn": "default",
    }


def test_the_parts_arrive_by_the_entry_point():
    assert ADVANTAGE_FN.get("opmd") is OPMDAdvantageFn
    assert POLICY_LOSS_FN.get("opmd") is OPMDPolicyLossFn
    assert ALGORITHM_TYPE.get("opmd") is OPMDAlgorithm
    assert get_manager().find("algorithm", "opmd").origin.distribution == "trinity-algo-opmd"


def test_the_published_import_path_leads_to_the_plugin():
    from trinity.algorithm.advantage_fn import opmd

    assert opmd.OPMDAdvantageFn is OPMDAdvantageFn
