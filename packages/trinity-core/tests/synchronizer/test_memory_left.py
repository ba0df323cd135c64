"""What is left is the least of what the machine and the containers around a process have."""

from __future__ import annotations

import pytest
from trinity.synchronizer.memfd import bytes_left

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
        return bytes_left(proc=proc, cgroups=cgroups)

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


def test_a_container_over_its_limit_has_nothing_left(system) -> None:
    assert system(root=(4 * MIB, 5 * MIB, 0)) == 0


def test_a_system_that_says_nothing_is_taken_to_have_enough(system) -> None:
    assert system(meminfo="", own="4:memory:/a\n") is None
