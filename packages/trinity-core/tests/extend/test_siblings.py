"""Two plugin folders may have files of one name."""

from __future__ import annotations

import pytest
from trinity.errors import PluginError

WORKFLOW = """
from trinity.extend import Registry
from helper import VALUE

@Registry("workflows", kind="workflow").register_module("{name}")
class Mine:
    value = VALUE

    def late(self):
        import helper
        return helper.VALUE
"""


@pytest.fixture
def two_folders(site, tmp_path):
    folders = []
    for number in (1, 2):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        (folder / "helper.py").write_text(f"VALUE = {number}\n")
        (folder / "workflow.py").write_text(WORKFLOW.format(name=f"wf{number}"))
        folders.append(folder)
    return folders


def test_each_folder_imports_its_own_sibling(site, two_folders):
    manager = site.discover(plugin_dirs=two_folders)
    assert [manager.load("workflow", f"wf{n}").value for n in (1, 2)] == [1, 2]


def test_a_folder_that_comes_later_does_not_get_the_sibling_of_an_earlier_one(site, two_folders):
    first = site.discover(plugin_dirs=two_folders[:1])
    assert first.load("workflow", "wf1")().late() == 1
    both = first.narrowed(plugin_dirs=two_folders[1:])
    assert both.load("workflow", "wf2").value == 2


def test_a_late_import_that_two_folders_could_answer_is_an_error(site, two_folders):
    manager = site.discover(plugin_dirs=two_folders)
    workflow = manager.load("workflow", "wf2")()
    with pytest.raises(ImportError, match=r"'helper' is in the plugin folder .* and in .*from . "):
        workflow.late()


def test_a_folder_that_is_a_file_or_holds_nothing_is_said(site, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    site.discover(plugin_dirs=[tmp_path / "empty"])
    assert "holds no module or package" in capsys.readouterr().err
    (tmp_path / "one.py").write_text("")
    with pytest.raises(PluginError, match="is a file, not a folder"):
        site.discover(plugin_dirs=[tmp_path / "one.py"])
