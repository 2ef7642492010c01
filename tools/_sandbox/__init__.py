"""A sandbox for model-written Python on one Linux machine, without a daemon.

| piece | module |
| --- | --- |
| what runs inside: the exec loop, and how a process gives up its rights | `kernel`, `jail` |
| the system calls it may make | `bpf` |
| what each backend starts | `launch` |
| processes, pipes, the watch over memory | `process` |
| sessions | `session` |
| which backend holds on this machine | `probe` |
"""
