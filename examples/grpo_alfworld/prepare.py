"""Make the tiny example's games, demonstrations and model, in a minute and without a download.

Written to ``--folder``, all by ``--seed``:

* ``games/``: bathrooms in ALFWorld's format, where one thing of four is to be put somewhere
* ``train.jsonl``, ``test.jsonl``: their paths, 50 of them held out
* ``sft.jsonl``: plays of somebody who knows how, but mostly forgets the last command
* ``model/``: a Qwen3 of 0.4 million random weights, and a tokenizer of what the rooms say
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity_envs_alfworld.env import create_environment
from trinity_envs_alfworld.games import rows
from trinity_envs_alfworld.generate import games
from trinity_envs_alfworld.oracle import SearchingPlayer, conversation, goal_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PreTrainedTokenizerFast

NUM_GAMES = {"train": 600, "valid_seen": 50}
THINGS = ("Candle", "Cloth", "SoapBar", "SprayBottle")
PLACES = ("CounterTop", "GarbageCan", "SinkBasin", "Toilet")
NUM_DEMONSTRATIONS = 2  # of each training game
FORGETS = 0.75  # how often who plays stands there, ready to win, and only looks around
NUM_LOOKS = 2  # shown of the looking around; it would go on until the end
MAX_STEPS = 10  # as in alfworld_tiny.yaml

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
# A tag; a thing with its number; a phrase up to the next thing; a word; anything else.
TOKENS = (
    r"</?[a-z]+>| [a-z]+ \d+|\n*[A-Z.,-][^\n<>:]*?(?= [a-z]+ \d|[\n<>:]|$):?"
    r"|\n*(?:go to|[a-z]+)| [a-z]+|[^\sa-zA-Z]+|\s+"
)


def main() -> None:
    """Write the four things into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of all that is random here")
    parser.add_argument("--folder", type=Path, default=Path("alfworld_tiny_run"))
    options = parser.parse_args()
    data: Path = options.folder / "games"
    for split, number in NUM_GAMES.items():
        write_games(data, split=split, number=number, seed=options.seed)
    write_rows(options.folder / "train.jsonl", rows(data, "train"))
    write_rows(options.folder / "test.jsonl", rows(data, "valid_seen"))
    shown = demonstrations(data, rows(data, "train"), seed=options.seed)
    write_rows(options.folder / "sft.jsonl", shown)
    write_model(options.folder / "model", texts=texts_of(shown), seed=options.seed)
    print(f"games, {len(shown)} demonstrations and a model are in {options.folder}/")


def write_games(data: Path, *, split: str, number: int, seed: int) -> None:
    """Write the first generated games that ask for a thing and a place of the few that we take."""
    made = games(
        seed,
        split=split,
        sizes=("tiny",),
        rooms=("Bathroom",),
        task_types=("pick_and_place_simple",),
        prove=False,  # playing each to its end would take another minute
    )
    fitting = (
        (game, content)
        for game, content in made
        if game.room.goal.item in THINGS and game.room.goal.place in PLACES
    )
    for game, content in islice(fitting, number):
        folder = data / "json_2.1.1" / split / game.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "game.tw-pddl").write_text(json.dumps(content), encoding="utf-8")
        (folder / "traj_data.json").write_text(json.dumps(game.trajectory()), encoding="utf-8")


class ForgetfulPlayer:
    """Plays as another until it has to let go of the thing; then it may forget, and look around."""

    def __init__(self, player: SearchingPlayer, *, forgets: bool) -> None:
        self._player, self._forgets = player, forgets
        self.num_looks = 0

    def reply(self, observation: str) -> str:
        """Return a command."""
        command = "look" if self.num_looks else self._player.turn(observation)[1]
        if self._forgets and command.startswith("move "):
            command = "look"
        self.num_looks += command == "look"
        return f"<action>{command}</action>"


def demonstrations(data: Path, shown: list[dict[str, str]], *, seed: int) -> list[dict[str, Any]]:
    """Return conversations about the games, in a random order."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = []
    for row in shown:
        game_file = (data / row["game_file"]).resolve()
        env = create_environment(game_file)
        for _ in range(NUM_DEMONSTRATIONS):
            searching = SearchingPlayer(goal_of(game_file))
            player = ForgetfulPlayer(searching, forgets=rng.random() < FORGETS)
            messages = conversation(env, player, max_steps=MAX_STEPS).messages
            num_left_out = 2 * max(0, player.num_looks - NUM_LOOKS)
            made.append({"messages": messages[: len(messages) - num_left_out]})
        env.close()
    rng.shuffle(made)
    return made


def texts_of(shown: list[dict[str, Any]]) -> list[str]:
    """Return what the tokenizer is to have words for."""
    return [message["content"] for row in shown for message in row["messages"]]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_model(folder: Path, *, texts: list[str], seed: int) -> None:
    """Write a small Qwen3 with random weights, and its tokenizer, as a model folder."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = make_tokenizer(texts)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=24,
        max_position_embeddings=2048,
        initializer_range=0.08,  # the usual 0.02 is for wide models; this one would learn slowly
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each thing, word and phrase of the texts."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(TOKENS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


if __name__ == "__main__":
    main()
