"""What is left is the least of what the machine and the containers around a process have."""

from __future__ import annotations

import pytest
from trinity.common.memory import address_space_remark, memory, num_oom_kills

MIB = 2**20
MEMINFO = "MemTotal:       8192 kB\nMemFree:         512 kB\nMemAvailable:   6144 kB\n"


@pytest.fixture
def system(tmp_path):
    """Return a function that writes what the kernel says, and what is left then."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"

    def left(*, meminfo=MEMINFO, own="0::/\n", **groups):
        (proc / "self").mkdir(parents=True)
        (proc / "meminfo").write_text(meminfo)
        (proc / "self" / "cgroup").write_text(own)
        for name, (limit, used, files) in groups.items():
            folder = cgroups / name.replace("_", "/").removeprefix("root")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "memory.max").write_text(f"{limit}\n")
            (folder / "memory.current").write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"anon 1\nfile 9\ninactive_file {files}\n")
        found = memory(proc=proc, cgroups=cgroups)
        return None if found is None else found.left

    return left


def test_a_process_in_no_container_has_what_the_machine_has(system) -> None:
    assert system() == 6 * MIB


def test_in_a_container_it_has_what_its_limit_leaves_and_files_in_memory_count_as_left(
    system,
) -> None:
    assert system(root=(4 * MIB, 3 * MIB, 2 * MIB)) == 3 * MIB  # 4 - 3 + 2


def test_the_narrowest_of_the_containers_around_it_counts(system) -> None:
    groups = {"pod": (4 * MIB, 3 * MIB, 0), "pod_task": ("max", 3 * MIB, 0)}

    assert system(own="1:cpu:/\n0::/pod/task\n", **groups) == MIB


def test_the_least_limit_is_that_of_the_container_also_where_the_machine_has_less_left(
    system, tmp_path
) -> None:
    """Of 8 MiB in all 1 is left, of the container's 4 MiB 3 are."""
    at = {"proc": tmp_path / "proc", "cgroups": tmp_path / "cgroup"}
    left = system(meminfo=MEMINFO.replace("6144", "1024"), root=(4 * MIB, MIB, 0))

    assert left == MIB
    assert memory("limit", **at).limit == 4 * MIB


def test_a_container_over_its_limit_has_nothing_left(system) -> None:
    assert system(root=(4 * MIB, 5 * MIB, 0)) == 0


def test_a_system_that_says_nothing_is_taken_to_have_enough(system) -> None:
    assert system(meminfo="", own="4:memory:/a\n") is None


def test_an_older_kernel_tells_of_a_container_in_files_of_its_own(tmp_path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cgroup" / "memory" / "task"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("4:memory:/task\n0::/\n")
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("8000000000\n")
    (group / "memory.usage_in_bytes").write_text("7950000000\n")
    (group / "memory.stat").write_text("total_inactive_file 50000000\n")
    (group / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")

    assert str(memory(proc=proc, cgroups=tmp_path / "cgroup")) == "7.9 of 8.0 GB"
    assert num_oom_kills(proc=proc, cgroups=tmp_path / "cgroup") == 3


def test_an_error_for_lack_of_memory_names_the_limit_of_the_process(monkeypatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (4_000_000 * 1024, -1))

    assert "4.1 GB here (ulimit -v 4000000)" in address_space_remark(MemoryError())
    assert address_space_remark(KeyError("memory")) == ""


def test_the_search_for_that_ends_where_an_error_is_its_own_cause(monkeypatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (4_000_000 * 1024, -1))
    error, before = KeyError("rows"), RuntimeError("can't start new thread")
    error.__cause__, error.__context__ = error, before

    assert "ulimit -v 4000000" in address_space_remark(error)
