"""A sandbox for model-written Python on one Linux machine, without a daemon.

| piece | module |
| --- | --- |
| the code inside: the exec loop, and how a process gives up its rights | `kernel`, `jail` |
| the filter of system calls | `bpf` |
| the command line of each backend | `launch` |
| pipes, time limits, the end of a sandbox | `process` |
| the processes of a sandbox, and the memory and disk that they use | `family`, `usage` |
| sessions | `session` |
| the test whether a backend confines code on this machine | `probe` |
| the Python that runs inside, and the files that it sees | `interpreter` |
"""
