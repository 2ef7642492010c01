from .checks import (
    check_beginning as check_beginning,
    dry_run_notes as dry_run_notes,
    leak_note as leak_note,
)
from .event_loop import Loop as Loop
from .folder import (
    TASK_KINDS as TASK_KINDS,
    RunFolder as RunFolder,
    versions as versions,
)
from .health import (
    RULES as RULES,
    RULES_IN_WORDS as RULES_IN_WORDS,
    findings as findings,
    read_findings as read_findings,
)
from .launcher import (
    launch as launch,
    needs_launch as needs_launch,
)
from .metrics import (
    Metrics as Metrics,
    Stopwatch as Stopwatch,
    read_metrics as read_metrics,
    wall_seconds as wall_seconds,
)
from .policies import Policies as Policies
from .progress import (
    Now as Now,
    Progress as Progress,
    Tally as Tally,
)
from .rollouts import Rollouts as Rollouts
from .run import (
    Run as Run,
    open_run as open_run,
)
from .stages import BRANCH as BRANCH
from .vocabulary import (
    read_vocabularies as read_vocabularies,
    vocabularies as vocabularies,
    write_vocabularies as write_vocabularies,
)
