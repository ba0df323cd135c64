"""Compare the environment with golden files of the published one.

    python tests/golden/run.py [--data FOLDER]

Prints for each file what passed and what failed, and the first difference of each kind; the exit
code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from trinity_envs_webshop.analyzer import terms
from trinity_envs_webshop.bm25 import BM25
from trinity_envs_webshop.env import WebShopEnv
from trinity_envs_webshop.goal import Goal
from trinity_envs_webshop.index_build import IndexBuilder
from trinity_envs_webshop.product import Product
from trinity_envs_webshop.reward import reward_of
from trinity_envs_webshop.shop import Shop, ShopSettings
from trinity_envs_webshop.stemmer import stem
from trinity_envs_webshop.tagger import GivenNouns

HERE = Path(__file__).parent / "webshop"


class Tally:
    """What passed and failed of one file, by kind."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.passed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def compare(self, kind: str, where: str, *, got: object, expected: object) -> None:
        if _is_error(expected):
            self.raised[kind] += 1
            return
        if got == expected and type(got) is type(expected):
            self.passed[kind] += 1
            return
        self.failed[kind] += 1
        self.first.setdefault(kind, _difference(where, got=got, expected=expected))

    def compare_call(
        self, kind: str, where: str, *, call: Callable[[], object], expected: object
    ) -> None:
        """Compare what a call returns; where upstream raised, raising passes too."""
        try:
            got: object = call()
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is the result
            got = {"error": type(error).__name__, "message": str(error)}
        self.compare(kind, where, got=got, expected=expected)

    def lines(self) -> Iterator[str]:
        apart = f", {self.raised.total()} where upstream raises" if self.raised else ""
        failed = f"{self.failed.total():,} failed{apart}"
        yield f"{self.file:<14} {self.passed.total():>7,} passed, {failed}"
        for kind in sorted(self.passed | self.failed | self.raised):
            yield f"    {kind:<22} {self.passed[kind]:>7,} passed, {self.failed[kind]:,} failed"
        for kind, difference in self.first.items():
            yield f"  first difference of {kind}:\n{difference}"


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE, help="a folder with golden files")
    folder: Path = parser.parse_args(arguments).data
    tallies = [
        check(folder, json.loads((folder / file).read_text(encoding="utf-8")))
        for file, check in CHECKS.items()
        if (folder / file).is_file()
    ]
    if not tallies:
        sys.stdout.write(f"{folder} holds none of {', '.join(CHECKS)}\n")
        return 1
    for tally in tallies:
        sys.stdout.write("".join(f"{line}\n" for line in tally.lines()))
    return 1 if any(tally.failed for tally in tallies) else 0


def check_search(folder: Path, golden: dict[str, Any]) -> Tally:
    """Compare terms, stems and rankings."""
    tally = Tally("search.json")
    for text, expected in golden["analyzer"]:
        tally.compare("terms", ascii(text), got=terms(text), expected=expected)
    for word, expected in golden["stems"].items():
        tally.compare("stem", word, got=stem(word), expected=expected)
    for name, corpus in golden["corpora"].items():
        asins = [asin for asin, _ in corpus["documents"]]
        with tempfile.TemporaryDirectory() as built:
            builder = IndexBuilder(Path(built))
            for _, text in corpus["documents"]:
                builder.add(text)
            engine = BM25(Path(built), **builder.finish(), id_of=asins.__getitem__)
            for query, expected in corpus["queries"].items():
                got = [[asins[number], round(score, 4)] for number, score in engine.search(query)]
                tally.compare(f"ranking {name}", query, got=got, expected=expected)
    return tally


def check_rewards(folder: Path, golden: dict[str, Any]) -> Tally:
    """Compare rewards with their parts."""
    tally = Tally("reward.json")
    tagger = GivenNouns(golden["nouns"])
    for case in golden["cases"]:

        def rewarded(case: dict[str, Any] = case) -> dict[str, Any]:
            reward, parts = reward_of(
                _product(golden["products"][case["purchased_asin"]]),
                goal=_goal(case["goal"]),
                price=case["price"],
                options=case["options"],
                tagger=tagger,
            )
            return {"reward": reward, **parts}

        where = f"case {case['id']}, {case['note']}"
        tally.compare_call("reward", where, call=rewarded, expected=case["expect"])
    return tally


def check_episodes(folder: Path, golden: dict[str, Any]) -> Tally:
    """Compare everything a shop does."""
    tally = Tally("episodes.json")
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(
            folder / "catalogue", copy, dirs_exist_ok=True, copy_function=shutil.copyfile
        )
        for run in golden["runs"]:
            made_with = run["constructor"]
            settings = ShopSettings(
                num_products=made_with["num_products"],
                human_goals=made_with["human_goals"],
                limit_goals=made_with.get("limit_goals"),
                show_attrs=made_with.get("show_attrs", False),
                seed=run["seed_before_constructor"],
            )
            shop = Shop(copy, settings, tagger=GivenNouns(golden["nouns"]))
            _check_shop(tally, shop, run)
            env = WebShopEnv(shop)
            for episode in run.get("episodes") or []:
                _check_episode(tally, env, episode, texts=golden["texts"])
            _check_random_sessions(tally, shop, run)
            _check_history(tally, shop, run)
    return tally


CHECKS = {
    "search.json": check_search,
    "reward.json": check_rewards,
    "episodes.json": check_episodes,
}


