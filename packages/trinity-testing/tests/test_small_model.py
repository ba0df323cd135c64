"""The small model has its task's own words, and is the same for a seed."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging
from trinity_testing.small_model import END, PAD, ROLES, chat_tokenizer, make_small_model

WORDS = [PAD, END, *ROLES, "<|other|>", "one", "two"]


def a_tokenizer(**given):
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<|other|>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return chat_tokenizer(core, **given)


def test_model_and_tokenizer_load_as_any_other(tmp_path):
    path = make_small_model(tmp_path / "m", tokenizer=a_tokenizer(), hidden=32, layers=3)
    model, tokenizer = (
        loader.from_pretrained(path) for loader in (AutoModelForCausalLM, AutoTokenizer)
    )

    assert (model.config.model_type, len(model.model.layers)) == ("qwen3", 3)
    assert model.model.embed_tokens.weight.shape == (len(WORDS), 32)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (1, 0)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "one two"}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == [ROLES[1], "one", "two", END, ROLES[2]]
    assert model(torch.tensor([ids])).logits.shape == (1, 5, len(WORDS))


def test_a_word_that_it_does_not_have_is_the_unknown_one(tmp_path):
    tokenizer = a_tokenizer(unknown="<|other|>")

    assert tokenizer.encode("three one") == [tokenizer.unk_token_id, WORDS.index("one")]
    assert a_tokenizer().unk_token is None


def test_a_seed_gives_the_same_weights_and_leaves_the_callers_dice_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)

    paths = [
        make_small_model(tmp_path / str(i), tokenizer=a_tokenizer(), seed=seed)
        for i, seed in enumerate((0, 0, 1))
    ]

    first, again, other = ((path / "model.safetensors").read_bytes() for path in paths)
    assert first == again != other
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("is_shown", [True, False])
def test_progress_bars_are_as_before(is_shown, tmp_path):
    was_shown = logging.is_progress_bar_enabled()
    change = {True: logging.enable_progress_bar, False: logging.disable_progress_bar}
    change[is_shown]()
    try:
        make_small_model(tmp_path, tokenizer=a_tokenizer())
        assert logging.is_progress_bar_enabled() == is_shown
    finally:
        change[was_shown]()
