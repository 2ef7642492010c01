from .attacks import (
    ATTACKS as ATTACKS,
    Attack as Attack,
)
from .memory_forecast import forecast as forecast
from .reward_check import (
    RewardCheck as RewardCheck,
    check_reward as check_reward,
)
from .trials import preflight as preflight
