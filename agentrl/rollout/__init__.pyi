from .actor import (
    Actor as Actor,
    PolicyActor as PolicyActor,
)
from .agent import (
    Agent as Agent,
    PlayerFactory as PlayerFactory,
    rows_of as rows_of,
)
from .agent_calls import (
    reply_from as reply_from,
    reply_of as reply_of,
    session_below as session_below,
)
from .baselines import (
    ExpertActor as ExpertActor,
    Random as Random,
    Scripted as Scripted,
    expert_actor as expert_actor,
    read_actions as read_actions,
)
from .batch_plan import (
    BatchPlan as BatchPlan,
    Budget as Budget,
)
from .batches import (
    Collected as Collected,
    collect as collect,
)
from .branch import (
    Opening as Opening,
    OpeningTurn as OpeningTurn,
    Point as Point,
    StateMismatch as StateMismatch,
)
from .context import (
    Ask as Ask,
    ContextPolicy as ContextPolicy,
    History as History,
    appended as appended,
    continued as continued,
    fresh as fresh,
)
from .demonstrations import (
    Demonstrating as Demonstrating,
    demonstration_of as demonstration_of,
    with_demonstrations as with_demonstrations,
)
from .episode import (
    play as play,
    play_starts as play_starts,
)
from .expansion import (
    Branch as Branch,
    Expansion as Expansion,
    RolloutMethod as RolloutMethod,
    RolloutOptions as RolloutOptions,
    adopt as adopt,
    lost as lost,
)
from .faults import (
    fault_counts as fault_counts,
    stop_on_faults as stop_on_faults,
)
from .first_prompt import first_prompt as first_prompt
from .guide import (
    Demonstrate as Demonstrate,
    DemonstrationGuide as DemonstrationGuide,
    Guide as Guide,
    GuideFile as GuideFile,
    LessonGuide as LessonGuide,
    Teaching as Teaching,
)
from .hints import (
    Hinting as Hinting,
    Taught as Taught,
    Telling as Telling,
    taught as taught,
)
from .overlong import (
    OverlongTasks as OverlongTasks,
    overlong_counts as overlong_counts,
    overlong_share as overlong_share,
    too_many as too_many,
)
from .player import (
    EpisodeProgram as EpisodeProgram,
    EpisodeTry as EpisodeTry,
    Player as Player,
    Start as Start,
    TooManyFaults as TooManyFaults,
)
from .provision import Provision as Provision
from .record_graph import (
    build_graph as build_graph,
    rows_of_graph as rows_of_graph,
)
from .records import (
    EpisodeRecord as EpisodeRecord,
    StepRecord as StepRecord,
    as_number as as_number,
    joined as joined,
    same_state as same_state,
)
from .replay_buffer import (
    Fresh as Fresh,
    Joins as Joins,
    Replay as Replay,
    ReplayFile as ReplayFile,
    ReplayOptions as ReplayOptions,
    StoredRollout as StoredRollout,
    fresh_part as fresh_part,
)
from .sampler import (
    Allocator as Allocator,
    Draw as Draw,
    Follower as Follower,
    Sampler as Sampler,
    SamplerFile as SamplerFile,
)
from .successes import (
    Success as Success,
    by_group as by_group,
    success_rate as success_rate,
)
