"""What the golden files do not exercise: sessions, buttons, page kinds, options."""

from __future__ import annotations

import random
import threading

import pytest
from trinity.errors import ConfigError, DataError
from trinity_envs_webshop.env import WebShopEnv, parsed_action
from trinity_envs_webshop.oracle import oracle_action
from trinity_envs_webshop.shop import Shop, ShopSettings

OPTIONS = {"Color": [{"value": "Red"}, {"value": "Blue"}]}


def an_env(shop, session=0, **given):
    env = WebShopEnv(shop, **given)
    env.reset(session)
    return env


def on_product(shop, number=0):
    env = an_env(shop)
    env.step(f"search[{shop.catalogue.product(number).title}]")
    env.step(f"click[{shop.catalogue.asin(number)}]")
    return env


def test_an_action_is_read_greedily_from_the_start_and_lower_cased():
    assert parsed_action("search[a] b[C] now") == ("search[a] b", "c")
    assert parsed_action("search[Red Shoe] now") == ("search", "red shoe")
    assert parsed_action("search[]") == ("search[]", None)
    assert parsed_action("say\nclick[x]") == ("say\nclick[x]", None)


def test_what_cannot_be_done_keeps_the_page_and_gives_an_integer_0(shop):
    env = an_env(shop)
    before = env.observation
    for action in ("click[search]", "click[nothing]", "jump", "search[]", "Search[x]", ""):
        state, reward, is_done, info = env.step(action)
        assert (state, reward, is_done, info) == (before, 0, False, None)
        assert type(reward) is int


def test_an_integer_is_the_goal_and_a_string_is_only_a_name(shop):
    env = WebShopEnv(shop)
    env.reset(7)
    assert (env.session.name, env.goal) == ("7", shop.goals[7])
    draws = {WebShopEnv(shop, rng=random.Random(seed)).reset("7")[0] for seed in range(20)}
    assert len(draws) > 1  # drawn by weight, not goal 7


def test_a_known_session_keeps_its_goal(shop):
    env = WebShopEnv(shop)
    env.reset("somebody")
    goal = env.goal
    env.reset(3)
    env.reset("somebody")
    assert env.goal is goal


def test_the_constructor_draws_a_session_as_the_published_one_does(shop):
    drawn = random.Random()
    drawn.setstate(shop.rng_state)
    first = "".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=10))
    shop.goals.draw(drawn)
    second = "".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=10))

    env = WebShopEnv(shop)

    assert env.session.name == first
    env.reset()
    assert env.session.name == second


def test_a_session_without_a_goal_says_how_many_there_are(shop):
    with pytest.raises(DataError, match=r"session 100000 has no goal: there are \d+, 0 to \d+"):
        WebShopEnv(shop).reset(100_000)


def test_an_unknown_observation_mode_is_refused(shop):
    with pytest.raises(ConfigError, match="'html'; it must be one of text, text_rich, url"):
        WebShopEnv(shop, observation_mode="html")


def test_the_url_mode_shows_the_url(shop):
    env = an_env(shop, observation_mode="url")
    assert env.step("search[red table]")[0].endswith("/search_results/0/red+table/1")


def test_r_shows_fifty_other_products_on_each_page(shop):
    env = an_env(shop)
    pages = set()
    for _ in range(4):
        page = env.step("search[<r>]")[0]
        assert "Page 1 (Total results: 50)" in page
        pages.add(page)
    assert len(pages) == 4


def test_r_takes_all_where_there_are_fewer_than_fifty(make_shop):
    env = an_env(make_shop({}, {}, {}))
    assert "(Total results: 3)" in env.step("search[<r>]")[0]


def test_c_finds_a_whole_category_in_order_and_not_capped(shop):
    env = an_env(shop)
    category = shop.catalogue.product(0).category
    expected = [
        n for n in range(len(shop.catalogue)) if shop.catalogue.product(n).category == category
    ]
    assert list(shop.found(["<c>", category], env.rng)) == expected
    assert f"(Total results: {len(expected)})" in env.step(f"search[<c> {category}]")[0]
    assert "(Total results: 0)" in env.step("search[<c>]")[0]
    assert "(Total results: 0)" in env.step("search[<c> spaceships]")[0]


def test_q_finds_the_products_of_a_query(shop):
    env = an_env(shop)
    query = shop.catalogue.product(5).query
    found = shop.found(["<q>", *query.split(" ")], env.rng)
    assert 5 in found
    assert all(shop.catalogue.product(int(number)).query == query for number in found)


def test_a_is_an_ordinary_search_where_the_published_one_fails(shop):
    env = an_env(shop)
    assert "Page 1" in env.step("search[<a> solid wood]")[0]


def test_pages_run_past_the_end_with_the_same_total(make_shop):
    env = an_env(make_shop({}, {}))
    env.step("search[table]")
    env.step("click[next >]")
    state, _, _, _ = env.step("click[next >]")
    assert "Page 3 (Total results: 2)" in state
    assert env.get_available_actions()["clickables"] == ["back to search", "< prev", "next >"]


def test_leaving_a_product_for_the_results_forgets_the_options(make_shop):
    shop = make_shop({"customization_options": OPTIONS})
    env = on_product(shop)
    env.step("click[red]")
    assert env.session.options == {"color": "red"}
    env.step("click[< prev]")
    env.step(f"click[{shop.catalogue.asin(0)}]")
    assert env.session.options == {}


def test_a_sub_page_leads_back_with_the_options_kept(make_shop):
    env = on_product(make_shop({"customization_options": OPTIONS}))
    env.step("click[red]")
    env.step("click[features]")
    env.step("click[< prev]")
    assert env.session.options == {"color": "red"}


