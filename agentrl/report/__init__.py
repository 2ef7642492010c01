"""Pictures and pages of runs: the learning curve, and who gets the credit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.report.curve import check_matplotlib, learning_curve
    from agentrl.report.data import CreditData, credit_data
    from agentrl.report.page import credit_page, inspector_page, write_credit_page
    from agentrl.report.stored import EVALUATION, TRAINING, Asked, Found, Source, search, sources
    from agentrl.report.tokenizer import token_words

__all__ = [
    "EVALUATION",
    "TRAINING",
    "Asked",
    "CreditData",
    "Found",
    "Source",
    "check_matplotlib",
    "credit_data",
    "credit_page",
    "inspector_page",
    "learning_curve",
    "search",
    "sources",
    "token_words",
    "write_credit_page",
]

_HOME = {
    "EVALUATION": "agentrl.report.stored",
    "TRAINING": "agentrl.report.stored",
    "Asked": "agentrl.report.stored",
    "Found": "agentrl.report.stored",
    "Source": "agentrl.report.stored",
    "inspector_page": "agentrl.report.page",
    "search": "agentrl.report.stored",
    "sources": "agentrl.report.stored",
    "CreditData": "agentrl.report.data",
    "check_matplotlib": "agentrl.report.curve",
    "credit_data": "agentrl.report.data",
    "credit_page": "agentrl.report.page",
    "learning_curve": "agentrl.report.curve",
    "token_words": "agentrl.report.tokenizer",
    "write_credit_page": "agentrl.report.page",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
