"""Pictures and pages of runs: the learning curve, and who gets the credit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.report.curve import check_matplotlib, learning_curve
    from agentrl.report.data import CreditData, credit_data
    from agentrl.report.page import credit_page, write_credit_page
    from agentrl.report.tokenizer import token_words

__all__ = [
    "CreditData",
    "check_matplotlib",
    "credit_data",
    "credit_page",
    "learning_curve",
    "token_words",
    "write_credit_page",
]

_HOME = {
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
