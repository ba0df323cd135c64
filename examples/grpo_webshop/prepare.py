"""Make the tiny example's shop, goals, demonstrations and model, in seconds and without a download.

Written to ``--folder``, all by ``--seed``:

* ``shop/``: 36 invented products in WebShop's format, each of its own kind and with one option
* ``train.jsonl``, ``test.jsonl``: goals by their session ids, 50 of them held out
* ``sft.jsonl``: sessions of an oracle in a hurry: it often buys before all options are chosen
* ``model/``: a Qwen3 of half a million random weights, and a tokenizer of the shop's words
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity_envs_webshop.env import WebShopEnv
from trinity_envs_webshop.oracle import oracle_action
from trinity_envs_webshop.prompt import WEBSHOP_SYSTEM_PROMPT, format_observation
from trinity_envs_webshop.shop import Shop, ShopSettings
from trinity_envs_webshop.synthetic import product_entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PreTrainedTokenizerFast

NUM_PRODUCTS, NUM_HELD_OUT = 36, 50
NUM_DEMONSTRATIONS = 7  # of each training goal
HURRY = 0.6  # how often an option is not chosen
SETTINGS = ShopSettings(human_goals=False)
OBSERVATION_MODE = "text"  # as in webshop_tiny.yaml

PAD, END = "<|pad|>", "<|end|>"
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
    write_model(folder / "model", texts=texts_of(shop, shown), seed=options.seed)
    print(f"{len(shop.goals)} goals, {len(shown)} demonstrations and a model are in {folder}/")


def write_shop(folder: Path) -> None:
    """Write the first products that have one option of four values or more, one of each kind."""
    products: dict[str, dict[str, Any]] = {}
    about: dict[str, Any] = {}
    number = 0
    while len(products) < NUM_PRODUCTS:
        entry, what_is_said, _ = product_entry(number)
        values = [len(given) for given in (entry["customization_options"] or {}).values()]
        has_choices = len(values) == 1 and values[0] >= 4
        if has_choices and entry["query"] not in products and "instruction" in what_is_said:
            products[entry["query"]] = entry
            about[entry["asin"]] = what_is_said
        number += 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items_shuffle.json").write_text(json.dumps(list(products.values())))
    (folder / "items_ins_v2.json").write_text(json.dumps(about))
    (folder / "items_human_ins.json").write_text("{}")


def demonstrations(shop: Shop, *, seed: int) -> list[dict[str, Any]]:
    """Return conversations about the training goals, in a random order."""
    rng = random.Random(seed)
    numbers = [*range(NUM_HELD_OUT, len(shop.goals))] * NUM_DEMONSTRATIONS
    rng.shuffle(numbers)
    return [{"messages": conversation(shop, number, rng=rng)} for number in numbers]


def conversation(
    shop: Shop, number: int, *, rng: random.Random, hurry: float = HURRY
) -> list[dict[str, str]]:
    """Return one session as messages; each option is left out as often as ``hurry`` says."""
    env = WebShopEnv(shop, observation_mode=OBSERVATION_MODE)
    observation, _ = env.reset(number)
    messages = [{"role": "system", "content": WEBSHOP_SYSTEM_PROMPT}]
    is_done = False
    while not is_done:
        shown = format_observation(observation, env.get_available_actions())
        action = oracle_action(env, words=env.goal.query)
        is_option = env.session.page.clickables.get(action[len("click[") : -1]) == "option"
        if is_option and rng.random() < hurry:
            action = "click[buy now]"
        messages += [
            {"role": "user", "content": shown},
            {"role": "assistant", "content": f"<action>{action}</action>"},
        ]
        observation, _, is_done, _ = env.step(action)
    return messages


def texts_of(shop: Shop, shown: list[dict[str, Any]]) -> list[str]:
    """Return what the tokenizer is to have words for."""
    goals = [shop.goals[number].instruction_text for number in range(len(shop.goals))]
    return goals + [message["content"] for row in shown for message in row["messages"]]


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
    """Return a tokenizer with a token for nearly every word of the texts."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    words = Regex(r"\n| ?[A-Za-z0-9.-]+| ?[^\sA-Za-z0-9]+|\s")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="isolated"),
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
