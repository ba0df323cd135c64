"""What one of several ranks does, the others told of in advance."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from trinity.errors import ConfigError, ModelError, TrinityError, WorkerLostError
from trinity.trainer import ranks, torch_trainer, ulysses
from trinity.trainer.microbatch import ModelInputs, Plan
from trinity.trainer.rank_messages import error_from_json, error_to_json
from trinity.trainer.ranks import Ranks
from trinity.trainer.ulysses import SequenceShard, UlyssesAttention


@pytest.fixture
def a_rank(monkeypatch):
    """Return a builder of one of two ranks; the other says ``others``, its gradients are 1."""

    def build(*, rank=0, others=None, **settings):
        def told(own, *, group):
            other = {"metrics": {}, "plans": own.get("plans")} if others is None else others
            return [own, other] if rank == 0 else [other, own]

        monkeypatch.setattr(ranks.distributed, "get_rank", lambda group: rank)
        monkeypatch.setattr(ranks.distributed, "get_world_size", lambda group: 2)
        monkeypatch.setattr(ranks, "all_gather_json", told)
        monkeypatch.setattr(ranks.distributed, "all_reduce", lambda t, group: t.add_(1))
        return Ranks("a group", **settings)

    return build


def summed(rank, compute):
    with rank.summing() as metrics:
        metrics.own = compute()
    return metrics.total


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("is_sharded", [False, True])
def test_the_rank_whose_disk_is_full_says_so_itself(a_rank, is_sharded) -> None:
    """Who catches it knows a full disk by its number, and does not write again."""
    with pytest.raises(OSError, match="No space left") as raised:
        a_rank(is_sharded=is_sharded).on_rank_zero(full)

    assert raised.value.errno == errno.ENOSPC


def test_the_others_hear_of_it_and_write_nothing(a_rank) -> None:
    written = []

    with pytest.raises(TrinityError, match="rank 0 failed"):
        a_rank(rank=1, others={"error": error_to_json(TrinityError("rank 0 failed"))}).on_rank_zero(
            lambda: written.append(1)
        )

    assert written == []


def test_gradients_of_what_is_not_spread_are_summed_though_weights_are_shared(a_rank) -> None:
    critic = nn.Linear(1, 1)
    critic.weight.grad = torch.full((1, 1), 2.0)

    a_rank(is_sharded=True).all_reduce_gradients(critic.parameters())

    assert critic.weight.grad.item() == 3.0
    assert critic.bias.grad.item() == 1.0


def test_what_breaks_off_in_a_pass_of_shared_weights_is_told_to_nobody(a_rank) -> None:
    """The others are in the midst of theirs: a message would meet their passes."""
    with pytest.raises(OSError, match="No space left"):
        summed(a_rank(is_sharded=True, others="never asked"), full)


CRITIC = {"algorithm_type": "ppo", "advantage_fn": "ppo"}


@pytest.mark.parametrize(
    ("ranks", "beside", "text"),
    [
        ({"is_sharded": True, "sp_group": None}, CRITIC, "shards no critic"),
        ({"is_sharded": True, "sp_group": "a group"}, CRITIC, "sequences of neither"),
        ({"is_sharded": True, "sp_group": "a group"}, {"lora": [object()]}, "sequences of neither"),
    ],
)
def test_adapters_and_a_critic_are_refused_where_no_check_could_know(
    a_trainer, monkeypatch, ranks, beside, text
) -> None:
    monkeypatch.setattr(torch_trainer, "_ranks", lambda config, group: SimpleNamespace(**ranks))

    with pytest.raises(ConfigError, match=text):
        a_trainer(**beside)


def rounds(own_ranks, plan):
    turns = own_ranks.micro_steps(Plan.round_robin(plan, dp_size=2))
    return [[micro_step.packs, micro_step.num_passes] for micro_step in turns]


def test_ranks_that_share_weights_make_as_many_passes_in_each_round(a_rank) -> None:
    plain, stem = [Packed(0)], [Packed(5)]

    assert rounds(a_rank(rank=0, is_sharded=True), [stem, plain, plain]) == [
        [stem, 2],
        [plain, 1],
    ]
    assert rounds(a_rank(rank=1, is_sharded=True), [stem, plain, plain]) == [
        [plain, 2],
        [None, 1],
    ]
    assert rounds(a_rank(rank=1), [stem, plain, plain]) == [[plain, 0]]


class Packed:
    """A pack of one row and one token."""

    rows = (0,)

    def __init__(self, stem):
        self.prefix_length = stem

    def __len__(self):
        return 1


def test_a_team_has_micro_batches_as_one_rank_and_says_once_what_it_found(monkeypatch) -> None:
    """Four ranks, two of each sequence: ranks 2 and 3 have the second of three micro-batches."""
    counted = []
    for rank in range(4):
        monkeypatch.setattr(ranks.distributed, "get_rank", lambda group, rank=rank: rank)
        monkeypatch.setattr(ranks.distributed, "get_world_size", lambda group: 4)
        monkeypatch.setattr(ranks.distributed, "new_group", lambda members, timeout: members)
        monkeypatch.setattr(ranks, "all_gather_json", lambda own, *, group: [own])
        monkeypatch.setattr(ranks.distributed, "all_reduce", lambda values, group: None)
        member = Ranks("a group", sp_size=2, timeout_s=60)

        assert member.sp_group == [rank - rank % 2, rank - rank % 2 + 1]
        plan = Plan.round_robin([[Packed(n)] for n in range(3)], dp_size=2)
        assert member.micro_batches(plan)[0][0].prefix_length == rank // 2
        assert member.max_tokens(100, num_tokens=1000) == 200
        counted.append(
            (summed(member, lambda: {"loss": 1.0}), member.all_reduce(torch.ones(1)).item())
        )

    assert counted == [({"loss": 1.0}, 1.0), ({}, 0.0)] * 2


def test_ranks_that_make_no_teams_are_refused() -> None:
    with pytest.raises(ConfigError, match="is 2, and the trainer has one rank, which is no"):
        Ranks(sp_size=2)


def test_parts_of_a_sequence_hold_its_tokens_once_with_their_own_scores() -> None:
    """Seven tokens on two ranks: four and three; the sixth scored token's state is slot 1."""
    tokens_PL = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    slots_N = torch.arange(6)
    zeros_N = torch.zeros_like(slots_N)
    inputs = ModelInputs(
        tokens_PL=tokens_PL, suffixes_GK=None, positions_PL=None, ends_PL=None, rows_N=zeros_N,
        columns_N=slots_N, slots_N=slots_N, targets_N=tokens_PL[0, 1:], temperature_N=None,
        shape=(1, 6),
    )  # fmt: skip
    first, second = (SequenceShard(rank=rank, size=2) for rank in (0, 1))

    assert first.of(tokens_PL).tolist() == [[3, 1, 4, 1]]
    assert second.of(tokens_PL).tolist() == [[5, 9, 2, 0]]
    assert first.scored(inputs).targets_N.tolist() == [1, 4, 1, 5]
    assert second.scored(inputs).targets_N.tolist() == [9, 2]
    assert second.scored(inputs).slots_N.tolist() == [0, 1]
    assert second.scored(inputs).columns_N.tolist() == [4, 5]


