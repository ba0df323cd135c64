"""What the audit of a run finds, on rows, metrics and tensors made by hand."""

from __future__ import annotations

import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.config import Config
from trinity.common.experience import EID, Experience
from trinity.common.ports.trainer import differing, digest_of
from trinity.common.ports.weights import TensorStream
from trinity.extend import get_manager
from trinity.runtime.audit import Audit, AuditError
from trinity.runtime.audited_rows import RowAudit
from trinity.trainer.algorithm_parts import StepAudit


def row(task=0, *, version=0):
    return Experience(
        tokens=torch.tensor([1, 2, 3]),
        logprobs=torch.tensor([-0.5, -1.0]),
        reward=1.0,
        advantages=torch.tensor([0.1, 0.1]),
        eid=EID(task=task),
        info={"model_version": version},
    )


@pytest.fixture
def found():
    return []


@pytest.fixture
def audit(found):
    exact = {"explorer": {"rollout_model": {"dtype": "float32"}}, "audit": "warn"}
    audit = Audit(Config.model_validate(exact), get_manager())
    audit.begin(found, step=0, is_resumed=False, tell=lambda: None)
    return audit


@pytest.fixture
def rows(audit):
    there = []
    audit.rows = RowAudit(audit, num_there=lambda: len(there), knows_all=True, is_newest=True)
    audit.rows.there = there
    return audit.rows


def written(rows, given):
    with rows.writing(given):
        rows.there += [one.eid.uid for one in given]


def read(rows, given, *, min_model_version=0):
    for one in given:
        rows.there.remove(one.eid.uid)
    rows.read(given, min_model_version=min_model_version)


def sampled(rows, given, metrics=None, *, has_state=False):
    rows.sampled(given, metrics or {}, lambda: {1: 1} if has_state else {})


def test_rows_that_arrive_as_they_were_written_are_no_finding(rows, found) -> None:
    batch = [row(0), row(1)]
    written(rows, batch)
    read(rows, batch)
    sampled(rows, batch)
    rows.trained(None)
    rows.finish()

    assert found == []


def test_a_row_that_a_storage_lost_is_found_at_the_next_read(rows, found) -> None:
    one, other = row(0), row(1)
    written(rows, [one, other])
    rows.there.remove(other.eid.uid)
    read(rows, [one])

    assert "lost 1 experiences" in found[0]["message"]
    assert found[0]["check"] == "rows"


def test_rows_that_are_too_old_are_dropped_with_a_reason(rows, audit, found) -> None:
    audit.step = audit.synced = 2
    old, new = row(0, version=2), row(1, version=2)
    written(rows, [old, new])
    rows._waiting["0/0/0/0"] = [(rows._waiting["0/0/0/0"][0][0], 1)]
    rows.there.remove(old.eid.uid)
    read(rows, [new], min_model_version=2)

    assert found == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda one: one.logprobs.mul_(2), "tokens or log-probabilities"),
        (lambda one: setattr(one, "reward", 0.5), "the reward"),
        (lambda one: one.action_mask.zero_(), "the mask"),
        (lambda one: one.advantages.neg_(), "the advantages"),
    ],
)
def test_a_row_that_changes_while_it_waits_is_found(rows, found, change, what) -> None:
    one = row()
    written(rows, [one])
    change(one)
    read(rows, [one])

    assert found[0]["message"].startswith(f"{what} of experience 0/0/0/0 changed between")


def test_a_strategy_that_gives_a_row_twice_is_found(rows, found) -> None:
    one = row()
    written(rows, [one])
    read(rows, [one])
    sampled(rows, [one])
    sampled(rows, [one])

    assert "which it had not read, or had given before" in found[0]["message"]


def test_rows_that_a_checkpoint_brought_are_no_finding(rows, audit, found) -> None:
    audit.begin(found, step=0, is_resumed=True, tell=lambda: None)
    rows.read([row()], min_model_version=0)

    assert found == []


def test_a_row_that_a_strategy_reads_and_never_gives_needs_a_metric(rows, found) -> None:
    one, other = row(0), row(1)
    written(rows, [one, other])
    read(rows, [one, other])
    sampled(rows, [one], {"sample/dropped_rows": 1.0})
    assert found == []

    third = row(2)
    written(rows, [third])
    read(rows, [third])
    sampled(rows, [])
    assert "neither gives nor keeps" in found[0]["message"]


def test_a_strategy_may_keep_rows_that_its_state_holds(rows, found) -> None:
    one = row()
    written(rows, [one])
    read(rows, [one])
    sampled(rows, [], has_state=True)

    assert found == []


def test_a_row_of_weights_that_nobody_has_is_found(rows, found) -> None:
    written(rows, [row(version=1)])

    assert "says that policy version 1 sampled it" in found[0]["message"]


def test_a_trainer_that_changes_its_batch_is_found(rows, found) -> None:
    one = row()
    written(rows, [one])
    read(rows, [one])
    sampled(rows, [one])
    one.reward = 0.0
    rows.trained(None)

    assert found[0]["message"] == "the reward of experience 0/0/0/0 changed in the train step"


