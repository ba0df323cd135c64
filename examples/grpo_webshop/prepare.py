"""Make the tiny example's shop, goals, demonstrations and model, in seconds and without a download.

Written to ``--folder``, all by ``--seed``:

* ``shop/``: 36 invented products in WebShop's format, each of its own kind, in colors and sizes
* ``train.jsonl``, ``test.jsonl``: 526 goals by their session ids, and 50 that are held out
* ``sft.jsonl``: sessions of an oracle in a hurry: it mostly buys before the size is chosen
* ``model/``: a Qwen3 of a hundred thousand random weights, and a tokenizer of the shop's names
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.rows import write_rows
from trinity_envs_webshop.env import WebShopEnv
from trinity_envs_webshop.oracle import oracle_action
from trinity_envs_webshop.prompt import WEBSHOP_SYSTEM_PROMPT, format_observation
from trinity_envs_webshop.shop import Shop, ShopSettings
from trinity_envs_webshop.synthetic import product_entry
from trinity_testing.small_model import END, PAD, ROLES, chat_tokenizer, make_small_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NUM_PRODUCTS, NUM_HELD_OUT = 36, 50
HURRY = 0.8  # how often it buys when one option is chosen and the other is not
SETTINGS = ShopSettings(human_goals=False)
OBSERVATION_MODE = "text"  # as in webshop_tiny.yaml
VALUES = {  # none is like another: the reward compares letters
    "color": ("black", "white", "navy", "olive", "walnut", "ivory", "teal", "gold"),
    "size": ("small", "medium", "large", "twin", "queen", "compact"),
}
NUM_VALUES = 4  # of each option, on each product

PHRASES = (  # what the pages say again and again
    WEBSHOP_SYSTEM_PROMPT,
    "Observation:\nWebShop [SEP] Instruction: [SEP] ",
    "Observation:\nInstruction: [SEP] ",
    "i am looking for a ",
    " that is ",
    " and ",
    " with color: ",
    ", and size: ",
    ", and price lower than ",
    " dollars [SEP] ",
    "Search\nAvailable actions:\nsearch[words]",
    "Back to Search [SEP] Page 1 (Total results: ",
    ") [SEP] Next > [SEP] ",
    "\nAvailable actions:\nclick[back to search]\nclick[next >]\nclick[",
    "Back to Search [SEP] < Prev [SEP] color [SEP] ",
    " [SEP] size [SEP] ",
    " [SEP] Price: ",
    " [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now\n"
    "Available actions:\nclick[back to search]\nclick[< prev]\nclick[description]\n"
    "click[features]\nclick[reviews]\nclick[buy now]\nclick[",
    " [SEP] ",
    "]\nclick[",
    "<action>search[",
    "<action>click[",
    "back to search",
    "buy now",
    "]</action>",
)


def main() -> None:
    """Write the four things into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the demonstrations and the weights")
    parser.add_argument("--folder", type=Path, default=Path("webshop_tiny_run"))
    options = parser.parse_args()
    folder: Path = options.folder
    write_shop(folder / "shop")
    shop = Shop(folder / "shop", SETTINGS)
    sessions = [{"task_id": number, "target": ""} for number in range(len(shop.goals))]
    write_rows(folder / "test.jsonl", sessions[:NUM_HELD_OUT])
    write_rows(folder / "train.jsonl", sessions[NUM_HELD_OUT:])
    shown = demonstrations(shop, seed=options.seed)
    write_rows(folder / "sft.jsonl", shown)
    make_small_model(
        folder / "model",
        tokenizer=make_tokenizer(names_of(shop)),
        hidden=64,
        mlp=128,
        layers=2,
        max_positions=1024,
        init_std=0.08,
        seed=options.seed,
    )
    print(f"{len(shop.goals)} goals, {len(shown)} demonstrations and a model are in {folder}/")


def write_shop(folder: Path) -> None:
    """Write the first product of each kind, with two options and no long texts."""
    products: dict[str, dict[str, Any]] = {}
    about: dict[str, Any] = {}
    number = 0
    while len(products) < NUM_PRODUCTS:
        entry, what_is_said, _ = product_entry(number)
        if entry["query"] not in products and "instruction" in what_is_said:
            entry |= plain_parts(entry, rng=random.Random(number))
            products[entry["query"]] = entry
            about[entry["asin"]] = what_is_said
        number += 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items_shuffle.json").write_text(json.dumps(list(products.values())))
    (folder / "items_ins_v2.json").write_text(json.dumps(about))
    (folder / "items_human_ins.json").write_text("{}")


def plain_parts(entry: dict[str, Any], *, rng: random.Random) -> dict[str, Any]:
    """Return what replaces a product's long texts, its price and its options."""
    options = {
        name: [{"value": value, "image": None} for value in rng.sample(values, NUM_VALUES)]
        for name, values in VALUES.items()
    }
    return {
        "name": entry["query"].title(),
        "full_description": "",
        "small_description": entry["small_description"][:-2],
        "pricing": f"${rng.randrange(5, 95, 10)}",
        "customization_options": options,
    }


def demonstrations(shop: Shop, *, seed: int) -> list[dict[str, Any]]:
    """Return a conversation about each training goal, in a random order."""
    rng = random.Random(seed)
    numbers = list(range(NUM_HELD_OUT, len(shop.goals)))
    rng.shuffle(numbers)
    return [{"messages": conversation(shop, number, rng=rng)} for number in numbers]


def conversation(
    shop: Shop, number: int, *, rng: random.Random, hurry: float = HURRY
) -> list[dict[str, str]]:
    """Return one session as messages; the second option is left out as often as ``hurry`` says."""
    env = WebShopEnv(shop, observation_mode=OBSERVATION_MODE)
    observation, _ = env.reset(number)
    messages = [{"role": "system", "content": WEBSHOP_SYSTEM_PROMPT}]
    is_done = False
    while not is_done:
        shown = format_observation(observation, env.get_available_actions())
        action = oracle_action(env, words=env.goal.query)
        is_option = env.session.page.clickables.get(action[len("click[") : -1]) == "option"
        if is_option and env.session.options and rng.random() < hurry:
            action = "click[buy now]"
        messages += [
            {"role": "user", "content": shown},
            {"role": "assistant", "content": f"<action>{action}</action>"},
        ]
        observation, _, is_done, _ = env.step(action)
    return messages


def names_of(shop: Shop) -> set[str]:
    """Return what is named on pages and in goals: a token each."""
    goals = [shop.goals[number] for number in range(len(shop.goals))]
    names = {value for values in VALUES.values() for value in values}
    for goal in goals:
        product = shop.catalogue.product(shop.catalogue.number_of(goal.asin) or 0)
        names |= {product.title, product.asin, product.asin.lower(), product.price_text}
        names |= {goal.query, *goal.attributes, f"{goal.price_upper:.2f}"}
    return names


def make_tokenizer(names: set[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each phrase and name, and one for each other byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [PAD, END, *ROLES, *alphabet]
    core = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([PAD, END, *ROLES])
    core.add_tokens([AddedToken(text, normalized=False) for text in (*PHRASES, *sorted(names))])
    return chat_tokenizer(core)


if __name__ == "__main__":
    main()