def test_parts_of_a_stem_and_its_branches_stand_one_after_the_other() -> None:
    """A stem of 3 and two branches of 2, on two ranks: slots 3 to 6 are the branches'."""
    slots_N = torch.tensor([0, 2, 3, 4, 5, 6])
    inputs = ModelInputs(
        tokens_PL=torch.zeros((1, 3), dtype=torch.long),
        suffixes_GK=torch.zeros((2, 2), dtype=torch.long),
        positions_PL=None, ends_PL=None, rows_N=slots_N, columns_N=slots_N, slots_N=slots_N,
        targets_N=slots_N, temperature_N=None, shape=(2, 9),
    )  # fmt: skip
    first, second = (SequenceShard(rank=rank, size=2).scored(inputs) for rank in (0, 1))

    assert (first.targets_N.tolist(), first.slots_N.tolist()) == ([0, 3, 5], [0, 2, 3])
    assert (second.targets_N.tolist(), second.slots_N.tolist()) == ([2, 4, 6], [0, 2, 3])


@pytest.mark.parametrize("name", ["softcap", "s_aux", "position_bias"])
def test_attention_that_changes_its_products_is_not_shared(monkeypatch, name) -> None:
    monkeypatch.setattr(ulysses.distributed, "get_world_size", lambda group: 2)
    query = torch.zeros(1, 2, 3, 4)

    with pytest.raises(ValueError, match=f"its attention has {name}"):
        UlyssesAttention("a group")(nn.Linear(1, 1), query, query, query, None, **{name: query})


def test_an_error_that_is_told_keeps_its_type_unless_it_has_fields_of_its_own() -> None:
    told = error_from_json(error_to_json(ModelError("no room for the weights")))
    lost = error_from_json(error_to_json(WorkerLostError("engine-0", cause="it was killed")))

    assert (type(told), str(told)) == (ModelError, "no room for the weights")
    assert type(lost) is TrinityError
    assert type(error_from_json({"type": "SystemExit", "text": "3"})) is TrinityError


def test_ranks_that_cut_a_batch_in_different_ways_are_told_so_and_train_no_further(a_rank) -> None:
    own = a_rank(others={"metrics": {"loss": 1.0}, "plans": "of another batch"})
    own.micro_batches(Plan.round_robin([[Packed(0)], [Packed(0)]], dp_size=2))

    with pytest.raises(TrinityError, match="cut a batch in different ways"):
        summed(own, lambda: {"loss": 1.0})


def test_metrics_of_ranks_that_cut_alike_are_summed(a_rank) -> None:
    own = a_rank()
    own.micro_batches(Plan.round_robin([[Packed(0)]], dp_size=2))

    assert summed(own, lambda: {"loss": 1.5}) == {"loss": 1.5}
