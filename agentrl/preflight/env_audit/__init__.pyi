from .all_laws import (
    FURTHER as FURTHER,
    EnvAudit as EnvAudit,
    EnvFinding as EnvFinding,
    audit_env as audit_env,
)
from .audit_page import (
    as_json as as_json,
    page as page,
)
