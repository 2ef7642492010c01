from .checks import check_settings as check_settings
from .learner import ServedPolicy as ServedPolicy, ServiceLearner as ServiceLearner
from .policies import ServicePolicies as ServicePolicies
