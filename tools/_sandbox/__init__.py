"""A sandbox for model-written Python on one Linux machine, without a daemon.

| piece | module |
| --- | --- |
| what runs inside: the exec loop, and how a process gives up its rights | `kernel`, `jail` |
| the filter of system calls | `bpf` |
| what each backend starts | `launch` |
| pipes, time limits, the end of a sandbox | `process` |
| which processes a sandbox has, and what they use | `family`, `usage` |
| sessions | `session` |
| which backend holds on this machine | `probe` |
| which Python runs inside, and which files it sees | `interpreter` |
"""
