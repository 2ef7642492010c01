from .checks import check_here as check_here, check_settings as check_settings
from .costs import cost_lines as cost_lines
from .service_learner import ServedPolicy as ServedPolicy, ServiceLearner as ServiceLearner
from .service_policies import ServicePolicies as ServicePolicies
