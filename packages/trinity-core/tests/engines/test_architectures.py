"""Decoders that do something of their own are sampled as they are."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from trinity.engines.cpu_kernels import CpuKernels
from trinity.errors import ModelError

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 7,
    "pad_token_id": 0,
}
OWN = {
    "bloom": {"n_layer": 3, "n_head": 4},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "falcon": {"alibi": False},
    "falcon with alibi": {"alibi": True},
    "gemma3_text": {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8},
    "mixtral": {"num_local_experts": 4},
}


def make_model(path, kind):
    torch.manual_seed(0)
    name = kind.split()[0]
    config = AutoConfig.for_model(name, **(SIZES | OWN.get(kind, {})))
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", OWN)
def test_rows_that_join_have_the_logprobs_of_a_forward(
    kind, tmp_path, start, ask, answers, teacher_forced
):
    path = make_model(tmp_path, kind)
    requests = [
        ask(range(10, 11 + length), task=length, n=2, max_new_tokens=4 + length, ignore_eos=True)
        for length in (0, 1, 8, 17, 30)
    ]
    replies = answers(start(path, max_model_len=64, max_batch_rows=5), *requests)
    for request, completions in zip(requests, replies, strict=True):
        for completion in completions:
            expected = teacher_forced(path, request, completion)
            assert completion.logprobs == pytest.approx(expected.tolist(), abs=3e-5)


def test_a_model_that_keeps_a_state_is_refused(tmp_path, start, golden):
    path = make_model(tmp_path, "mamba")
    with pytest.raises(ModelError) as caught:
        start(path)
    golden(str(caught.value), "model_keeps_a_state")


def test_each_config_has_its_own_attention_back(tmp_path, monkeypatch):
    module = AutoModelForCausalLM.from_pretrained(make_model(tmp_path, "qwen2"))
    attention = module.model.layers[0].self_attn
    inner = attention.config = AutoConfig.for_model("qwen2")
    outer = module.config
    monkeypatch.setattr(type(outer), "sub_configs", {"inner": type(inner)})
    outer.inner, inner._attn_implementation = inner, "eager"
    with CpuKernels(module).in_use():
        names = (outer._attn_implementation, inner._attn_implementation)
        assert names == ("trinity_decode", "eager")
    assert (outer._attn_implementation, inner._attn_implementation) == ("sdpa", "eager")


def test_without_the_kernels_of_a_cpu_the_same_is_sampled(tiny, start, ask, answers) -> None:
    requests = [ask(range(5, 9 + n), task=n, n=2, ignore_eos=True) for n in (0, 3, 20)]
    engines = [start(tiny, cpu_kernels=is_on) for is_on in (True, False)]
    fast, plain = (answers(engine, *requests) for engine in engines)

    assert [engine._forwards.likes_transposed_keys for engine in engines] == [True, False]
    for one, other in zip(fast, plain, strict=True):
        for with_kernels, without in zip(one, other, strict=True):
            assert with_kernels.token_ids == without.token_ids
            assert with_kernels.logprobs == pytest.approx(without.logprobs, abs=3e-5)