def test_back_to_search_forgets_what_was_visited_and_a_typed_search_does_not(make_shop):
    shop = make_shop({})
    env = on_product(shop)
    asin = shop.catalogue.asin(0)
    assert f"[clicked button] {asin}" in env.step("search[table]")[0]
    env.step("click[back to search]")
    assert f"[button] {asin}" in env.step("search[table]")[0]


def test_a_value_equal_to_a_button_takes_its_place_and_does_what_the_button_does(make_shop):
    choices = {"Extra": [{"value": "Description"}, {"value": "Other"}]}
    env = on_product(make_shop({"customization_options": choices}))
    clickables = env.get_available_actions()["clickables"]
    assert clickables == [
        *("back to search", "< prev", "description", "features", "reviews", "buy now", "other"),
    ]
    env.step("click[description]")
    assert "/item_sub_page/" in env.session.url


def test_a_value_of_two_options_belongs_to_the_last(make_shop):
    choices = {"Top": [{"value": "Red"}], "Bottom": [{"value": "red"}, {"value": "blue"}]}
    env = on_product(make_shop({"customization_options": choices}))
    state = env.step("click[red]")[0]
    assert env.session.options == {"bottom": "red"}
    assert state.count("You have clicked red.\n") == 2  # shown under both


def test_option_names_equal_in_lower_case_are_one_option(make_shop):
    choices = {"Color": [{"value": "Red"}], "Size": [{"value": "S"}], "COLOR": [{"value": "Blue"}]}
    product = make_shop({"customization_options": choices}).catalogue.product(0)
    assert list(product.options.items()) == [("color", ["blue"]), ("size", ["s"])]


def test_a_value_with_letters_beyond_ascii_never_shows_as_clicked(make_shop):
    env = on_product(make_shop({"customization_options": {"Color": [{"value": "Café"}]}}))
    state = env.step("click[café]")[0]
    assert env.session.options == {"color": "café"}
    assert "[button] café [button_]" in state
    assert "You have clicked" not in state


def test_a_value_equal_to_an_option_name_shows_as_clicked(make_shop):
    choices = {"Color": [{"value": "Red"}], "Kind": [{"value": "Color"}]}
    env = on_product(make_shop({"customization_options": choices}))
    state = env.step("click[red]")[0]
    assert state.startswith("You have clicked color.\nYou have clicked red.\n")


def test_a_value_quoted_in_the_search_words_shows_as_clicked(make_shop):
    shop = make_shop({"customization_options": OPTIONS})
    env = an_env(shop)
    env.step('search[table "red"]')
    assert "[clicked button] red" in env.step(f"click[{shop.catalogue.asin(0)}]")[0]


def test_the_kind_of_page_is_read_from_the_url_words_and_all(make_shop):
    shop = make_shop({}, {})
    env = an_env(shop)
    env.step("search[table search_results]")
    env.step(f"click[{shop.catalogue.asin(0)}]")
    state = env.step("click[< prev]")[0]  # taken for the results: one page back
    assert "Page 0 (Total results: 2)" in state
    env.step("search[table item_page]")
    env.step(f"click[{shop.catalogue.asin(0)}]")
    env.step("click[features]")
    assert "Page 1" in env.step("click[< prev]")[0]  # taken for a product's page


def test_the_published_environment_goes_on_after_buying(make_shop):
    env = on_product(make_shop({}))
    _, reward, is_done, _ = env.step("click[buy now]")
    assert (reward, is_done) == (1.0, True)
    assert env.get_available_actions() == {"has_search_bar": False, "clickables": []}
    assert "Page 1" in env.step("search[table]")[0]


def test_white_space_is_kept_or_dropped_as_a_browser_does(make_shop):
    bullets = ["", " \n ", "x"]
    env = on_product(make_shop({"small_description": bullets, "full_description": " "}))
    env.step("click[features]")
    assert [text for _, text in env.session.page.nodes][4:] == [" ", " x"]
    env.step("click[< prev]")
    env.step("click[description]")
    assert [text for _, text in env.session.page.nodes][4:] == [" "]
    assert env.observed("text").endswith("< Prev [SEP] ")


def test_a_filter_sees_positions_and_goals(invented_folder, shop):
    kept = Shop(invented_folder, keep=lambda i, goal: i % 2 == 0 and "by" in goal.instruction_text)
    assert kept.goals[:] == shop.goals[::2]


def test_num_products_cuts_the_file_before_anything_is_skipped(golden_folder):
    assert len(Shop(golden_folder).catalogue) == 177
    first = Shop(golden_folder, ShopSettings(num_products=40))
    assert first.catalogue.facts["num_documents"] == len(first.catalogue) <= 40


def test_the_oracle_buys_what_is_wanted(golden_shop):
    rewards = []
    for session in range(len(golden_shop.goals)):
        env = an_env(golden_shop, session)
        reward, is_done = 0.0, False
        for _ in range(20):
            _, reward, is_done, _ = env.step(oracle_action(env))
            if is_done:
                break
        assert is_done, env.instruction_text
        rewards.append(reward)
    # the rest asks for what its own product does not have, or two values of one option
    assert sum(reward == 1.0 for reward in rewards) / len(rewards) > 0.7


def test_threads_see_what_one_alone_sees(shop):
    def played(session):
        env = an_env(shop, session)
        states = []
        while len(states) < 15:
            state, _, is_done, _ = env.step(oracle_action(env))
            states.append(state)
            if is_done:
                break
        return states

    alone = [played(session) for session in range(24)]
    beside = [[] for _ in range(8)]
    threads = [
        threading.Thread(target=lambda n=n: beside[n].extend(map(played, range(n, 24, 8))))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [beside[session % 8][session // 8] for session in range(24)] == alone
