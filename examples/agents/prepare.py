"""Make a tiny model and questions for an agent with two tools, in seconds and without a download.

Written to ``--folder``, all by ``--seed``:

* ``model/``: a Qwen3 of random weights, whose tokenizer knows words, numbers and tool calls
* ``sft.jsonl``: demonstrations: each calls a tool in the right form, six of ten the right tool
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

TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
PHRASINGS = {
    "what is {a} plus {b} ?": "add",
    "the sum of {a} and {b} is": "add",
    "what is {a} times {b} ?": "multiply",
    "the product of {a} and {b} is": "multiply",
}
MAX_RESULT = 81
NUM_HELD_OUT = 80
NUM_DEMONSTRATIONS = 6  # of each training question
RIGHT = 0.6  # part of the demonstrations that call the right tool

UNKNOWN, TOOL_ROLE = "<|unknown|>", "<|tool|>"
CALL = ["<tool_call>", '{"name":', '"add",', '"multiply",', '"arguments":', '{"a":', '"b":', ","]
CALL += ["}}", "</tool_call>"]
# As templates of Qwen write calls; the descriptions of tools it leaves out: there are always two.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message.role + '|>' + (message.content or '') -}}"
    "{%- for call in message.tool_calls or [] -%}"
    """{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' -}}"""
    "{{- call.function.arguments | tojson -}}{{- '}</tool_call>' -}}"
    "{%- endfor -%}"
    "{{- '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def main() -> None:
    """Write the four things into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the split")
    parser.add_argument("--folder", type=Path, default=Path("agents_run"))
    options = parser.parse_args()
    folder, seed = options.folder, options.seed
    write_questions(folder, seed=seed)
    make_small_model(
        folder / "model",
        tokenizer=make_tokenizer(),
        hidden=128,  # heads of 32: the narrowest that other engines take
        mlp=256,
        layers=2,
        max_positions=128,
        init_std=0.1,
        seed=seed,
    )
    print(f"model and questions are in {folder}/ (seed {seed})")


def write_questions(folder: Path, *, seed: int) -> None:
    """Write training questions, held-out questions, and demonstrations of the training ones."""
    rng = random.Random(seed)
    rows = [
        {"question": phrasing.format(a=a, b=b), "tool": name, "a": a, "b": b}
        for phrasing, name in PHRASINGS.items()
        for a in range(10)
        for b in range(10)
    ]
    for row in rows:
        row["answer"] = str(TOOLS[row["tool"]](row["a"], row["b"]))
    rng.shuffle(rows)
    test, train = rows[:NUM_HELD_OUT], rows[NUM_HELD_OUT:]
    write_rows(folder / "test.jsonl", test)
    write_rows(folder / "train.jsonl", train)
    shown = [demonstration(row, rng=rng) for row in train * NUM_DEMONSTRATIONS]
    rng.shuffle(shown)
    write_rows(folder / "sft.jsonl", shown)


def demonstration(row: dict[str, Any], *, rng: random.Random) -> dict[str, Any]:
    """Return a conversation that calls one of the tools, a little more often the right one."""
    wrong, right = sorted(TOOLS, key=lambda name: name == row["tool"])
    name = right if rng.random() < RIGHT else wrong
    numbers = {"a": row["a"], "b": row["b"]}
    result = str(TOOLS[name](**numbers))
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": numbers}}
    return {
        "messages": [
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": result},
            {"role": "assistant", "content": result},
        ]
    }


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the questions' words, the numbers 0 to 81 and the parts of a call."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    special = [PAD, UNKNOWN, END, *ROLES, TOOL_ROLE]
    numbers = [str(number) for number in range(MAX_RESULT + 1)]
    words = sorted({word for text in PHRASINGS for word in text.split() if "{" not in word})
    vocabulary = {word: n for n, word in enumerate([*special, *numbers, *words, *CALL])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(r"</?tool_call>|\d+"), behavior="isolated"),
        ]
    )
    tokenizer = chat_tokenizer(core, unknown=UNKNOWN)
    tokenizer.add_special_tokens({"additional_special_tokens": [*ROLES, TOOL_ROLE]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


if __name__ == "__main__":
    main()
