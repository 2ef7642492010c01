from .audit import (
    Audit as Audit,
    check_rows as check_rows,
)
from .finding import RowFinding as RowFinding
from .row_tasks import (
    Context as Context,
    Lengths as Lengths,
)
from .split import (
    Split as Split,
    read_splits as read_splits,
)