def _check_shop(tally: Tally, shop: Shop, run: dict[str, Any]) -> None:
    catalogue = shop.catalogue
    asins = [catalogue.asin(number) for number in range(len(catalogue))]
    tally.compare("order of products", "", got=asins, expected=run["product_order"])
    prices = dict(zip(asins, shop.prices.tolist(), strict=True))
    for asin, price in run["product_prices"].items():
        tally.compare("price", asin, got=prices[asin], expected=price)
    num_goals = run.get("n_goals", len(run["goals"]))
    tally.compare("number of goals", "", got=len(shop.goals), expected=num_goals)
    goals = run["goals"]
    pairs = goals.items() if isinstance(goals, dict) else enumerate(goals)
    for index, expected in pairs:
        goal: Goal = shop.goals[int(index)]
        got = {name: getattr(goal, name) for name in Goal.__slots__}
        tally.compare("goal", f"goal {index}", got=got, expected=expected)
    for query, expected in run["search_top50"].items():
        hits = shop.engine.search(query, limit=50)
        scores = _with_ties_apart([round(score, 4) for _, score in hits])
        got = [
            [catalogue.asin(number), score] for (number, _), score in zip(hits, scores, strict=True)
        ]
        tally.compare("ranking", query, got=got, expected=expected)


def _check_episode(
    tally: Tally, env: WebShopEnv, episode: dict[str, Any], *, texts: list[str]
) -> None:
    where = f"session {episode['session']}"
    env.reset(episode["session"])
    first: Goal = env.shop.goals[episode["goal_index"]]
    tally.compare("goal of the session", where, got=env.goal, expected=first)
    _check_page(tally, env, episode["reset"], texts=texts, where=f"{where}, reset")
    for number, step in enumerate(episode["steps"]):
        place = f"{where}, step {number}, {step['action']!r}"
        if _is_error(step):
            tally.raised["step"] += 1
            break
        _, reward, is_done, _ = env.step(step["action"])
        tally.compare("reward", place, got=reward, expected=step["reward"])
        tally.compare("done", place, got=is_done, expected=step["done"])
        if "reward_info" in step:
            tally.compare("parts", place, got=env.reward_info, expected=step["reward_info"])
        _check_page(tally, env, step, texts=texts, where=place)


def _check_page(
    tally: Tally, env: WebShopEnv, expected: dict[str, Any], *, texts: list[str], where: str
) -> None:
    for mode in ("text", "text_rich", "url"):
        if mode in expected:
            tally.compare(mode, where, got=env.observed(mode), expected=texts[expected[mode]])
    actions = env.get_available_actions()
    bar, wanted = actions["has_search_bar"], expected["has_search_bar"]
    tally.compare("search bar", where, got=bar, expected=wanted)
    clickables = json.loads(texts[expected["clickables"]])
    tally.compare("clickables", where, got=actions["clickables"], expected=clickables)


def _check_random_sessions(tally: Tally, shop: Shop, run: dict[str, Any]) -> None:
    sessions = run.get("random_sessions")
    if not sessions:
        return
    env = WebShopEnv(shop)
    env.rng.seed(sessions["seed"])
    for number, (name, goal_index) in enumerate(sessions["resets"]):
        env.reset()
        got = (env.session.name, env.goal)
        expected = (name, shop.goals[goal_index])
        tally.compare("random session", f"reset {number}", got=got, expected=expected)


def _check_history(tally: Tally, shop: Shop, run: dict[str, Any]) -> None:
    history = run.get("history_states")
    if not history:
        return
    made_with = run["constructor"]
    env = WebShopEnv(
        shop,
        observation_mode="text",
        num_prev_obs=made_with["num_prev_obs"],
        num_prev_actions=made_with["num_prev_actions"],
    )
    env.reset(history["session"])
    for step in history["steps"]:
        state = env.step(step["action"])[0]
        tally.compare("history", step["action"], got=state, expected=step["state"])


def _with_ties_apart(scores: list[float]) -> list[float]:
    """Return the scores as Anserini reports them: float32, each further equal one a bit less."""
    apart, num_equal = [], 0
    for place, score in enumerate(scores):
        num_equal = num_equal + 1 if place and score == scores[place - 1] else 0
        apart.append(round(float(np.float32(score) - np.float32(1e-6) * num_equal), 6))
    return apart


def _product(entry: dict[str, Any]) -> Product:
    return Product(
        asin=entry["asin"],
        title=entry["Title"],
        description=entry["Description"],
        bullet_points=entry["BulletPoints"],
        query=entry["query"],
        category=entry["category"],
        product_category=entry["product_category"],
        attributes=entry["Attributes"],
    )


def _goal(entry: dict[str, Any]) -> Goal:
    known = {name: entry[name] for name in Goal.__slots__ if name in entry}
    return Goal(**{"instruction_text": "", **known})


def _is_error(expected: object) -> bool:
    return isinstance(expected, dict) and "error" in expected


def _difference(where: str, *, got: object, expected: object) -> str:
    texts = repr(got), repr(expected)
    pairs = enumerate(zip(*texts, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(map(len, texts)))
    start = max(0, at - 60)
    here, there = (text[start : at + 140] for text in texts)
    return f"    at {where}\n    got      ...{here}\n    expected ...{there}"


if __name__ == "__main__":
    sys.exit(main())
