"""Pages and pictures of a run: what it learned, which steps get the credit, and the card of an exported model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.report.card import Exported, model_card
    from agentrl.report.credit_schema import CreditData
    from agentrl.report.curve import curve_svg, learning_curve
    from agentrl.report.data import credit_data
    from agentrl.report.page import credit_page, inspector_page, run_page, write_credit_page
    from agentrl.report.read_run import run_data
    from agentrl.report.run_schema import RunData
    from agentrl.report.stored import EVALUATION, TRAINING, Asked, Found, Source, search, sources
    from agentrl.report.tokenizer import token_words
    from agentrl.report.write_run import write_run_page

__all__ = [
    "EVALUATION",
    "TRAINING",
    "Asked",
    "CreditData",
    "Exported",
    "Found",
    "RunData",
    "Source",
    "credit_data",
    "credit_page",
    "curve_svg",
    "inspector_page",
    "learning_curve",
    "model_card",
    "run_data",
    "run_page",
    "search",
    "sources",
    "token_words",
    "write_credit_page",
    "write_run_page",
]

_HOME = {
    "Exported": "agentrl.report.card",
    "model_card": "agentrl.report.card",
    "RunData": "agentrl.report.run_schema",
    "curve_svg": "agentrl.report.curve",
    "run_data": "agentrl.report.read_run",
    "run_page": "agentrl.report.page",
    "write_run_page": "agentrl.report.write_run",
    "EVALUATION": "agentrl.report.stored",
    "TRAINING": "agentrl.report.stored",
    "Asked": "agentrl.report.stored",
    "Found": "agentrl.report.stored",
    "Source": "agentrl.report.stored",
    "inspector_page": "agentrl.report.page",
    "search": "agentrl.report.stored",
    "sources": "agentrl.report.stored",
    "CreditData": "agentrl.report.credit_schema",
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
