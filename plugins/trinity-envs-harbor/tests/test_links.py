"""Links among the artifacts of an agent, which a verifier could compare with themselves."""

from __future__ import annotations

import io
import tarfile

import pytest
from trinity_envs_harbor.links import leads_out, without_links_out

from .conftest import needs_bwrap

TOML = """
artifacts = ["/app/out"]
[verifier]
environment_mode = "separate"
[environment]
docker_image = "debian"
workdir = "/app"
"""
IS_EXPECTED = """
#!/bin/sh
cp /tests/expected.txt /tmp/expected.txt
if cmp /app/out/answer.txt /tests/expected.txt; then r=1; else r=0; fi
echo $r > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize(
    ("target", "is_out"),
    [
        ("b", False),
        ("../b", False),
        ("/app/out/deep/b", False),
        ("/usr/bin/python3", False),
        ("../../../opt/venv/bin/python", False),
        ("/tests/b", True),
        ("../../../tests/b", True),
        ("/app/other/b", True),
        ("/app/outside", True),
        ("/app/out", True),
        ("..", True),
        ("/", True),
        ("//tests/b", True),
        ("/usr/../tests/b", True),
        ("link/../../b", True),
        ("/proc/self/root/tests/b", True),
        ("/tmp/b", True),
    ],
)
def test_a_link_stays_in_its_artifact_or_leads_to_programs(target, is_out):
    assert leads_out("/app/out/deep/link", target, "/app/out/") == is_out


@pytest.mark.parametrize(
    ("artifact", "is_out"), [("/logs", True), ("/", True), ("/logs/verifier", True)]
)
def test_what_the_verifier_writes_is_no_artifact(artifact, is_out):
    assert leads_out("/logs/verifier/a", "/logs/verifier/b", artifact) == is_out


@needs_bwrap
@pytest.mark.parametrize(
    ("command", "reward"),
    [
        ("ln -s /tests/expected.txt out/answer.txt", 0.0),
        ("ln -s ../../tests/expected.txt out/answer.txt", 0.0),
        ("ln -s /proc/self/root/tests/expected.txt out/answer.txt", 0.0),
        ("ln -s /tmp/expected.txt out/answer.txt", 0.0),
        ("ln -s / out/root; ln -s root/tests/expected.txt out/answer.txt", 0.0),
        ("rm -r out; ln -s /tests out; ln -s /tests/expected.txt /app/answer.txt", 0.0),
        ("mkdir out/run; echo 42 > out/run/a; ln -s run/a out/answer.txt", 1.0),
    ],
)
def test_a_link_to_the_tests_is_no_answer(run_task, a_task, command, reward, caplog):
    folder = a_task(IS_EXPECTED, toml=TOML, **{"tests/expected.txt": "42\n"})
    [experience], _ = run_task(folder, f"mkdir out; {command}", action="raw", max_env_steps=1)

    assert experience.reward == reward
    assert ("among the artifacts are left out" in caplog.text) == (reward == 0.0)


def test_links_that_lead_out_are_taken_from_a_tar_and_nothing_else_is_changed():
    deep = "d" * 150 + "/" + "n" * 90  # has a header of its own before it
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, target in (
            ("out/a", tarfile.REGTYPE, ""),
            ("out/answer", tarfile.SYMTYPE, "/tests/expected"),
            ("out/again", tarfile.LNKTYPE, "out/answer"),
            (f"out/{deep}", tarfile.SYMTYPE, f"../../../tests/{deep}"),
            ("out/b", tarfile.LNKTYPE, "out/a"),
            ("out/c", tarfile.SYMTYPE, "a"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            info.size = 700 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"x" * info.size))

    kept, links = without_links_out(packed.getvalue(), "/app", "/app/out")

    assert links == ["/app/out/answer", "/app/out/again", f"/app/out/{deep}"]
    with tarfile.open(fileobj=io.BytesIO(kept)) as tar:
        found = {one.name: (one.type, one.linkname, one.size) for one in tar}
        assert tar.extractfile("out/a").read() == b"x" * 700
    assert found == {
        "out/a": (tarfile.REGTYPE, "", 700),
        "out/b": (tarfile.LNKTYPE, "out/a", 0),
        "out/c": (tarfile.SYMTYPE, "a", 0),
    }
    assert without_links_out(kept, "/app", "/app/out") == (kept, [])


def test_a_file_by_another_name_is_what_a_link_led_to_and_no_artifact():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("conftest.py"))

    assert without_links_out(packed.getvalue(), "/app", "/app/out") == (b"", ["/app/out"])
    assert without_links_out(packed.getvalue(), "/app", "/app/conftest.py")[1] == []


def test_nothing_is_left_of_a_tar_that_holds_a_link_alone():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("out")
        info.type, info.linkname = tarfile.SYMTYPE, "/tests/expected"
        tar.addfile(info)

    assert without_links_out(packed.getvalue(), "/app", "/app/out") == (b"", ["/app/out"])
