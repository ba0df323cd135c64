"""``trinity plugins check`` with and without a Ray worker."""

import json

import pytest
from trinity.cli.main import app
from typer.testing import CliRunner


def rows_of(*words):
    done = CliRunner().invoke(app, ["plugins", "check", *words, "--json"])
    assert done.exit_code in {0, 1}, done.output
    return json.loads(done.stdout)["results"]


def test_what_was_learnt_stands_in_the_answer_and_no_worker_is_asked():
    rows = {(row["id"], row["component"]): row for row in rows_of("opmd")}

    learns = rows["algorithm.learns", "algorithm/opmd"]
    assert (learns["status"], learns["message"][:9]) == ("PASS", "reward 0.")
    assert not [id for id, _ in rows if id.startswith("ray.")]


@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.usefixtures("ray_cluster")
def test_with_ray_a_worker_is_asked_for_each_plugin_and_each_component():
    rows = [row for row in rows_of("testing", "--ray") if row["id"].startswith("ray.")]

    assert {row["status"] for row in rows} == {"PASS"}
    assert {(row["plugin"], row["id"], row["component"]) for row in rows} >= {
        ("testing", "ray.digest", ""),
        ("testing", "ray.component", "workflow/text_world"),
        ("testing", "ray.component", "workflow/text_world_plan"),
    }