def test_an_operator_may_change_rewards_and_no_tokens(rows, found) -> None:
    one = row()
    rows.processed("", [one])
    one.reward = 0.0
    rows.processed("experience_operator", [one])
    assert found == []

    one.tokens[0] = 9
    rows.processed("experience_operator", [one])
    assert found[0]["parts"] == "experience_operator"


def test_a_finding_is_told_once_for_each_part(audit, found) -> None:
    audit.found("rows", ["storage"], "first")
    audit.found("rows", ["storage"], "second")

    assert [one["message"] for one in found] == ["first"]


def test_stop_ends_the_run() -> None:
    audit = Audit(Config.model_validate({"audit": "stop"}), get_manager())

    with pytest.raises(AuditError, match="as audit is stop"):
        audit.found("rows", ["storage"], "it lost a row")


@pytest.mark.parametrize(
    ("given", "out", "words"),
    [
        ({"a": 1.0}, None, ""),
        ({"a": 1.0}, (1, {"a": 1.0}), ""),
        ({"a": float("nan")}, (1, {"a": None}), ""),
        ({"a": 1.0}, (1, {}), "recorded 1 metrics wrong, a first"),
        ({"a": 1.0}, (2, {"a": 1.0}), "has step 2 as the last one"),
    ],
)
def test_metrics_that_go_in_come_out(audit, found, given, out, words) -> None:
    audit.logged("Mine", given, dict(given), out=out, role="trainer", step=1)

    assert [one["message"].endswith(words) for one in found] == ([True] if words else [])


def test_a_monitor_that_changes_what_it_is_given_is_found(audit, found) -> None:
    audit.logged("Mine", {"a": 1.0}, {}, out=None, role="trainer", step=1)

    assert "changed a in the metrics" in found[0]["message"]


@pytest.mark.parametrize(("gap", "num"), [(0.009, 0), (0.02, 1), (float("nan"), 1)])
def test_log_probabilities_that_are_further_off_than_rounding_are_found(audit, found, gap, num):
    left = audit.stepped({"audit/gap": gap, "audit/rows": 4.0, "actor/loss": 1.0}, step=1)

    assert left == {"actor/loss": 1.0}
    assert [one["check"] for one in found] == ["logprobs"] * num


def test_a_step_with_a_gradient_that_moves_no_weight_is_found(audit, found) -> None:
    digest = digest_of({"w": torch.ones(4)})
    audit.compare_weights(digest, {})
    audit.stepped({"actor/lr": 1e-3, "actor/grad_norm": 1.0}, step=1)
    audit.compare_weights(digest, {})

    assert found[0]["message"] == "steps up to 1 had a gradient and changed no weight"


def test_a_digest_of_a_stream_makes_each_weight_once() -> None:
    made = []

    def make(name):
        made.append(name)
        return torch.ones(4)

    stream = TensorStream({"w": torch.ones(4, device="meta")}, make, is_gathered=False)

    assert digest_of(stream) == digest_of({"w": torch.ones(4)})
    assert made == ["w"]


def test_a_digest_is_compared_in_the_number_format_of_the_engine() -> None:
    weights = {"a.weight": torch.tensor([[1.0, 1.001]]), "b": torch.tensor(3.0)}
    rounded = {name: one.bfloat16() for name, one in weights.items()}

    assert differing(digest_of(weights), digest_of(rounded)) == []
    assert differing(digest_of(weights), digest_of(weights | {"b": torch.tensor(4.0)})) == ["b"]


def test_a_loss_that_changes_its_input_now_or_later_is_found() -> None:
    audit, mask = StepAudit(is_on=True), torch.ones(2)
    with audit.unchanged("policy_loss_fn", {"mask": mask}):
        pass
    assert audit.take() == {}

    with audit.unchanged("policy_loss_fn", {"mask": torch.ones(2)}):
        mask.zero_()  # of the call before
    assert audit.take() == {"audit/inputs/policy_loss_fn": 1.0}


def test_the_gap_is_that_of_the_worst_row_which_these_weights_sampled() -> None:
    audit = StepAudit(is_on=True)
    part = ExperienceBatch.from_experiences([row(0, version=3), row(1, version=2)])
    fields = {
        "sampled_logprob": torch.tensor([[-1.0, -1.0], [-9.0, -9.0]]),
        "logprob": torch.tensor([[-1.0, -1.8], [0.0, 0.0]]),
    }
    audit.compare(part, fields, version=3)

    assert audit.take() == pytest.approx({"audit/rows": 1.0, "audit/gap": 0.1})  # 0.8 / 8 tokens


def test_a_trainer_that_leaves_a_row_out_is_found(rows, found) -> None:
    batch = [row(0), row(1)]
    written(rows, batch)
    read(rows, batch)
    sampled(rows, batch)
    rows.trained(6.0)
    assert found == []

    rows.trained(3.0)
    assert found[0]["message"] == "it trained rows of 3 tokens, and was given 6"
