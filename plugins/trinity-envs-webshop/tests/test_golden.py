"""The golden files of the published environment, and that the comparison can fail."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent / "golden"

_spec = importlib.util.spec_from_file_location("webshop_golden_run", HERE / "run.py")
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)


def test_every_golden_file_of_invented_products_is_equal(capsys):
    code = run.main(["--data", str(HERE / "webshop")])

    told = capsys.readouterr().out
    assert code == 0, told
    assert "search.json      3,653 passed, 0 failed\n" in told
    assert "reward.json        297 passed, 0 failed, 1 where upstream raises\n" in told
    assert "episodes.json    5,915 passed, 0 failed\n" in told


def test_a_difference_is_shown_and_ends_with_1(tmp_path, capsys):
    golden = json.loads((HERE / "webshop" / "reward.json").read_text())
    golden["cases"] = golden["cases"][:3]
    golden["cases"][1]["expect"]["r_att"] = 0.123
    (tmp_path / "reward.json").write_text(json.dumps(golden))

    code = run.main(["--data", str(tmp_path)])

    told = capsys.readouterr().out
    assert code == 1
    assert "2 passed, 1 failed" in told
    assert "0.123" in told


def test_a_folder_without_golden_files_ends_with_1(tmp_path, capsys):
    assert run.main(["--data", str(tmp_path)]) == 1
    assert "holds none of search.json" in capsys.readouterr().out


def test_the_bundled_colours_are_those_of_the_golden_files():
    import trinity_envs_webshop

    bundled = Path(trinity_envs_webshop.__file__).parent / "data" / "color_words.json"
    assert bundled.read_text() == (HERE / "webshop" / "color_words.json").read_text()


def test_the_comparison_leaves_the_folder_as_it_is(tmp_path):
    shutil.copytree(HERE / "webshop", tmp_path / "copy")
    before = sorted(tmp_path.rglob("*"))
    run.check_episodes(tmp_path / "copy", {"runs": [], "nouns": {}, "texts": []})
    assert sorted(tmp_path.rglob("*")) == before
