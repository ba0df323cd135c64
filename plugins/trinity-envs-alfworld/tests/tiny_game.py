"""Games made by hand, as large as a test wants them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

GOAL = """
(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DeskType))))))
"""
WALKTHROUGH = ["go to shelf 1", "take mug 1 from shelf 1", "go to desk 1", "move mug 1 to desk 1"]


def a_game(*, num_shelves: int = 2, num_mugs: int = 1, goal: str = GOAL) -> dict[str, object]:
    """Return a game: mugs on shelves and in a drawer, one of them is wanted on the desk.

    The last shelf is "shelf 1", for the engine counts from the end; it holds "mug 1".
    """
    shelves = [_id("Shelf", number) for number in range(num_shelves)]
    drawer, desk = _id("Drawer", 50), _id("Desk", 60)
    receptacles = [*shelves, drawer, desk]
    mugs = [_id("Mug", number) for number in range(num_mugs)]
    places = {mug: [*shelves, drawer][-2 - number % num_shelves] for number, mug in enumerate(mugs)}
    places = {mug: places[mugs[-1 - number]] for number, mug in enumerate(mugs)}
    facts = ["(atLocation agent1 loc_start)", f"(openable {drawer})", "(= (total-cost) 0)"]
    for number, receptacle in enumerate(receptacles):
        kind = receptacle.partition("_bar_")[0]
        facts.append(f"(receptacleType {receptacle} {kind}Type)")
        facts.append(f"(receptacleAtLocation {receptacle} loc_{number})")
    for mug, receptacle in places.items():
        facts += [f"(objectType {mug} MugType)", f"(pickupable {mug})"]
        facts += [f"(inReceptacle {mug} {receptacle})"]
        facts += [f"(objectAtLocation {mug} loc_{receptacles.index(receptacle)})"]
    facts += [f"(canContain {kind}Type MugType)" for kind in ("Shelf", "Drawer", "Desk")]
    locations = " ".join(["loc_start", *(f"loc_{n}" for n in range(len(receptacles)))])
    problem = f"""(define (problem plan)
        (:domain alfred)
        (:objects agent1 - agent {locations} - location {" ".join(receptacles)} - receptacle
            {" ".join(mugs)} - object ShelfType DrawerType DeskType - rtype MugType - otype)
        (:init {" ".join(facts)})
        {goal}
        (:metric minimize (total-cost)))"""
    domain, grammar = (_of_alfworld(name) for name in ("alfred.pddl", "alfred.twl2"))
    return {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL", "put a mug in desk"),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": WALKTHROUGH,
    }


def write_game(
    root: Path,
    *,
    split: str = "train",
    trial: int = 0,
    kind: str = "pick_and_place_simple",
    **given: object,
) -> Path:
    """Return the file of a game, written where the published data have it."""
    folder = root / "json_2.1.1" / split / f"{kind}-Mug-None-Desk-301" / f"trial_T{trial:03}"
    folder.mkdir(parents=True, exist_ok=True)
    game = {**a_game(), **given}
    (folder / "game.tw-pddl").write_text(json.dumps(game))
    (folder / "traj_data.json").write_text(json.dumps({"task_type": kind}))
    (folder / "initial_state.pddl").write_text(str(game.get("pddl_problem")))
    return folder / "game.tw-pddl"


def _id(kind: str, number: int) -> str:
    return f"{kind}_bar__plus_{number:02}_dot_00_bar__minus_01_dot_50_bar__plus_00_dot_25"


def _of_alfworld(name: str) -> str:
    spec = find_spec("alfworld")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "data" / name).read_text()
