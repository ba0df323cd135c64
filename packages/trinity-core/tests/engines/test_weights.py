"""New weights arrive in place, whole or not at all."""

import time

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity_testing.tiny import make_tiny_model


def snapshot(model, version=1, **changed):
    return WeightSnapshot(version=WeightVersion(version), tensors=model.state_dict() | changed)


def greedy(model, prompt):
    ids = torch.tensor([prompt])
    output = model.generate(ids, do_sample=False, max_new_tokens=16, pad_token_id=0)
    return output[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("tie_embeddings", [True, False])
@pytest.mark.parametrize("names", ["state_dict", "parameters"])
def test_after_new_weights_the_output_is_the_new_models(
    tie_embeddings, names, tmp_path, start, ask, answers
):
    old, new = (
        make_tiny_model(tmp_path / str(seed), seed=seed, tie_embeddings=tie_embeddings)
        for seed in (0, 1)
    )
    model = AutoModelForCausalLM.from_pretrained(new)
    tensors = model.state_dict() if names == "state_dict" else dict(model.named_parameters())
    engine = start(old)
    [[before]] = answers(engine, ask(temperature=0.0))
    engine.load_weights(WeightSnapshot(version=WeightVersion(7), tensors=tensors))
    [[after]] = answers(engine, ask(temperature=0.0))
    assert list(after.token_ids) == greedy(model, [5, 6, 7])
    assert before.token_ids != after.token_ids
    assert (before.weight_version, after.weight_version, engine.version) == (0, 7, 7)


def test_the_engine_keeps_a_copy(tiny, start, ask, answers):
    model = AutoModelForCausalLM.from_pretrained(tiny)
    engine = start(tiny)
    engine.load_weights(snapshot(model))
    [before] = answers(engine, ask(n=4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    [after] = answers(engine, ask(n=4))
    assert before == after


def test_new_weights_draw_new_numbers(tiny, start, ask, answers):
    engine = start(tiny)
    [before] = answers(engine, ask(n=4))
    engine.load_weights(snapshot(AutoModelForCausalLM.from_pretrained(tiny)))
    [after] = answers(engine, ask(n=4))
    assert [c.token_ids for c in before] != [c.token_ids for c in after]


def test_a_shared_module_is_used_as_it_is(tiny, start, ask, answers):
    model = AutoModelForCausalLM.from_pretrained(tiny).train()
    engine = start(tiny, module=model)
    with torch.no_grad():
        model.model.norm.weight.mul_(-1.0)
    engine.load_weights(WeightSnapshot(version=WeightVersion(3), tensors={}))
    [[completion]] = answers(engine, ask(temperature=0.0))
    assert completion.weight_version == 3
    assert model.training
    assert list(completion.token_ids) == greedy(model.eval(), [5, 6, 7])
    model(torch.tensor([[5, 6]])).logits.sum().backward()  # nothing of the engine's is in the way


def test_a_shared_module_answers_as_a_copy_does_to_the_last_bit(tiny, start, ask, answers):
    shared = AutoModelForCausalLM.from_pretrained(tiny).train()
    requests = [ask(range(5, 6 + length), task=length, n=8) for length in range(1, 24)]
    own, others = (
        [(c.token_ids, c.logprobs) for reply in answers(engine, *requests) for c in reply]
        for engine in (start(tiny), start(tiny, module=shared))
    )
    assert own == others
    assert all(weight.requires_grad for weight in shared.parameters())


def test_a_shared_module_can_be_trained_while_an_answer_is_on_its_way(tiny, start, ask):
    """A run that is given up leaves the engine a step behind; the trainer does not wait for it."""
    model = AutoModelForCausalLM.from_pretrained(tiny).train()
    model.model.embed_tokens.weight.requires_grad = False  # frozen by its user, and the head tied
    how = model.config._attn_implementation
    asked = start(tiny, module=model).submit(ask(max_new_tokens=120, n=8, ignore_eos=True))
    while not asked.running():
        time.sleep(0.001)

    for _ in range(20):
        assert not asked.done()
        assert model.training
        assert model.config._attn_implementation == how
        model(torch.tensor([[5, 6]])).logits.sum().backward()

    assert [n for n, w in model.named_parameters() if w.grad is None] == [
        "model.embed_tokens.weight"
    ]
    asked.cancel()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("weight_unknown", lambda tensors: tensors | {"model.norm.wieght": torch.zeros(64)}),
        ("weight_missing", lambda tensors: {k: v for k, v in tensors.items() if "norm" not in k}),
        ("weight_shape", lambda tensors: tensors | {"model.norm.weight": torch.zeros(63)}),
        ("weight_tied", lambda tensors: tensors | {"lm_head.weight": torch.zeros(384, 64)}),
    ],
)
def test_a_snapshot_of_another_model_is_refused_and_changes_nothing(
    name, damage, tiny, start, ask, answers, golden
):
    engine = start(tiny)
    [before] = answers(engine, ask(n=2))
    tensors = damage(AutoModelForCausalLM.from_pretrained(tiny).state_dict())
    tensors = {k: v + 1 if k != "lm_head.weight" else v for k, v in tensors.items()}
    with pytest.raises(ModelError) as caught:
        engine.load_weights(WeightSnapshot(version=WeightVersion(1), tensors=tensors))
    golden(str(caught.value), f"engine_{name}")
    assert engine.version == 0
    assert answers(engine, ask(n=2)) == [before]


def test_a_snapshot_that_is_none_fails_and_the_engine_lives_on(tiny, start, ask, answers):
    engine = start(tiny)
    with pytest.raises(TypeError):
        engine.load_weights(WeightSnapshot(version=WeightVersion(1), tensors=None))
    [[completion]] = answers(engine, ask())
    assert completion.weight_version == 0
