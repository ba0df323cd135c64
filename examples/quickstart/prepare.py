"""Make the quickstart's model, tokenizer and questions, in seconds and without a download.

Written to ``--folder``, all by ``--seed``:

* ``model/``: a Qwen3 of 0.13 million random weights, and a tokenizer of words
* ``sft.jsonl``: demonstrations: the right form, but only roughly the right sum
* ``train.jsonl``: 320 questions with their answers
* ``test.jsonl``: 80 questions that no stage trains on
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PreTrainedTokenizerFast

PHRASINGS = (
    "{a} + {b} =",
    "what is {a} plus {b} ?",
    "add {a} and {b}",
    "the sum of {a} and {b} is",
)
MAX_SUM = 18
NUM_HELD_OUT = 80
NUM_DEMONSTRATIONS = 6  # of each training question
MAX_ERROR = 2  # of a demonstration's answer

PAD, UNKNOWN, END = "<|pad|>", "<|unknown|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def main() -> None:
    """Write the four things into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the split")
    parser.add_argument("--folder", type=Path, default=Path("quickstart_run"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write_questions(options.folder, seed=options.seed)
    write_model(options.folder / "model", seed=options.seed)
    print(f"model and questions are in {options.folder}/ (seed {options.seed})")


def write_questions(folder: Path, *, seed: int) -> None:
    """Write training questions, held-out questions, and demonstrations of the training ones."""
    rng = random.Random(seed)
    rows = [
        {"question": phrasing.format(a=a, b=b), "answer": str(a + b)}
        for phrasing in PHRASINGS
        for a in range(10)
        for b in range(10)
    ]
    rng.shuffle(rows)
    test, train = rows[:NUM_HELD_OUT], rows[NUM_HELD_OUT:]
    write_rows(folder / "test.jsonl", test)
    write_rows(folder / "train.jsonl", train)
    shown = [demonstration(row, rng=rng) for row in train * NUM_DEMONSTRATIONS]
    rng.shuffle(shown)
    write_rows(folder / "sft.jsonl", shown)


def demonstration(row: dict[str, str], *, rng: random.Random) -> dict[str, Any]:
    """Return a conversation whose answer is one number, at most two away from the sum."""
    guess = int(row["answer"]) + rng.randint(-MAX_ERROR, MAX_ERROR)
    answer = str(min(MAX_SUM, max(0, guess)))
    return {
        "messages": [
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": answer},
        ]
    }


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_model(folder: Path, *, seed: int) -> None:
    """Write a small Qwen3 with random weights, and its tokenizer, as a model folder."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = make_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.1,  # the usual 0.02 is for wide models; this one would learn slowly
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the words of the questions and the numbers 0 to 18."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, UNKNOWN, END, *ROLES]
    numbers = [str(number) for number in range(MAX_SUM + 1)]
    words = sorted({word for text in PHRASINGS for word in text.split() if "{" not in word})
    vocabulary = {word: place for place, word in enumerate([*special, *numbers, *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(r"\d+|\w+|[^\w\s]"), behavior="isolated"),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


if __name__ == "__main__":
    main()
