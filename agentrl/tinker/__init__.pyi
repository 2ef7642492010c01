from .checks import check_settings as check_settings
from .costs import cost_lines as cost_lines
from .learner import ServedPolicy as ServedPolicy, ServiceLearner as ServiceLearner
from .policies import ServicePolicies as ServicePolicies
