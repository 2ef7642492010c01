"""Catalogue entries with options, in one call."""

from typing import Any

from agentrl.config import Entry, resolve
from agentrl.credit import CreditMethod
from agentrl.loss import Loss
from agentrl.trainer import RegularizerFile


def credit_method(name: str, **options: Any) -> Entry[CreditMethod]:
    return resolve(CreditMethod, {"name": name, **options})


def loss(name: str = "ppo_clip", **options: Any) -> Entry[Loss]:
    return resolve(Loss, {"name": name, **options})


def regularizer(name: str, **options: Any) -> Entry[RegularizerFile]:
    return resolve(RegularizerFile, {"name": name, **options})
