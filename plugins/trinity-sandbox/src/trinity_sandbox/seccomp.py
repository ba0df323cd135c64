"""A filter of system calls, as instructions of the kernel's packet filter."""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple

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
    # Memory that no process has mapped is in no limit.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
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
    # Landlock lets a user change what its files are, wherever they lie; by a descriptor, too, that
    # is open to read alone.
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
    "file_setattr": (469, 469),
    "inotify_add_watch": (254, 27),  # it tells the names of files
    "fanotify_init": (300, 262),  # likewise
    "mq_open": (240, 180),  # a queue stays when the command has ended
}


class _Argument(NamedTuple):
    """An argument, as far as a mask shows it, has a value."""

    place: int
    mask: int
    value: int


class _Condition(NamedTuple):
    """A call passes if all these arguments have their values; ``is_denied``: otherwise."""

    call: tuple[int, int]
    arguments: tuple[_Argument, ...]
    is_denied: bool = False


_ALL = 0xFFFFFFFF
_SELF = (_Argument(0, _ALL, 0),)  # a process is the first argument, and 0 the one that calls
_ALWAYS_IF = [
    _Condition((56, 220), (_Argument(0, 0x7E020000, 0),)),  # clone: no namespaces
    # prctl: no PR_SET_DUMPABLE, which would hide from the user what a process has open
    _Condition((157, 167), (_Argument(0, _ALL, 4),), is_denied=True),
]
_WITHOUT_NAMESPACES_IF = [
    _Condition((302, 261), _SELF),  # prlimit64
    _Condition((16, 29), (_Argument(1, 0xFFFFFF00, 0x5400),)),  # ioctl: of terminals and pipes
    _Condition((53, 199), (_Argument(1, 0xF, 1),)),  # socketpair: streams; others send anywhere
    # A user could change how its other processes run.
    _Condition((141, 140), (_Argument(0, _ALL, 0), _Argument(1, _ALL, 0))),  # setpriority
    _Condition((251, 30), (_Argument(0, _ALL, 1), _Argument(1, _ALL, 0))),  # ioprio_set
    _Condition((203, 122), _SELF),  # sched_setaffinity
    _Condition((144, 119), _SELF),  # sched_setscheduler
    _Condition((142, 118), _SELF),  # sched_setparam
    _Condition((314, 274), _SELF),  # sched_setattr
]
_CLONE3 = 435  # its flags are where no filter looks; without it, clone is called
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_X32 = 0x40000000


def knows_this_machine() -> bool:
    """Return whether the numbers of this processor's system calls are known."""
    return platform.machine() in _MACHINES


def filter_for(*, has_namespaces: bool) -> bytes:
    """Return instructions of 8 bytes each: the calls above end with EPERM, all others pass.

    Args:
        has_namespaces: False: what namespaces would make harmless is denied too.
    """
    column, machine = _MACHINES[platform.machine()]
    calls = _ALWAYS if has_namespaces else _ALWAYS | _WITHOUT_NAMESPACES
    conditions = _ALWAYS_IF if has_namespaces else _ALWAYS_IF + _WITHOUT_NAMESPACES_IF
    numbers = [of[column] for of in calls.values() if of[column] >= 0]
    checked = [step for one in conditions for step in _steps_of(one, column)]
    steps = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ENOSYS),
        *checked,
        (_AT_LEAST, len(numbers) + 1, 0, _X32 if column == 0 else 0xFFFFFFFF),
        *((_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _steps_of(condition: _Condition, column: int) -> list[tuple[int, int, int, int]]:
    """Return steps that end the filter for a call, and leave all other numbers as they are."""
    matches, differs = (_EPERM, _ALLOW) if condition.is_denied else (_ALLOW, _EPERM)
    steps = [(_RETURN, 0, 0, matches), (_RETURN, 0, 0, differs)]
    for argument in reversed(condition.arguments):
        steps = [
            (_LOAD, 0, 0, 16 + 8 * argument.place),  # its lower half; both machines begin with it
            (_AND, 0, 0, argument.mask),
            (_EQUAL, 0, len(steps) - 1, argument.value),
            *steps,
        ]
    return [(_EQUAL, 0, len(steps), condition.call[column]), *steps]
