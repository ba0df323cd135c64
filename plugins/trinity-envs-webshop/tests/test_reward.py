"""Rewards by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rapidfuzz import fuzz
from trinity.errors import ConfigError, DataError
from trinity_envs_webshop.goal import Goal
from trinity_envs_webshop.product import Product
from trinity_envs_webshop.reward import colour_of, reward_of, similarity
from trinity_envs_webshop.tagger import GivenNouns, LexiconTagger, tagger_named

TABLE = Product(
    asin="B1",
    title="Oak Table",
    query="table",
    product_category="Home \u203a Furniture \u203a Tables",
    attributes=["solid wood"],
    bullet_points=["Easy to clean"],
)
WISH = Goal(
    asin="B1",
    category="garden",
    query="table",
    name="Oak Table",
    product_category="Home \u203a Furniture \u203a Tables",
    instruction_text="i want a table",
    attributes=["solid wood", "easy to clean"],
    price_upper=30.0,
    goal_options=["ruby red", "large"],
)
NOUNS = GivenNouns({"Oak Table": ["oak", "table"], "Lamp": ["lamp"], "": []})


def rewarded(product=TABLE, goal=WISH, price=20.0, **options):
    return reward_of(product, goal=goal, price=price, options=options, tagger=NOUNS)


def test_attributes_options_and_the_price_count_alike():
    reward, parts = rewarded(color="red", size="small")
    assert reward == pytest.approx((2 + 1 + 1) / 5)
    assert (parts["r_att"], parts["r_option"]) == (1.0, 0.5)
    assert (parts["w_att"], parts["w_option"], parts["w_price"]) == (0.4, 0.4, 0.2)
    assert parts["r_price"] is True


def test_without_wanted_options_nothing_is_said_about_them():
    reward, parts = rewarded(goal=replace(WISH, goal_options=[]), price=30.01)
    assert reward == pytest.approx(2 / 3)
    assert "r_option" not in parts
    assert "w_option" not in parts
    assert parts["r_price"] is False


def test_a_product_of_another_kind_is_worth_nothing():
    lamp = replace(TABLE, title="Lamp", query="lamp", product_category="Home \u203a Lamps")
    reward, parts = rewarded(product=lamp)
    assert (reward, parts["r_type"], parts["title_score"]) == (0.0, 0.0, 0.0)


def test_a_wish_without_nouns_counts_as_a_fifth_alike():
    _, parts = rewarded(goal=replace(WISH, name="", query="x", product_category="y"))
    assert (parts["title_score"], parts["r_type"]) == (0.2, 0.5)


def test_repeated_nouns_count_below_so_the_goal_itself_may_score_less_than_1():
    tagger = GivenNouns({"Oak Table": ["oak", "table", "table"]})
    _, parts = reward_of(TABLE, goal=WISH, price=1.0, options={}, tagger=tagger)
    assert parts["title_score"] == 2 / 3


def test_similarity_is_rounded_before_it_is_compared():
    # 23 of 27 letters in common: 1 - 8 / 54 = 85.185 %, which is more than 85 and rounds to 85
    one, other = "m" * 23 + "abcd", "m" * 23 + "efgh"
    assert fuzz.token_set_ratio(one, other) > 85
    assert similarity(one, other) == 85
    product = replace(TABLE, attributes=[one])
    _, parts = rewarded(product=product, goal=replace(WISH, attributes=[other]))
    assert parts["r_att"] == 0.0
    assert similarity("wash, machine!", "Machine wash") == 100


def test_letters_beyond_ascii_are_dropped_before_comparing():
    assert similarity("caf\u00e9", "caf") == 100


def test_colours_are_found_anywhere_in_a_word_and_only_whole_in_a_pair():
    assert colour_of("tangerine") == "tan"
    assert colour_of("redwood") == "red"
    assert colour_of(("color", "dark red")) == ("color", "dark red")
    assert colour_of(("color", "red")) == "red"


def test_synthetic_options_are_compared_as_pairs():
    goal = replace(WISH, goal_options={"color": "red", "size": "x-large"})
    _, parts = rewarded(goal=goal, color="bright red", size="x-large")
    # ("color", "red") -> "red" meets "red"; "('size', 'x-large')" meets "x-large": 100 by words
    assert parts["r_option"] == 1.0


def test_a_goal_that_cannot_be_scored_is_a_clear_error():
    for goal in (replace(WISH, attributes=[]), replace(WISH, price_upper=0)):
        with pytest.raises(DataError, match="cannot be scored: it needs an attribute"):
            rewarded(goal=goal)


def test_the_lexicon_tagger_keeps_names_and_things():
    nouns = LexiconTagger().nouns("Brightby Men's Waterproof Hiking Boots, 2 Pack - Size 11")
    assert nouns == ["brightby", "men", "hiking", "boots", "pack", "size"]


def test_a_tagger_is_named_and_never_guessed():
    assert tagger_named("lexicon").name == "lexicon"
    with pytest.raises(ConfigError, match=r"no tagger named 'lexikon'. Did you mean 'lexicon'\?"):
        tagger_named("lexikon")
    assert isinstance(tagger_named("trinity_envs_webshop.tagger:LexiconTagger"), LexiconTagger)


@pytest.mark.parametrize("name", ["spacy", "textblob"])
def test_a_tagger_that_is_not_installed_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    tagger_named.cache_clear()
    with pytest.raises(ConfigError, match=rf"pip install 'trinity-envs-webshop\[{name}\]'"):
        tagger_named(name)
