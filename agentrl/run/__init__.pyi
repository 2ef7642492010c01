from .checkpoint import StoredState as StoredState
from .endpoints import refusal as refusal, tried_endpoints as tried_endpoints
from .event_loop import Loop as Loop
from .folder import (
    TASK_KINDS as TASK_KINDS,
    RunFolder as RunFolder,
    check_folder as check_folder,
    versions as versions,
)
from .forecast import (
    Forecast as Forecast,
    TimeLeft as TimeLeft,
    forecast_of as forecast_of,
    plan_of as plan_of,
    spell as spell,
)
from .health import (
    findings as findings,
    read_findings as read_findings,
)
from .health_rules import RULES as RULES, RULES_IN_WORDS as RULES_IN_WORDS
from .holder import is_alive as is_alive, read_holder as read_holder
from .iteration import Learned as Learned, Played as Played, learn as learn, settle as settle
from .known_rows import (
    first_prompt_notes as first_prompt_notes,
    model_chat as model_chat,
    program_notes as program_notes,
)
from .metrics import (
    Metrics as Metrics,
    MetricsSink as MetricsSink,
    Stopwatch as Stopwatch,
    finite_number as finite_number,
    read_metrics as read_metrics,
    wall_phases as wall_phases,
    wall_seconds as wall_seconds,
)
from .policies import Policies as Policies
from .progress import (
    Bar as Bar,
    EpisodeCounts as EpisodeCounts,
    Now as Now,
    Progress as Progress,
)
from .rollouts import Rollouts as Rollouts
from .run import (
    MakePolicies as MakePolicies,
    MakeTrackers as MakeTrackers,
    Run as Run,
    open_run as open_run,
)
from .spending import Usage as Usage, dollars_spent as dollars_spent, usage_of as usage_of
from .stages import BRANCH as BRANCH, EVALUATE as EVALUATE
from .start_checks import (
    check_beginning as check_beginning,
    check_disjoint as check_disjoint,
    dry_run_notes as dry_run_notes,
    held_out_tasks as held_out_tasks,
    leak_note as leak_note,
    machine_objections as machine_objections,
    objections as objections,
)
from .training_batches import OnEpisode as OnEpisode
from .vocabulary import (
    Vocabulary as Vocabulary,
    read_vocabularies as read_vocabularies,
    vocabularies as vocabularies,
    write_vocabularies as write_vocabularies,
)
