"""A filter of system calls, as instructions of the kernel's packet filter."""

from __future__ import annotations

import platform
import struct

__all__ = ["filter_for", "knows_this_machine"]

# Numbers on x86_64 and aarch64; -1: none there. From the kernel's tables.
_ALWAYS = {
    "ptrace": (101, 117),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "setns": (308, 268),
    "unshare": (272, 97),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
}
_WITHOUT_NAMESPACES = {  # what namespaces of its own would make harmless
    "socket": (41, 198),
    "setsid": (112, 157),  # all processes stay in one group, which is ended as one
    "setpgid": (109, 154),
    "setuid": (105, 146),  # root would leave the user whose processes are limited
    "setreuid": (113, 145),
    "setresuid": (117, 147),
    "chroot": (161, 51),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "reboot": (169, 142),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_X32 = 0x40000000


def knows_this_machine() -> bool:
    """Return whether the numbers of this processor's system calls are known."""
    return platform.machine() in _MACHINES


def filter_for(*, has_namespaces: bool) -> bytes:
    """Return instructions of 8 bytes each: the calls above end with EPERM, all others pass.

    Args:
        has_namespaces: False: sockets, and leaving the process group, are denied too.
    """
    column, machine = _MACHINES[platform.machine()]
    calls = _ALWAYS if has_namespaces else _ALWAYS | _WITHOUT_NAMESPACES
    numbers = [of[column] for of in calls.values()]
    steps = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_AT_LEAST, len(numbers) + 1, 0, _X32 if column == 0 else 0xFFFFFFFF),
        *((_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
