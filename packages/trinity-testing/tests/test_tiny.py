"""The tiny model loads as any other, and is the same for a seed."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trinity_testing.tiny import make_tiny_model, make_tiny_tokenizer


def test_a_tiny_model_loads_and_reads_its_own_tokens(tmp_path):
    path = make_tiny_model(tmp_path / "m", vocab=300)
    model, tokenizer = (
        loader.from_pretrained(path) for loader in (AutoModelForCausalLM, AutoTokenizer)
    )
    assert len(tokenizer) == model.config.vocab_size == 300
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert model(torch.tensor([ids])).logits.shape == (1, len(ids), 300)
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id, tokenizer.pad_token_id]


def test_a_seed_gives_the_same_weights(tmp_path):
    paths = [make_tiny_model(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))]
    first, again, other = ((path / "model.safetensors").read_bytes() for path in paths)
    assert first == again != other


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_embeddings_are_tied_as_asked(tie_embeddings, tmp_path):
    path = make_tiny_model(tmp_path, tie_embeddings=tie_embeddings)
    model = AutoModelForCausalLM.from_pretrained(path)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tie_embeddings


def test_the_tokenizer_writes_any_text():
    tokenizer = make_tiny_tokenizer()
    text = "déjà vu \n 7 + 5 = 12 \N{SNOWMAN}"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(ValueError, match="256 bytes and 3 special tokens need 259"):
        make_tiny_tokenizer(vocab=258)
