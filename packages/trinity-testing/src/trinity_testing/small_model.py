"""Makes a small model to train from nothing, with a tokenizer of one task's own words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedTokenizerFast

__all__ = [
    "CHAT_TEMPLATE",
    "END",
    "PAD",
    "ROLES",
    "chat_tokenizer",
    "make_small_model",
    "write_random_model",
]

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
_NUM_HEADS = 4


def make_small_model(  # noqa: PLR0913 -- the options of a builder
    path: Path | str,
    *,
    tokenizer: PreTrainedTokenizerFast,
    hidden: int = 64,
    mlp: int = 256,
    layers: int = 2,
    max_positions: int = 1024,
    init_std: float = 0.1,
    seed: int = 0,
) -> Path:
    """Write a Qwen3 with random weights and its tokenizer; return the folder.

    Args:
        path: the folder, made if missing.
        tokenizer: one of ``chat_tokenizer``; the embedding has an entry for each of its tokens.
        hidden: width, a multiple of eight: each of the four heads has an even one.
        mlp: width of the MLP.
        layers: number of decoder layers.
        max_positions: longest context.
        init_std: spread of the weights. The usual 0.02 is for wide models; a small one would learn
            slowly from it.
        seed: of the weights.
    """
    from transformers import AutoConfig

    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=_NUM_HEADS,
        num_key_value_heads=_NUM_HEADS,
        head_dim=hidden // _NUM_HEADS,
        max_position_embeddings=max_positions,
        initializer_range=init_std,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return write_random_model(path, config=config, tokenizer=tokenizer, seed=seed)


def chat_tokenizer(core: Tokenizer, *, unknown: str | None = None) -> PreTrainedTokenizerFast:
    """Return the tokenizer that knows turns: a token for each role, and one that ends a turn.

    Args:
        core: how texts become tokens; ``PAD``, ``END`` and ``ROLES`` are among its tokens.
        unknown: the token of its own that stands for a word it does not have; None: it has all.
    """
    from transformers import PreTrainedTokenizerFast

    further = {} if unknown is None else {"unk_token": unknown}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        **further,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def write_random_model(
    path: Path | str,
    *,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    generation_config: GenerationConfig | None = None,
    seed: int = 0,
) -> Path:
    """Write a float32 decoder with random weights and its tokenizer; return the folder.

    Args:
        path: the folder, made if missing.
        config: of the decoder.
        tokenizer: stands beside it.
        generation_config: how it samples and where it stops; None: as the config says.
        seed: of the weights; the random state of the caller stays as it is.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from trinity.common.models.pretrained import no_progress_bars

    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if generation_config is not None:
        model.generation_config = generation_config
    with no_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
