from .adapter_client import (
    GLOBAL_SEED as GLOBAL_SEED,
    HASH_SEED as HASH_SEED,
    ForeignEnv as ForeignEnv,
    ForeignProgram as ForeignProgram,
    start_python as start_python,
)
from .mcp import (
    McpTable as McpTable,
    serve_mcp as serve_mcp,
)
from .openenv import (
    OpenEnvPlace as OpenEnvPlace,
    OpenEnvTable as OpenEnvTable,
    serve_openenv as serve_openenv,
)
