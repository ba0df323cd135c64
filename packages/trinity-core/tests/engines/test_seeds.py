"""A request's own seed stands for its number, and for nothing else of its key."""

from trinity.common.ports import GenerationRequest, RunKey


def test_requests_of_a_rollout_with_one_seed_draw_the_same(tiny, start, ask, answers):
    engine = start(tiny)
    drawn = {
        (run, number, seed): answers(engine, ask(batch="3", run=run, request=number, seed=seed))[0]
        for run in (0, 1)
        for number in (1, 2)
        for seed in ("", "7", "8")
    }
    texts = {name: replies[0].token_ids for name, replies in drawn.items()}

    assert texts[0, 1, "7"] == texts[0, 2, "7"]
    assert texts[0, 1, ""] != texts[0, 2, ""]
    assert len({texts[0, 1, seed] for seed in ("", "7", "8")}) == 3
    assert texts[0, 1, "7"] != texts[1, 1, "7"]  # a group of equal replies would teach nothing


def test_a_seed_of_0_is_one():
    key = RunKey(batch="3", request=5)

    assert GenerationRequest(prompt_token_ids=(1,), key=key).drawn_by == key
    assert GenerationRequest(prompt_token_ids=(1,), key=key, seed="0").drawn_by != key
