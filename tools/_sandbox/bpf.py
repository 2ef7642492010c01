"""The system calls that sandboxed code may not make, as a classic BPF program for seccomp(2).

A deny list on top of namespaces or Landlock: what reaches into the kernel's rarely used corners, makes new
namespaces, or holds memory that no limit counts (memfd, System V shared memory, message queues).
"""

import functools
import platform
import struct

# name: (x86-64, aarch64); None where the architecture has no such call
DENIED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "personality": (135, 92), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "syslog": (103, 116), "lookup_dcookie": (212, 18), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "nfsservctl": (180, 42),
    "uselib": (134, None), "_sysctl": (156, None), "fanotify_init": (300, 262), "mbind": (237, 235),
    "set_mempolicy": (238, 237), "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
CLONE, CLONE3, SOCKET, IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, AUDIT_ARCH
NEW_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
INTERNET, UNIX = (2, 10), (1,)  # socket families; every other one, such as vsock, leaves a network namespace
TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI types into a terminal, TIOCLINUX pastes
X32_BIT = 0x40000000

EPERM, EACCES, ENOSYS = 1, 13, 38
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


def supported() -> bool:
    """Whether the tables know this machine's architecture."""
    return platform.machine() in ARCHITECTURES


@functools.cache
def program(families: tuple[int, ...]) -> bytes:
    """The filter as bytes of struct sock_filter.

    Args:
        families: socket families it may open (socket pairs are always allowed, which asyncio needs): internet ones
            where a network namespace holds them, unix ones where also the file system is hidden.
    """
    column, architecture = ARCHITECTURES[platform.machine()]
    code = [_op(LOAD, ARCHITECTURE), _op(JUMP_EQUAL, architecture, 1, 0), _op(RETURN, KILL_PROCESS), _op(LOAD, NUMBER)]
    if column == 0:
        code += [_op(JUMP_AT_LEAST, X32_BIT, 0, 1), _op(RETURN, KILL_PROCESS)]
    for numbers in DENIED.values():
        if numbers[column] is not None:
            code += _refuse(numbers[column], EPERM)
    code += _refuse(CLONE3[column], ENOSYS)  # its flags lie in memory, where a filter cannot look
    code += _unless(CLONE[column], 0, [_op(JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1), _op(RETURN, ERRNO | EPERM)])
    terminal = [op for r in TERMINAL_REQUESTS for op in (_op(JUMP_EQUAL, r, 0, 1), _op(RETURN, ERRNO | EPERM))]
    code += _unless(IOCTL[column], 1, terminal)
    allowed = [op for f in families for op in (_op(JUMP_EQUAL, f, 0, 1), _op(RETURN, ALLOW))]
    code += _unless(SOCKET[column], 0, [*allowed, _op(RETURN, ERRNO | EACCES)])
    return b"".join([*code, _op(RETURN, ALLOW)])


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int | None, errno: int) -> list[bytes]:
    """Return an error for one call; the call's number is loaded."""
    assert number is not None
    return [_op(JUMP_EQUAL, number, 0, 1), _op(RETURN, ERRNO | errno)]


def _unless(number: int | None, argument: int, checks: list[bytes]) -> list[bytes]:
    """For one call, load the low half of an argument, make the checks, and allow what they let through."""
    assert number is not None
    body = [_op(LOAD, ARGUMENTS + 8 * argument), *checks, _op(RETURN, ALLOW)]
    return [_op(JUMP_EQUAL, number, 0, len(body)), *body]
