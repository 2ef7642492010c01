from .audit import (
    FURTHER as FURTHER,
    EnvAudit as EnvAudit,
    Finding as Finding,
    audit_env as audit_env,
)
from .page import (
    as_json as as_json,
    page as page,
)
