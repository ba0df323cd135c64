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

from trinity.common.rows import write_rows
from trinity_envs_alfworld.env import create_environment
from trinity_envs_alfworld.games import DATA_VERSION, rows
from trinity_envs_alfworld.generate import games
from trinity_envs_alfworld.oracle import SearchingPlayer, conversation, goal_of
from trinity_testing.small_model import END, PAD, ROLES, chat_tokenizer, make_small_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NUM_GAMES = {"train": 600, "valid_seen": 50}
THINGS = ("Candle", "Cloth", "SoapBar", "SprayBottle")
PLACES = ("CounterTop", "GarbageCan", "SinkBasin", "Toilet")
NUM_DEMONSTRATIONS = 2  # of each training game
FORGETS = 0.75  # how often who plays stands there, ready to win, and only looks around
NUM_LOOKS = 2  # shown of the looking around; it would go on until the end
MAX_STEPS = 10  # as in alfworld_tiny.yaml

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
    folder: Path = options.folder
    data = folder / "games"
    train, test = (write_games(data, split=split, seed=options.seed) for split in NUM_GAMES)
    write_rows(folder / "train.jsonl", train)
    write_rows(folder / "test.jsonl", test)
    shown = demonstrations(data, train, seed=options.seed)
    write_rows(folder / "sft.jsonl", shown)
    make_small_model(
        folder / "model",
        tokenizer=make_tokenizer(texts_of(shown)),
        hidden=96,
        mlp=256,
        layers=3,
        max_positions=2048,
        init_std=0.08,
        seed=options.seed,
    )
    print(f"games, {len(shown)} demonstrations and a model are in {folder}/")


def write_games(data: Path, *, split: str, seed: int) -> list[dict[str, str]]:
    """Write the first generated games that ask for one of our things and places; return the rows.

    What another seed left in the folder has no row.
    """
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
    written = set()
    for game, content in islice(fitting, NUM_GAMES[split]):
        folder = data / DATA_VERSION / split / game.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "game.tw-pddl").write_text(json.dumps(content), encoding="utf-8")
        (folder / "traj_data.json").write_text(json.dumps(game.trajectory()), encoding="utf-8")
        written.add(folder / "game.tw-pddl")
    return [row for row in rows(data, split) if data / row["game_file"] in written]


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


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each thing, word and phrase of the texts."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

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
    return chat_tokenizer(core)


if __name__ == "__main__":
    main()
