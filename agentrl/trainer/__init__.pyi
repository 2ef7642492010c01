from .annotation import Annotated as Annotated, annotate as annotate
from .critic import (
    critic_maker as critic_maker,
    trunk_gradient as trunk_gradient,
)
from .kl_reward import charge_kl as charge_kl
from .learner import Learner as Learner
from .local_passes import LocalPasses as LocalPasses, logprobs as logprobs
from .memory import (
    Need as Need,
    forecast_update as forecast_update,
)
from .meter import Meter as Meter
from .passes import (
    Passes as Passes,
    PerToken as PerToken,
    PolicyLearner as PolicyLearner,
    RunLearner as RunLearner,
    StepReport as StepReport,
)
from .path_weights import spread as spread
from .policy_update import (
    clone as clone,
    observes_rows as observes_rows,
    update as update,
)
from .ranks import ALONE as ALONE, Ranks as Ranks
from .regularizer import (
    Moment as Moment,
    Regularizer as Regularizer,
    RegularizerFile as RegularizerFile,
    Regularizers as Regularizers,
)
from .schedule import rate_of as rate_of
from .sections import (
    CriticConfig as CriticConfig,
    LearnerConfig as LearnerConfig,
    OptimConfig as OptimConfig,
    UpdateConfig as UpdateConfig,
)
from .temperatures import step_temperatures as step_temperatures
from .work import Work as Work, observed_loss as observed_loss
