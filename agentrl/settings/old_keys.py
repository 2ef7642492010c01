"""Replaces keys of older versions in recipes and stored configurations, so that these can still be read.

`TABLE` says how each old key is replaced. It is applied to every recipe and stored configuration that is read.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agentrl.config import merge


def _as_regularizer(name: str, off: Mapping[str, Any]) -> Callable[[dict[str, Any], Any], str]:
    """The function that makes an entry of update.regularizers from the old key `update.OLD`.

    The value of the old key is a table with `coef`, or this number alone; 0 means off. `off` has the default options.
    """

    def change(update: dict[str, Any], table: Any) -> str:
        options = {**off, **table} if isinstance(table, Mapping) else {"coef": table}
        if not options.get("coef"):
            return ""
        update["regularizers"] = [*update.get("regularizers", ()), {"name": name, **options}]
        return f"update.regularizers = [{{ name = '{name}', coef = {options['coef']} }}]"

    return change


def _graft_lam(credit: dict[str, Any], lam: Any) -> str:
    """`credit.lam` of graft had no effect and is removed. The option `lam` of other methods stays."""
    if credit.get("name") == "graft":
        return "nothing, because graft has no lam and the key had no effect"
    credit["lam"] = lam
    return ""


def _importance(update: dict[str, Any], cap: Any) -> str:
    """`update.importance_cap` (0 for off) becomes `importance` with `importance_high`.

    A cap of 2 is only removed, because 2 is the default of `importance_high` for `importance = "truncate"`.
    """
    if cap == 0:
        update["importance"] = "none"
        return 'update.importance = "none"'
    if cap == 2:
        return ""
    update.setdefault("importance", "truncate")
    update["importance_high"] = cap
    return f"update.importance_high = {cap}"


# old key -> function that changes the key's table, and returns how to write the key now (empty: no note is needed)
TABLE: Mapping[str, Callable[[dict[str, Any], Any], str]] = {
    "update.epo": _as_regularizer("entropy_band", {"coef": 0.0}),
    "credit.lam": _graft_lam,
    "update.importance_cap": _importance,
    "update.llds": _as_regularizer("likelihood_guard", {"coef": 0.0}),
}


def upgrade(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with every old key replaced, and one note for each old key that must be rewritten or removed."""
    result, notes = merge(tables, {}), []
    for path, change in TABLE.items():
        *sections, key = path.split(".")
        table: Any = result
        for section in sections:
            table = table.get(section) if isinstance(table, dict) else None
        now = change(table, table.pop(key)) if isinstance(table, dict) and key in table else ""
        if now:
            notes.append(f"{path} is a key of an older version: write {now}")
    return result, notes
