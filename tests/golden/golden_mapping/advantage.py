"""Advantage functions, on experiences (of the pipeline) and on tensors (of the trainer)."""

from __future__ import annotations

from functools import partial

import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience
from trinity.extend import get_manager


def implementation(case):
    """Return the function that the case names."""
    if case["fn"] not in get_manager().names("advantage_fn"):
        return None
    return partial(_on_experiences if case["interface"] == "experiences" else _on_tensors, case)


def _on_experiences(case, inputs):
    batch = _batch_of([_experience(row) for row in inputs["experiences"]])
    places = {id(row): place for place, row in enumerate(batch.experiences)}
    originals = list(batch.experiences)
    batch, metrics = _function(case)(batch)
    if case.get("verdict") == "rng_dependent":
        return {"invariants": INVARIANTS[case["fn"]](case, originals, batch, metrics)}
    order = [places.get(id(row), _place(row, originals)) for row in batch.experiences]
    lengths = [row.response_length for row in batch.experiences]
    return {
        "order": order,
        "metrics": metrics,
        **{
            name: [batch[name][row, :length].tolist() for row, length in enumerate(lengths)]
            for name in ("advantages", "returns")
        },
    }


def _on_tensors(case, inputs):
    names = {"uid": inputs.pop("uid")} if "uid" in inputs else {}
    num_rows = len(inputs["response_mask"])
    inputs.setdefault("token_level_rewards", torch.zeros_like(inputs["response_mask"]).double())
    rows = [Experience(tokens=[0, 1]) for _ in range(num_rows)]
    batch, metrics = _function(case)(ExperienceBatch(rows, fields=inputs, non_tensor_fields=names))
    results = {name: batch[name] for name in ("advantages", "returns", "response_mask")}
    return results | {"metrics": metrics}


def _function(case):
    return get_manager().load("advantage_fn", case["fn"])(**case["args"])


def _experience(row):
    return Experience(
        tokens=[7] * (1 + len(row["action_mask"])),
        reward=row["reward"],
        action_mask=row["action_mask"],
        logprobs=row.get("logprobs"),
        eid=EID(**row["eid"]),
        info=row.get("info", {}),
    )


def _batch_of(rows):
    """Return the batch with rewards in float64, as the cases were computed."""
    if not rows:
        none = torch.zeros(0, 0)
        fields = {"action_mask": none.bool(), "rewards": none[:, :0].sum(-1)}
        fields["token_level_rewards"] = none
        return ExperienceBatch(
            [], fields=fields, non_tensor_fields={"uid": [], "rid": [], "step": []}
        )
    for row in rows:
        if row.logprobs is not None:
            row.logprobs = row.logprobs.double()
    batch = ExperienceBatch.from_experiences(rows)
    batch["rewards"] = torch.tensor([row.reward for row in rows], dtype=torch.float64)
    batch["token_level_rewards"] = batch["token_level_rewards"].double()
    return batch


def _place(row, originals):
    """Return which original a copy is of."""
    return [str(one.eid) for one in originals].index(str(row.eid))


def _duplicates_are_of_kept_groups(case, originals, batch, metrics):
    """Check: the kept groups in order, then a copy of one of them for each dropped group."""
    kept = list(dict.fromkeys(case["outputs"]["order"]))
    problems = []
    if (first := [_place(row, originals) for row in batch.experiences[: len(kept)]]) != kept:
        problems.append(f"the kept rows are {first}, not {kept}")
    members = {}
    for place in kept:
        members.setdefault(originals[place].eid.tid, []).append(place)
    copies, num_copied = batch.experiences[len(kept) :], 0
    while copies:
        expected = members.get(copies[0].eid.tid, [None])
        copied, copies = copies[: len(expected)], copies[len(expected) :]
        num_copied += 1
        if [_place(row, originals) for row in copied] != expected:
            problems.append("a duplicate is not of one whole kept group")
        if any(row is one for row in copied for one in originals):
            problems.append("a duplicate is no copy")
    num_dropped = len({one.eid.tid for one in originals}) - len(members)
    if num_copied != num_dropped:
        problems.append(f"{num_dropped} groups dropped, {num_copied} copied")
    if metrics["filtered_count"] != case["outputs"]["metrics"]["filtered_count"]:
        problems.append("filtered_count differs")
    return problems


def _dropped_rows_balance(case, originals, batch, metrics):
    rewards = torch.tensor([row.reward for row in batch.experiences], dtype=torch.float64)
    scores = batch["advantages"].sum(-1) / batch["action_mask"].sum(-1)
    mean = rewards.mean()
    dropped = (scores == 0) & (rewards < mean)
    num_too_many = int((rewards < mean).sum() - (rewards >= mean).sum())
    problems = []
    if int(dropped.sum()) != num_too_many:
        problems.append(f"{int(dropped.sum())} rows dropped, not {num_too_many}")
    kept = rewards[~dropped]
    if not torch.allclose(scores[~dropped], kept - kept.mean(), rtol=1e-9):
        problems.append("the kept rows are not scored by their own mean")
    share = metrics["group_advantages/drop_balance/mean"]
    if abs(share - num_too_many / len(rewards)) > 1e-9:
        problems.append(f"drop_balance is {share}")
    return problems


INVARIANTS = {"grpo": _duplicates_are_of_kept_groups, "rec": _dropped_rows_balance}
