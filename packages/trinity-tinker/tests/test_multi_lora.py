"""Rows of one batch compute with adapters of their own, as each would alone."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from trinity.common.ports import GenerationRequest, RunKey
from trinity.engines.model import twin_of
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError
from trinity_tinker.multi_lora import MultiLoRA

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 7,
    "pad_token_id": 0,
}
KINDS = {
    "qwen3": {"head_dim": 8},
    "llama": {},
    "gemma3_text": {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8},
    "mixtral": {"num_local_experts": 4},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},  # a linear layer of its own
}
RUNS = {"small": (1, "q"), "middle": (4, "proj"), "large": (16, "")}  # rank, layers
AS_BATCHING = 3e-5  # as far as the shapes of a batch move a log-probability in the core's tests


def tiny(path, kind="qwen3"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **(SIZES | KINDS[kind]))
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return AutoModelForCausalLM.from_pretrained(path).eval().requires_grad_(requires_grad=False)


def random_factors(module, *, rank, layers, seed, scale=0.2):
    """Return an adapter of all linear layers whose name holds a word; large enough to be seen."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.Linear) and layers in name:
            wide, high = part.in_features, part.out_features
            lower = torch.randn(wide, rank, generator=generator) * scale
            found[name] = (lower, torch.randn(rank, high, generator=generator) * scale)
    return found


def merged(module, factors):
    """Return a copy of a model with an adapter added to its weights, as it was served before."""
    made = copy.deepcopy(module)
    for name, (lower, upper) in factors.items():
        layer = made.get_submodule(name)
        layer.weight = torch.nn.Parameter(layer.weight + (lower @ upper).T, requires_grad=False)
    return made


class Served:
    """A model with adapters of three ranks, and an engine."""

    def __init__(self, path, kind="qwen3", **options):
        self.base = tiny(path, kind)
        self.adapters = MultiLoRA()
        self.factors = {
            name: random_factors(self.base, rank=rank, layers=layers, seed=rank)
            for name, (rank, layers) in RUNS.items()
        }
        for name, factors in self.factors.items():
            self.adapters.add(name, factors)
        self.engine = TransformersEngine(
            model_path=str(path),
            max_model_len=128,
            in_lockstep=False,
            module=self.adapters.put_into(twin_of(self.base)),
            adapters=self.adapters,
            **options,
        )

    def answers(self, requests):
        return [future.result(60) for future in [self.engine.submit(one) for one in requests]]


@pytest.fixture
def serve(tmp_path):
    made = []

    def start(kind="qwen3", **options):
        made.append(Served(tmp_path / kind, kind, **options))
        return made[-1]

    yield start
    for served in made:
        served.engine.close()


def ask(adapter, *, length=3, task=0, n=2, **options):
    options = {"max_new_tokens": 8, "ignore_eos": True, **options}
    prompt = tuple(range(10, 10 + length))
    key = RunKey(batch=adapter, task=task)
    return GenerationRequest(prompt_token_ids=prompt, key=key, n=n, adapter=adapter, **options)


def requests_of(names):
    """Return requests of each name, whose replies and prompts differ in length; one is shared."""
    return [
        ask(name, length=length, task=length, max_new_tokens=4 + length)
        for length in (3, 3 + len(names), 9)
        for name in names
    ]


@torch.no_grad()
def forced(module, request, completion):
    tokens = torch.tensor([request.prompt_token_ids + completion.token_ids])
    scores = module(input_ids=tokens).logits[0, :-1].log_softmax(-1)
    found = scores.gather(1, tokens[0, 1:, None])[len(request.prompt_token_ids) - 1 :, 0]
    return found.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_runs_that_sample_together_get_what_each_gets_alone(serve, kind):
    served = serve(kind)
    requests = requests_of([*RUNS, ""])
    together = served.answers(requests)
    for name in [*RUNS, ""]:
        mine = [request for request in requests if request.adapter == name]
        alone = served.answers(mine)
        shared = [got for one, got in zip(requests, together, strict=True) if one.adapter == name]
        for one, other in zip(alone, shared, strict=True):
            for by_itself, beside in zip(one, other, strict=True):
                assert by_itself.token_ids == beside.token_ids
                assert by_itself.logprobs == pytest.approx(beside.logprobs, abs=AS_BATCHING)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_log_probabilities_of_the_model_with_their_adapter_merged(serve, kind):
    served = serve(kind)
    models = {name: merged(served.base, factors) for name, factors in served.factors.items()}
    models[""] = served.base
    requests = requests_of(models)
    for request, completions in zip(requests, served.answers(requests), strict=True):
        for completion in completions:
            expected = forced(models[request.adapter], request, completion)
            assert completion.logprobs == pytest.approx(expected, abs=AS_BATCHING)


