"""Weights come whole, or as adapters of the base model."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.common.ports.trainer import differing, digest_of
from trinity.common.ports.weights import LORA_A, LORA_B
from trinity.engines.adapted_weights import AdaptedWeights
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError
from trinity_testing.tiny import make_tiny_model

NAMES = ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def model(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def adapters_of(model, *, seed, names=NAMES):
    draw, weights, found = torch.Generator().manual_seed(seed), model.state_dict(), {}
    for name in names:
        rows, columns = weights[name].shape
        found[name + LORA_A] = torch.randn((2, columns), generator=draw)
        found[name + LORA_B] = torch.randn((rows, 2), generator=draw)
    return found


def loaded(model):
    return AdaptedWeights(model, read_again=lambda: pytest.fail("it has the base model"))


def test_each_load_adds_to_the_base_model_and_not_to_the_load_before(model) -> None:
    base = copy.deepcopy(model).state_dict()
    weights, last = loaded(model), adapters_of(model, seed=2)

    weights.load(adapters_of(model, seed=1))
    weights.load(last)

    for name, weight in model.state_dict().items():
        if name in NAMES:
            expected = base[name] + last[name + LORA_B] @ last[name + LORA_A]
            assert torch.allclose(weight, expected, atol=1e-6)
            assert not torch.allclose(weight, base[name], atol=1e-2)
        else:
            assert torch.equal(weight, base[name])
    assert not differing(digest_of(last), weights.digest())


def test_after_whole_weights_the_base_model_is_read_again(model, path) -> None:
    """As a run that was resumed gives them: a checkpoint's, with the adapters in them."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    again = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    weights = AdaptedWeights(model, read_again=lambda: again)
    weights.load(dict(other.named_parameters()))
    assert torch.equal(model.state_dict()[NAMES[0]], other.state_dict()[NAMES[0]])

    weights.load(given := adapters_of(model, seed=1))

    delta = given[NAMES[0] + LORA_B] @ given[NAMES[0] + LORA_A]
    assert torch.allclose(
        model.state_dict()[NAMES[0]], again.state_dict()[NAMES[0]] + delta, atol=1e-6
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda given: given.pop(NAMES[0] + LORA_B), "an adapter of"),
        (lambda given: given.pop(NAMES[0] + LORA_A), "adapters of other layers"),
        (
            lambda given: given.update({NAMES[0] + LORA_A: torch.zeros(2, 3)}),
            "which does not fit the engine's model",
        ),
        (
            lambda given: given.update(
                {"no.weight" + LORA_A: torch.zeros(1, 1), "no.weight" + LORA_B: torch.zeros(1, 1)}
            ),
            "an adapter of 'no.weight'",
        ),
    ],
)
def test_adapters_that_do_not_fit_change_nothing(model, spoil, message) -> None:
    before = copy.deepcopy(model).state_dict()
    given = adapters_of(model, seed=1)
    spoil(given)

    with pytest.raises(ModelError, match=message):
        loaded(model).load(given)

    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_adapters_of_other_layers_than_before_are_refused(model) -> None:
    weights = loaded(model)
    weights.load(adapters_of(model, seed=1))

    with pytest.raises(ModelError, match="of other layers than the one before"):
        weights.load(adapters_of(model, seed=1, names=NAMES[:1]))


def test_an_engine_scores_with_the_adapters_that_it_was_given(model, path) -> None:
    given = adapters_of(model, seed=1)
    loaded(model).load(given)
    engine = TransformersEngine(model_path=str(path), max_model_len=64)
    tokens = [5, 9, 17, 30, 4]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
    expected = [float(logits[at, token]) for at, token in enumerate(tokens[1:])]
    plain = engine.score(tokens).result()

    engine.load_weights(WeightSnapshot(version=WeightVersion(3), tensors=given))

    assert engine.score(tokens).result() == pytest.approx(expected, abs=1e-4)
    assert plain != pytest.approx(expected, abs=1e-2)
    assert engine.version == 3
    assert not differing(digest_of(given), engine.weight_digest())
    engine.close()
