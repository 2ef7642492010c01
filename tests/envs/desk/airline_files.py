"""A small data set in the layout of tau-bench's airline domain."""

import json
from pathlib import Path

ADDRESS = {"address1": "975 Sunset Drive", "address2": "Suite 217", "city": "Austin", "country": "USA", "state": "TX",
           "zip": "78750"}  # fmt: skip
MIA = {"first_name": "Mia", "last_name": "Li", "dob": "1990-04-05"}
USERS = {
    "mia_li_3668": {
        "name": {"first_name": "Mia", "last_name": "Li"},
        "address": ADDRESS,
        "email": "mia.li3818@example.com",
        "dob": "1990-04-05",
        "payment_methods": {
            "credit_card_1": {"source": "credit_card", "brand": "visa", "last_four": "7447", "id": "credit_card_1"},
            "gift_card_1": {"source": "gift_card", "amount": 120, "id": "gift_card_1"},
            "certificate_1": {"source": "certificate", "amount": 100, "id": "certificate_1"},
        },
        "saved_passengers": [],
        "membership": "gold",
        "reservations": ["NO6JO3"],
    },
    "ivan_ito_1": {"name": {"first_name": "Ivan", "last_name": "Ito"}, "payment_methods": {}, "reservations": []},
}
RESERVATIONS = {
    "NO6JO3": {
        "reservation_id": "NO6JO3",
        "user_id": "mia_li_3668",
        "origin": "JFK",
        "destination": "SEA",
        "flight_type": "one_way",
        "cabin": "economy",
        "flights": [
            {"origin": "JFK", "destination": "SEA", "flight_number": "HAT001", "date": "2024-05-20", "price": 90}
        ],
        "passengers": [MIA],
        "payment_history": [{"payment_id": "gift_card_1", "amount": 90}],
        "created_at": "2024-05-02T03:10:19",
        "total_baggages": 1,
        "nonfree_baggages": 0,
        "insurance": "no",
    }
}


def _day(economy: int, seats: int = 9) -> dict:
    prices = {"basic_economy": economy - 40, "economy": economy, "business": economy + 200}
    return {"status": "available", "available_seats": dict.fromkeys(prices, seats), "prices": prices}


def _flight(number: str, origin: str, destination: str, departs: str, arrives: str, dates: dict) -> dict:
    return {
        "flight_number": number,
        "origin": origin,
        "destination": destination,
        "scheduled_departure_time_est": departs,
        "scheduled_arrival_time_est": arrives,
        "dates": dates,
    }


FLIGHTS = {
    flight["flight_number"]: flight
    for flight in (
        _flight("HAT001", "JFK", "SEA", "06:00:00", "12:00:00",
                {"2024-05-20": _day(100), "2024-05-21": _day(130, 1), "2024-05-22": {"status": "cancelled"}}),
        _flight("HAT002", "JFK", "ORD", "06:00:00", "08:00:00", {"2024-05-20": _day(40)}),
        _flight("HAT003", "ORD", "SEA", "09:00:00", "12:00:00", {"2024-05-20": _day(50)}),
        _flight("HAT004", "ORD", "SEA", "07:00:00", "10:00:00", {"2024-05-20": _day(10)}),
        _flight("HAT005", "JFK", "ATL", "22:00:00", "01:00:00+1", {"2024-05-20": _day(20)}),
        _flight("HAT006", "ATL", "SEA", "05:00:00", "09:00:00",
                {"2024-05-20": _day(60), "2024-05-21": _day(30)}),
    )
}  # fmt: skip
TASKS = """from tau_bench.types import Action, Task

TASKS = [
    Task(
        annotator="0",
        user_id="mia_li_3668",
        instruction="Your user id is mia_li_3668. You want to move NO6JO3 to May 21 and pay by gift card. What is due?",
        actions=[
            Action(
                name="update_reservation_flights",
                kwargs={
                    "reservation_id": "NO6JO3",
                    "cabin": "economy",
                    "flights": [{"flight_number": "HAT001", "date": "2024-05-21"}],
                    "payment_id": "gift_card_1",
                },
            )
        ],
        outputs=["40"],
    ),
    Task(
        annotator="0",
        user_id="mia_li_3668",
        instruction="Your user id is mia_li_3668. You want to cancel what cannot be cancelled.",
        actions=[],
        outputs=[],
    ),
]
"""


def airline(folder: Path) -> Path:
    """The folder tau_bench/envs/airline, with its task file."""
    (folder / "data").mkdir(parents=True)
    for name, table in (("users", USERS), ("reservations", RESERVATIONS), ("flights", FLIGHTS)):
        (folder / "data" / f"{name}.json").write_text(json.dumps(table, indent=4))
    (folder / "tasks_test.py").write_text(TASKS)
    (folder / "wiki.md").write_text("# Airline Agent Policy\n\nThe current time is 2024-05-15 15:00:00 EST.\n")
    return folder