def test_adapters_of_one_prompt_share_a_step_and_not_a_prefill(serve):
    served = serve()
    shapes = []
    served.engine._module.register_forward_pre_hook(
        lambda _module, _args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    served.answers([ask(name, length=5, max_new_tokens=3) for name in RUNS])

    assert shapes == [(1, 5), (1, 5), (1, 5), (6, 1), (6, 1)]


def test_a_small_batch_lets_rows_of_all_adapters_in_and_out(serve):
    """Slots move where a row ends; each row keeps its adapter."""
    requests = requests_of([*RUNS, ""])
    whole, cut = (
        [[one.token_ids for one in got] for got in serve(**options).answers(requests)]
        for options in ({}, {"max_batch_rows": 3})
    )
    assert whole == cut


def test_an_adapter_that_is_not_there_or_was_removed_is_refused_by_name(serve):
    served = serve()
    served.adapters.remove("small")
    for name in ("small", "unknown"):
        with pytest.raises(ModelError, match=f"adapter is {name}"):
            served.engine.submit(ask(name))
    assert len(served.answers([ask("large")])[0]) == 2


def test_a_request_that_is_given_up_as_its_adapter_goes_fails_no_row_beside_it(serve):
    served = serve()
    [alone] = served.answers([ask("large", n=1, max_new_tokens=12)])
    given_up, short, beside = (
        served.engine.submit(ask(name, n=1, task=task, max_new_tokens=length))
        for task, (name, length) in enumerate([("small", 90), ("middle", 3), ("large", 12)])
    )

    def give_up(_answered):  # in the engine's thread, between two of its steps
        given_up.cancel()
        served.adapters.remove("small")

    short.add_done_callback(give_up)
    [found] = beside.result(60)
    assert len(found.token_ids) == len(alone[0].token_ids) == 12
    assert served.answers([ask("middle")])[0][0].token_ids


def test_an_engine_without_adapters_refuses_any(tmp_path):
    tiny(tmp_path)
    engine = TransformersEngine(model_path=str(tmp_path), max_model_len=64)
    with pytest.raises(ModelError, match="adapter is small"):
        engine.submit(ask("small"))
    engine.close()


def test_an_adapter_with_a_number_that_is_not_finite_is_refused(serve):
    served = serve()
    factors = random_factors(served.base, rank=2, layers="q_proj", seed=1)
    next(iter(factors.values()))[1][0, 0] = float("nan")

    with pytest.raises(ModelError, match="not finite"):
        served.adapters.add("diverged", factors)


def test_an_adapter_of_layers_that_the_model_would_not_compute_with_is_refused(serve):
    served = serve()
    factors = random_factors(served.base, rank=2, layers="layers.0", seed=1)
    factors["model.layers.7.mlp"] = next(iter(factors.values()))

    with pytest.raises(ModelError, match=r"model\.layers\.7\.mlp"):
        served.adapters.add("other", factors)
    assert "other" not in served.adapters


def test_an_adapter_that_overflows_leaves_the_rows_beside_it_as_they_are(serve):
    served = serve()
    [alone] = served.answers([ask("large")])
    huge = {
        name: (lower * 1e30, upper) for name, (lower, upper) in served.factors["middle"].items()
    }
    served.adapters.add("huge", huge)
    overflowing, beside = (served.engine.submit(ask(name)) for name in ("huge", "large"))

    assert [one.token_ids for one in beside.result(60)] == [one.token_ids for one in alone]
    with pytest.raises(ModelError, match="NaN"):
        overflowing.result(60)


def test_rows_under_way_go_on_with_the_adapter_that_replaces_theirs(serve):
    served = serve()
    greedy = {"n": 1, "max_new_tokens": 60, "temperature": 0.0}
    [[before]] = served.answers([ask("large", **greedy)])
    steps = []

    def replace_after_the_third(*_given):
        steps.append(1)
        if len(steps) == 4:  # the prefill, and two tokens more
            served.adapters.add("large", served.factors["middle"])

    served.engine._module.register_forward_pre_hook(replace_after_the_third)
    [[changed]] = served.answers([ask("large", **greedy)])
    [[after]], [[wanted]] = (served.answers([ask(name, **greedy)]) for name in ("large", "middle"))

    assert changed.token_ids[:3] == before.token_ids[:3]
    assert changed.token_ids[3:] != before.token_ids[3:]
    assert after.token_ids == wanted.token_ids


def test_a_model_in_bfloat16_adds_adapters_in_float32(tmp_path):
    """Merged, a small adapter is rounded away: a weight of bfloat16 has eight bits."""
    base = tiny(tmp_path).to(torch.bfloat16)
    adapters = MultiLoRA()
    adapters.add("tiny", random_factors(base, rank=4, layers="lm_head", seed=1, scale=1e-3))
    module = adapters.put_into(twin_of(base))
    inputs = torch.randn(1, 1, 32)
    with adapters.of_rows(["tiny"]):
        found = adapters.delta("lm_head", inputs.to(torch.bfloat16))
    plain = module.lm_head(inputs.to(torch.bfloat16))

    assert (found.dtype, plain.dtype) == (torch.float32, torch.bfloat16)
    assert 0 < found.abs().max() < 1e-4


def test_a_layer_that_gets_other_rows_is_refused_by_name():
    adapters = MultiLoRA()
    for name in ("one", "two"):
        adapters.add(name, {"experts.0": (torch.ones(3, 1), torch.ones(1, 2))})

    with adapters.of_rows(["one", "two"]), pytest.raises(ModelError, match=r"experts\.0 gets 1"):
        adapters.delta("experts.0", torch.ones(1, 3))


def test_each_thread_selects_for_itself():
    adapters = MultiLoRA()
    adapters.add("one", {"layer": (torch.ones(3, 1), torch.ones(1, 2))})
    found = []
    with adapters.of_rows(["one"]):
        thread = threading.Thread(
            target=lambda: found.append(adapters.delta("layer", torch.ones(1, 3)))
        )
        thread.start()
        thread.join()
        here = adapters.delta("layer", torch.ones(1, 3))

    assert found == [None]
    assert here.tolist() == [[3.0, 3.0]]
    assert adapters.delta("layer", torch.ones(1, 3)) is None
