"""What one of several ranks does, the others told of in advance."""

from __future__ import annotations

import errno

import pytest
import torch
from torch import nn
from trinity.errors import ConfigError, ModelError, RoomLostError, TrinityError
from trinity.trainer import ranks
from trinity.trainer.ranks import Ranks
from trinity.trainer.spreading import refuse_beside
from trinity.trainer.telling import error_of, words_of


@pytest.fixture
def a_rank(monkeypatch):
    """Return a builder of one of two ranks; the other says ``others``, its gradients are 1."""

    def build(*, rank=0, others=None, **settings):
        def told(own, *, group):
            other = {"metrics": {}, "plans": own.get("plans")} if others is None else others
            return [own, other] if rank == 0 else [other, own]

        monkeypatch.setattr(ranks.distributed, "get_rank", lambda group: rank)
        monkeypatch.setattr(ranks.distributed, "get_world_size", lambda group: 2)
        monkeypatch.setattr(ranks, "told", told)
        monkeypatch.setattr(ranks.distributed, "all_reduce", lambda t, group: t.add_(1.0))
        return Ranks("a group", **settings)

    return build


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("shares_weights", [False, True])
def test_the_rank_whose_disk_is_full_says_so_itself(a_rank, shares_weights) -> None:
    """Who catches it knows a full disk by its number, and does not write again."""
    with pytest.raises(OSError, match="No space left") as raised:
        a_rank(shares_weights=shares_weights).first(full)

    assert raised.value.errno == errno.ENOSPC


def test_the_others_hear_of_it_and_write_nothing(a_rank) -> None:
    written = []

    with pytest.raises(TrinityError, match="rank 0 failed"):
        a_rank(rank=1, others={"error": words_of(TrinityError("rank 0 failed"))}).first(
            lambda: written.append(1)
        )

    assert written == []


def test_gradients_of_what_is_not_spread_are_summed_though_weights_are_shared(a_rank) -> None:
    critic = nn.Linear(1, 1)
    critic.weight.grad = torch.full((1, 1), 2.0)

    a_rank(shares_weights=True).sum_gradients(critic.parameters())

    assert critic.weight.grad.item() == 3.0
    assert critic.bias.grad.item() == 1.0


def test_what_breaks_off_in_a_pass_of_shared_weights_is_told_to_nobody(a_rank) -> None:
    """The others are in the midst of theirs: a message would meet their passes."""
    with pytest.raises(OSError, match="No space left"):
        a_rank(shares_weights=True, others="never asked").summed(full)


@pytest.mark.parametrize(
    "beside", [{"adapters": True, "critic": False}, {"adapters": False, "critic": True}]
)
def test_what_is_not_spread_is_refused_where_no_check_could_know(beside) -> None:
    refuse_beside(adapters=False, critic=False)
    with pytest.raises(ConfigError, match="spreads neither LoRA adapters nor a critic"):
        refuse_beside(**beside)


def rounds(own_ranks, plan):
    return [[turn.packs, turn.num_passes] for turn in own_ranks.rounds(plan)]


def test_ranks_that_share_weights_make_as_many_passes_in_each_round(a_rank) -> None:
    plain, stem = [Packed(0)], [Packed(5)]

    assert rounds(a_rank(rank=0, shares_weights=True), [stem, plain, plain]) == [
        [stem, 2],
        [plain, 1],
    ]
    assert rounds(a_rank(rank=1, shares_weights=True), [stem, plain, plain]) == [
        [plain, 2],
        [None, 1],
    ]
    assert rounds(a_rank(rank=1), [stem, plain, plain]) == [[plain, 0]]


class Packed:
    """A pack of one row and one token."""

    rows = (0,)

    def __init__(self, stem):
        self.stem = stem

    def __len__(self):
        return 1


def test_an_error_that_is_told_keeps_its_type_unless_it_has_fields_of_its_own() -> None:
    told = error_of(words_of(ModelError("no room for the weights")))
    lost = error_of(words_of(RoomLostError("engine-0", cause="it was killed")))

    assert (type(told), str(told)) == (ModelError, "no room for the weights")
    assert type(lost) is TrinityError
    assert type(error_of({"type": "SystemExit", "text": "3"})) is TrinityError


def test_ranks_that_cut_a_batch_in_different_ways_are_told_so_and_train_no_further(a_rank) -> None:
    own = a_rank(others={"metrics": {"loss": 1.0}, "plans": "of another batch"})
    own.own([[Packed(0)], [Packed(0)]])

    with pytest.raises(TrinityError, match="cut a batch in different ways"):
        own.summed(lambda: {"loss": 1.0})


def test_metrics_of_ranks_that_cut_alike_are_summed(a_rank) -> None:
    own = a_rank()
    own.own([[Packed(0)]])

    assert own.summed(lambda: {"loss": 1.5}) == {"loss": 1.5}
