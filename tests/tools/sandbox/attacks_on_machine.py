"""Attacks on what the whole machine shares, with the arguments that make each call succeed where there are no walls.

The same form as in `attacks.py`. What an attack makes outside itself, it removes.
"""

import textwrap

HELPERS = """
import fcntl, select, signal, struct
def together(count, work):
    r, w = os.pipe()
    for _ in range(count):
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            os.write(w, struct.pack('=Q', work()))
            time.sleep(4)
            os._exit(0)
    time.sleep(2.0)
    os.set_blocking(r, False)
    try:
        data = os.read(r, 4096)
    except BlockingIOError:
        return 0
    return sum(struct.unpack('=%dQ' % (len(data) // 8), data))
"""

SHARED = {
    "add keys to a keyring of the kernel": """
        won(lambda: libc.syscall(248, b'user', b'agentrl-attack', b'x', ctypes.c_size_t(1), ctypes.c_long(-1)) > 0)
        won(lambda: libc.syscall(250, ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(1)) > 0)
    """,
    "ask for a key of the kernel": """
        libc.syscall(248, b'user', b'agentrl-asked', b'x', ctypes.c_size_t(1), ctypes.c_long(-1))
        won(lambda: libc.syscall(249, b'user', b'agentrl-asked', None, ctypes.c_long(-1)) > 0)
    """,
    "open a message queue": """
        def attempt():
            queue = libc.syscall(240, b'agentrl-attack', 0o102, 0o600, None)
            libc.syscall(241, b'agentrl-attack')
            return queue >= 0
        won(attempt)
    """,
    "make semaphores of System V": """
        def attempt():
            made = libc.syscall(64, 0, 1, 0o1600)
            if made >= 0:
                libc.syscall(66, made, 0, 0)
            return made >= 0
        won(attempt)
    """,
    "make a message queue of System V": """
        def attempt():
            made = libc.syscall(68, 0, 0o1600)
            if made >= 0:
                libc.syscall(71, made, 0, None)
            return made >= 0
        won(attempt)
    """,
    "watch the processor by perf": """
        attributes = struct.pack('=IIQ', 1, 112, 0) + bytes(96)  # software events, the clock
        won(lambda: libc.syscall(298, attributes, 0, -1, ctypes.c_long(-1), ctypes.c_ulong(0)) >= 0)
    """,
    "handle page faults": "won(lambda: libc.syscall(323, 0o2000000 | 1) >= 0 or libc.syscall(323, 0o2000000) >= 0)",
    "watch file systems": "won(lambda: libc.syscall(300, 0, 0) >= 0)",
    "hold many watches of epoll": """
        def work():
            held, watches = [os.open('/dev/null', os.O_RDONLY)], 0
            try:
                pipes = [end for _ in range(25) for end in os.pipe()]
                while len(held) < 60:
                    epoll = select.epoll()
                    held.append(epoll)
                    for end in pipes:
                        epoll.register(end)
                        watches += 1
            except OSError:
                pass
            globals()['kept'] = held
            return watches
        won(lambda: together(14, work) > 30000)
    """,
    "go before other processes": """
        won(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5) is None)
        won(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) is None)
    """,
    "keep memory from being moved": "won(lambda: libc.mlockall(1) == 0)",
    "kill a process of the host by a descriptor of it": """
        def attempt():
            handle = libc.syscall(434, VICTIM, 0)
            return handle >= 0 and libc.syscall(424, handle, 9, None, 0) == 0 and PARENT > 300
        won(attempt)
    """,
    "kill its own supervisor": "won(lambda: os.getppid() > 1 and os.kill(os.getppid(), 9) is None)",
    "open devices": """
        for path in ('/dev/fuse', '/dev/kvm', '/dev/net/tun', '/dev/vsock', '/dev/mem', '/dev/sda', '/dev/vda',
                     '/dev/nvme0n1', '/dev/loop-control', '/dev/nvidia0', '/dev/input/event0', '/dev/hwrng'):
            won(lambda: os.open(path, os.O_RDONLY) >= 0)
    """,
    "read the command lines of the host": """
        for pid in {VICTIM, PARENT, 1}:
            won(lambda: any(word in open(f'/proc/{pid}/cmdline', 'rb').read() for word in (b'sleep', b'pytest')))
    """,
    "see the connections of the host": """
        for table in ('/proc/net/tcp', '/proc/self/net/tcp', f'/proc/{PARENT}/net/tcp'):
            won(lambda: f':{TCP:04X} ' in open(table).read())
    """,
}  # fmt: skip

ATTACKS_ON_MACHINE = {name: f"{HELPERS}{textwrap.dedent(code)}" for name, code in SHARED.items()}
# Without walls these need something that a machine may lack: perf, userfaultfd, one of the devices.
MAY_BE_ABSENT = ("watch the processor by perf", "handle page faults", "open devices")
HARMFUL_TO_MACHINE = ("kill its own supervisor",)
