"""Makes a tiny model folder, with tokenizer and chat template, that loads as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_testing.small_model import write_random_model

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerFast

__all__ = ["CHAT_TEMPLATE", "make_tiny_model", "make_tiny_tokenizer"]

END_OF_TEXT = "<|endoftext|>"  # also the padding
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"  # EOS

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)

_CORPUS = (
    "system\nYou are a helpful assistant.",
    "user\nWhat is 12 + 34? Give the answer as a number.",
    "assistant\nThe answer is 46. <think>12 + 34 = 46</think> <answer>46</answer> \\boxed{46}",
    "the quick brown fox jumps over the lazy dog, and then it sleeps in the warm sun",
    "go to the kitchen, take the red apple, put it on the table. look around. open the door",
)


def make_tiny_model(  # noqa: PLR0913 -- the options of a builder
    path: Path | str,
    *,
    architecture: str = "qwen3",
    vocab: int = 384,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    tie_embeddings: bool = True,
    max_positions: int = 2048,
    init_std: float = 0.2,
    chat_template: str = CHAT_TEMPLATE,
    seed: int = 0,
) -> Path:
    """Write a random decoder of the architecture with its tokenizer; return the folder.

    Args:
        path: the folder, made if missing.
        architecture: ``model_type`` of transformers: ``qwen3``, ``llama``, ``mistral``, ...
        vocab: entries of the tokenizer and of the embedding, at least 259 (bytes and three more).
        hidden: width; the MLP is three times as wide.
        layers: number of decoder layers.
        heads: attention heads, twice as many as key-value heads; ``hidden`` is a multiple of it.
        tie_embeddings: the output layer is the embedding.
        max_positions: longest context.
        init_std: spread of the weights; a wide one gives texts that vary.
        chat_template: Jinja text; ChatML if left out.
        seed: of the weights. The tokenizer is always the same.
    """
    from transformers import AutoConfig, GenerationConfig

    tokenizer = make_tiny_tokenizer(vocab=vocab, chat_template=chat_template)
    eos, pad = tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    config = AutoConfig.for_model(
        architecture,
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=hidden // heads,
        max_position_embeddings=max_positions,
        max_window_layers=layers,
        tie_word_embeddings=tie_embeddings,
        initializer_range=init_std,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    stops = GenerationConfig(eos_token_id=[eos, pad], pad_token_id=pad)
    return write_random_model(
        path, config=config, tokenizer=tokenizer, generation_config=stops, seed=seed
    )


def make_tiny_tokenizer(
    *, vocab: int = 384, chat_template: str = CHAT_TEMPLATE
) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer of exactly ``vocab`` entries that can write any text.

    Its merges are few, so that a sampled text seldom tokenises back to the sampled ids.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [END_OF_TEXT, TURN_START, TURN_END]
    if vocab < 256 + len(special):
        raise ValueError(f"vocab is {vocab}; 256 bytes and {len(special)} special tokens need 259")
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_CORPUS, trainer)
    fillers = [f"<|extra_{i}|>" for i in range(vocab - core.get_vocab_size())]
    core.add_special_tokens(fillers)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )
