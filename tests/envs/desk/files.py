"""A small data set in the layout of tau-bench's retail domain."""

import json
from pathlib import Path

ADDRESS = {"address1": "986 Sunset Drive", "address2": "Suite 259", "city": "Denver", "country": "USA", "state": "CO",
           "zip": "80279"}  # fmt: skip
USERS = {
    "noah_brown_6181": {
        "name": {"first_name": "Noah", "last_name": "Brown"},
        "address": ADDRESS,
        "email": "noah.brown7922@example.com",
        "payment_methods": {
            "paypal_5727330": {"source": "paypal", "id": "paypal_5727330"},
            "gift_card_1": {"source": "gift_card", "balance": 51, "id": "gift_card_1"},
        },
        "orders": ["#W7678072", "#W0000002"],
    }
}


def _item(item_id: str, price: float, color: str) -> dict:
    return {"name": "Water Bottle", "product_id": "8310926033", "item_id": item_id, "price": price,
            "options": {"color": color}}  # fmt: skip


def _order(order_id: str, status: str, method: str) -> dict:
    paid = {"transaction_type": "payment", "amount": 47.84, "payment_method_id": method}
    return {
        "order_id": order_id,
        "user_id": "noah_brown_6181",
        "address": ADDRESS,
        "items": [_item("6469567736", 47.84, "blue")],
        "fulfillments": [],
        "status": status,
        "payment_history": [paid],
    }


ORDERS = {
    "#W7678072": _order("#W7678072", "pending", "gift_card_1"),
    "#W0000002": _order("#W0000002", "delivered", "paypal_5727330"),
}
PRODUCTS = {
    "8310926033": {
        "name": "Water Bottle",
        "product_id": "8310926033",
        "variants": {
            "6469567736": {"item_id": "6469567736", "options": {"color": "blue"}, "available": True, "price": 47.84},
            "111": {"item_id": "111", "options": {"color": "red"}, "available": True, "price": 50.0},
            "222": {"item_id": "222", "options": {"color": "green"}, "available": False, "price": 40.0},
        },
    }
}
TASKS = """from tau_bench.types import Task, Action

TASKS_TEST = [
    Task(
        annotator="0",
        user_id="noah_brown_6181",
        instruction="You are Noah Brown in 80279. Cancel your order #W7678072: it is no longer needed. What is it?",
        actions=[
            Action(
                name="find_user_id_by_name_zip",
                kwargs={"first_name": "Noah", "last_name": "Brown", "zip": "80279"},
            ),
            Action(
                name="cancel_pending_order",
                kwargs={"order_id": "#W7678072", "reason": "no longer needed"},
            ),
        ],
        outputs=["47.84"],
    ),
    Task(
        annotator="0",
        user_id="noah_brown_6181",
        instruction="You are Noah Brown. You want to know nothing.",
        actions=[],
        outputs=[],
    ),
]
"""


def retail(folder: Path) -> Path:
    """The folder tau_bench/envs/retail, with one task file."""
    (folder / "data").mkdir(parents=True)
    for name, table in (("users", USERS), ("orders", ORDERS), ("products", PRODUCTS)):
        (folder / "data" / f"{name}.json").write_text(json.dumps(table, indent=4))
    (folder / "tasks_test.py").write_text(TASKS)
    (folder / "wiki.md").write_text("# Retail agent policy\n\nBe kind.\n")
    return folder
