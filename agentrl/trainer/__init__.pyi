from .annotation import (
    Annotated as Annotated,
    annotate as annotate,
    logprobs as logprobs,
)
from .critic import (
    critic_maker as critic_maker,
    trunk_gradient as trunk_gradient,
)
from .kl_reward import charge_kl as charge_kl
from .learner import Learner as Learner
from .memory import (
    Need as Need,
    forecast_update as forecast_update,
)
from .policy_update import (
    clone as clone,
    observes_rows as observes_rows,
    update as update,
)
from .ranks import Ranks as Ranks
from .regularizer import (
    Moment as Moment,
    Regularizer as Regularizer,
    RegularizerFile as RegularizerFile,
    Regularizers as Regularizers,
)
from .sections import (
    CriticConfig as CriticConfig,
    LearnerConfig as LearnerConfig,
    OptimConfig as OptimConfig,
    UpdateConfig as UpdateConfig,
)
from .temperatures import step_temperatures as step_temperatures
