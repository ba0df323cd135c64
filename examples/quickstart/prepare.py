"""Make the quickstart's model, tokenizer and questions, in seconds and without a download.

Written to ``--folder``, all by ``--seed``:

* ``model/``: a Qwen3 of 0.13 million random weights, and a tokenizer of words
* ``sft.jsonl``: demonstrations: the right form, but only roughly the right sum
* ``train.jsonl``: 320 questions with their answers
* ``test.jsonl``: 80 questions that no stage trains on
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.rows import write_rows
from trinity_testing.small_model import END, PAD, ROLES, chat_tokenizer, make_small_model

if TYPE_CHECKING:
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

UNKNOWN = "<|unknown|>"


def main() -> None:
    """Write the four things into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the split")
    parser.add_argument("--hidden", type=int, default=64, help="width of the model (vLLM: 128)")
    parser.add_argument("--folder", type=Path, default=Path("quickstart_run"))
    options = parser.parse_args()
    folder, seed = options.folder, options.seed
    write_questions(folder, seed=seed)
    make_small_model(
        folder / "model",
        tokenizer=make_tokenizer(),
        hidden=options.hidden,
        mlp=256,
        layers=2,
        max_positions=64,
        init_std=0.1,
        seed=seed,
    )
    print(f"model and questions are in {folder}/ (seed {seed})")


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


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the words of the questions and the numbers 0 to 18."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

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
    return chat_tokenizer(core, unknown=UNKNOWN)


if __name__ == "__main__":
    main()
