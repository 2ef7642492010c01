"""Flights and reservations: tau-bench's airline tables and tools. Its tasks are those of the published files alone.

Source: Yao et al., "tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains", arXiv:2406.12045;
github.com/sierra-research/tau-bench (MIT). Tables: flights, reservations, users. The tools check and change the same
values as the original's tools, and keep its oddities; for example, a change of cabin does not change the reservation's
`cabin`.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict
from typing_extensions import TypedDict

from agentrl.config import resolve
from agentrl.envs.desk.counter import Config, Counter, case_of_instruction
from agentrl.envs.desk.people import Case
from agentrl.envs.desk.taubench import tables
from agentrl.tool import ToolError
from agentrl.tool_env import environment

POLICY = ""  # the rules are those of tau-bench, in its file wiki.md
NOW = "2024-05-15T15:00:00"
BOOKED = ("HATHAT", "HATHAU", "HATHAV")  # ids of new reservations
CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago", "DFW": "Dallas", "DEN": "Denver",
    "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami", "BOS": "Boston", "PHX": "Phoenix", "IAH": "Houston",
    "LAS": "Las Vegas", "MCO": "Orlando", "EWR": "Newark", "CLT": "Charlotte", "MSP": "Minneapolis", "DTW": "Detroit",
    "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip
USER_ID = re.compile(r"[a-z]+_[a-z]+_\d+")
Cabin = Literal["basic_economy", "economy", "business"]


class Flight(TypedDict):
    """One flight of a reservation."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    flight_number: str
    date: str


class Passenger(TypedDict):
    """One passenger."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    first_name: str
    last_name: str
    dob: str


class Payment(TypedDict):
    """A part of a price, and what pays it."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    payment_id: str
    amount: int | float


class Airline(Counter):
    """A conversation about flights."""

    FIXED = ("flights",)
    WRITES: ClassVar[tuple[str, ...]] = (
        "book_reservation",
        "cancel_reservation",
        "send_certificate",
        "update_reservation_baggages",
        "update_reservation_flights",
        "update_reservation_passengers",
    )

    def reset(
        self, folder: str, instruction: str, actions: Sequence[Mapping[str, Any]], outputs: Sequence[str] = ()
    ) -> str:
        """Open the conversation of one of tau-bench's tasks."""
        return self._begin(case_of_instruction(tables(folder, "airline"), instruction, actions, outputs))

    def _begin(self, case: Case) -> str:
        first = super()._begin(case)
        self._meet(first)
        return first

    def _hear(self, text: str, agrees: bool) -> None:
        super()._hear(text, agrees)
        self._meet(text)

    def _meet(self, text: str) -> None:
        """Identify the customer by a user id in the text. The customer says it, because no tool finds it."""
        known = (name for name in USER_ID.findall(text) if name in self._data["users"])
        self._identified = self._identified or next(known, "")

    def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: Literal["one_way", "round_trip"],
        cabin: Cabin,
        flights: list[Flight],
        passengers: list[Passenger],
        payment_methods: list[Payment],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Literal["yes", "no"],
    ) -> str:
        """Book a reservation.

        Args:
            user_id: such as sara_doe_496
            origin: the IATA code of the city, such as SFO
            destination: the IATA code of the city, such as JFK
            flight_type: of the whole trip
            cabin: of all flights
            flights: each with its number, such as HAT001, and its date, such as 2024-05-01
            passengers: each with names and date of birth, such as 1990-01-01
            payment_methods: each with the id of the user's profile, such as credit_card_7815826, and its amount
            total_baggages: number of bags in the reservation
            nonfree_baggages: number of bags that are paid for
            insurance: of all passengers
        """
        user = self._user(user_id)
        booked, price = self._priced(flights, cabin, len(passengers))
        total = price + 30 * len(passengers) * (insurance == "yes") + 50 * nonfree_baggages
        self._pay(user_id, payment_methods, total)
        reservations = self._data["reservations"]
        name = next((one for one in BOOKED[:-1] if one not in reservations), BOOKED[-1])
        reservations[name] = {
            "reservation_id": name,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": booked,
            "passengers": copy.deepcopy(passengers),
            "payment_history": copy.deepcopy(payment_methods),
            "created_at": NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
        }
        user["reservations"].append(name)
        return json.dumps(reservations[name])

    def calculate(self, expression: str) -> str:
        """Calculate the result of a mathematical expression.

        Args:
            expression: such as 2 + 2; numbers, + - * / and brackets
        """
        entry = resolve("tools", {"name": "calculator"}, "env.domain")
        return str(round(float(entry.hooks.make(entry.config)(expression)), 2))

    def cancel_reservation(self, reservation_id: str) -> str:
        """Cancel the whole reservation.

        Args:
            reservation_id: such as ZFA04Y
        """
        reservation = self._reservation(reservation_id)
        self._changes(reservation["user_id"])
        paid = reservation["payment_history"]
        paid.extend([{"payment_id": one["payment_id"], "amount": -one["amount"]} for one in paid])
        reservation["status"] = "cancelled"
        return json.dumps(reservation)

    def get_reservation_details(self, reservation_id: str) -> str:
        """Get the details of a reservation.

        Args:
            reservation_id: such as 8JX2WO
        """
        return json.dumps(self._reservation(reservation_id, "user not found"))  # the original's words

    def get_user_details(self, user_id: str) -> str:
        """Get the details of a user, including their reservations.

        Args:
            user_id: such as sara_doe_496
        """
        return json.dumps(self._user(user_id))

    def list_all_airports(self) -> str:
        """List all airports and their cities."""
        return json.dumps(AIRPORTS)

    def search_direct_flight(self, origin: str, destination: str, date: str) -> str:
        """Search direct flights between two cities on a specific date.

        Args:
            origin: the airport of the city in three letters, such as JFK
            destination: the airport of the city in three letters, such as LAX
            date: such as 2024-01-01
        """
        found = [
            {**_plain(flight), **flight["dates"][date]}
            for flight in self._data["flights"].values()
            if (flight["origin"], flight["destination"]) == (origin, destination) and _open(flight, date)
        ]
        return json.dumps(found)

    def search_onestop_flight(self, origin: str, destination: str, date: str) -> str:
        """Search flights with one stop between two cities on a specific date.

        Args:
            origin: the airport of the city in three letters, such as JFK
            destination: the airport of the city in three letters, such as LAX
            date: such as 2024-05-01
        """
        flights = self._data["flights"].values()
        found = []
        for first in (one for one in flights if one["origin"] == origin):
            for second in (one for one in flights if one["destination"] == destination):
                arrives = first["scheduled_arrival_time_est"]
                if first["destination"] != second["origin"]:
                    continue
                next_day = _next_day(date) if "+1" in arrives else date
                if arrives > second["scheduled_departure_time_est"]:
                    continue
                if not (_open(first, date) and _open(second, next_day)):
                    continue
                # The seats of the second flight are those of the first day, as in the original.
                if date not in second["dates"]:
                    raise ToolError(f"'{date}'")
                both = ((first, date), (second, next_day))
                found.append([{**_plain(one), **one["dates"][date], "date": day} for one, day in both])
        return json.dumps(found)

    def send_certificate(self, user_id: str, amount: int | float) -> str:
        """Send a certificate to a user. Be careful!

        Args:
            user_id: such as sara_doe_496
            amount: of the certificate
        """
        methods = self._user(user_id)["payment_methods"]
        name = next((one for one in CERTIFICATES if one not in methods), "")
        if not name:
            return ""
        self._changes(user_id)
        methods[name] = {"source": "certificate", "amount": amount, "id": name}
        return f"Certificate {name} added to user {user_id} with amount {amount}."

    def think(self, thought: str) -> str:
        """Think about something. It obtains no new information and changes nothing.

        Args:
            thought: what you think
        """
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        """Transfer the user to a human agent, which ends the conversation. Only if the user explicitly asks for one, or
        if the user's issue cannot be resolved with the available tools.

        Args:
            summary: of the user's issue
        """
        return self._end()

    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> str:
        """Update the baggage information of a reservation.

        Args:
            reservation_id: such as ZFA04Y
            total_baggages: new number of bags in the reservation
            nonfree_baggages: new number of bags that are paid for
            payment_id: of the user's profile, such as credit_card_7815826, gift_card_7815826
        """
        reservation = self._reservation(reservation_id)
        price = 50 * max(0, nonfree_baggages - reservation["nonfree_baggages"])
        self._charge(reservation, payment_id, price)
        reservation["total_baggages"], reservation["nonfree_baggages"] = total_baggages, nonfree_baggages
        return json.dumps(reservation)

    def update_reservation_flights(
        self, reservation_id: str, cabin: Cabin, flights: list[Flight], payment_id: str
    ) -> str:
        """Update the flight information of a reservation.

        Args:
            reservation_id: such as ZFA04Y
            cabin: of all flights
            flights: all flights of the new reservation, also those that stay; each with its number and date
            payment_id: of the user's profile, such as credit_card_7815826, gift_card_7815826
        """
        reservation = self._reservation(reservation_id)
        people = len(reservation["passengers"])
        kept = reservation["flights"] if cabin == reservation["cabin"] else ()
        changed, price = self._priced(flights, cabin, people, kept)
        price -= sum(flight["price"] for flight in reservation["flights"]) * people
        self._charge(reservation, payment_id, price)
        reservation["flights"] = changed
        return json.dumps(reservation)

    def update_reservation_passengers(self, reservation_id: str, passengers: list[Passenger]) -> str:
        """Update the passenger information of a reservation.

        Args:
            reservation_id: such as ZFA04Y
            passengers: each with names and date of birth, such as 1990-01-01
        """
        reservation = self._reservation(reservation_id)
        if len(passengers) != len(reservation["passengers"]):
            raise ToolError("number of passengers does not match")
        self._changes(reservation["user_id"])
        reservation["passengers"] = copy.deepcopy(passengers)
        return json.dumps(reservation)

    def _user(self, user_id: str) -> dict[str, Any]:
        if user_id not in self._data["users"]:
            raise ToolError("user not found")
        user: dict[str, Any] = self._data["users"][user_id]
        return user

    def _reservation(self, reservation_id: str, otherwise: str = "reservation not found") -> dict[str, Any]:
        if reservation_id not in self._data["reservations"]:
            raise ToolError(otherwise)
        reservation: dict[str, Any] = self._data["reservations"][reservation_id]
        return reservation

    def _priced(
        self, flights: Sequence[Flight], cabin: str, people: int, kept: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[list[dict[str, Any]], Any]:
        """Flights with their prices and cities, and what they cost together; kept flights keep their price."""
        priced, total = [], 0
        for flight in flights:
            number, date = flight["flight_number"], flight["date"]
            same = next((one for one in kept if (one["flight_number"], one["date"]) == (number, date)), None)
            facts = same or self._seats(number, date, cabin, people)
            added = {name: facts[name] for name in ("price", "origin", "destination")}
            priced.append({**copy.deepcopy(flight), **added})
            total += facts["price"] * people
        return priced, total

    def _seats(self, number: str, date: str, cabin: str, people: int) -> dict[str, Any]:
        """Price and cities of a flight. Raises ToolError unless it has seats left for this many people."""
        flight = self._data["flights"].get(number)
        if flight is None:
            raise ToolError(f"flight {number} not found")
        if date not in flight["dates"]:
            raise ToolError(f"flight {number} not found on date {date}")
        if not _open(flight, date):
            raise ToolError(f"flight {number} not available on date {date}")
        day = flight["dates"][date]
        if day["available_seats"][cabin] < people:
            raise ToolError(f"not enough seats on flight {number}")
        return {**_plain(flight), "price": day["prices"][cabin]}

    def _pay(self, user_id: str, payments: Sequence[Payment], total: int | float) -> None:
        """Pay for a new reservation; a certificate is used up. Raises ToolError if the payments do not fit."""
        own = self._user(user_id)["payment_methods"]
        for payment in payments:
            method = own.get(payment["payment_id"])
            if method is None:
                raise ToolError(f"payment method {payment['payment_id']} not found")
            if method["source"] in ("gift_card", "certificate") and method["amount"] < payment["amount"]:
                raise ToolError(f"not enough balance in payment method {payment['payment_id']}")
        paid = sum(payment["amount"] for payment in payments)
        if paid != total:
            raise ToolError(f"payment amount does not add up, total price is {total}, but paid {paid}")
        self._changes(user_id)
        for payment in payments:
            method = own.get(payment["payment_id"])
            if method is not None and method["source"] == "gift_card":
                method["amount"] -= payment["amount"]
            elif method is not None and method["source"] == "certificate":
                del own[payment["payment_id"]]

    def _charge(self, reservation: Mapping[str, Any], payment_id: str, price: int | float) -> None:
        """Charge the price of a change, or pay it back if it is negative; the caller then makes the change."""
        methods = self._data["users"][reservation["user_id"]]["payment_methods"]
        if payment_id not in methods:
            raise ToolError("payment method not found")
        method = methods[payment_id]
        if method["source"] == "certificate":
            raise ToolError("certificate cannot be used to update reservation")
        if method["source"] == "gift_card" and method["amount"] < price:
            raise ToolError("gift card balance is not enough")
        self._changes(reservation["user_id"])
        if method["source"] == "gift_card":
            method["amount"] -= price
        if price != 0:
            reservation["payment_history"].append({"payment_id": payment_id, "amount": price})

    def _names(self) -> Sequence[str]:
        return ()

    def _calls(self) -> Iterator[str]:
        return iter(())


def _plain(flight: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flight.items() if name != "dates"}


def _open(flight: Mapping[str, Any], date: str) -> bool:
    return date in flight["dates"] and flight["dates"][date]["status"] == "available"


def _next_day(date: str) -> str:
    try:
        return f"2024-05-{int(date[-2:]) + 1}"
    except ValueError:
        raise ToolError(f"{date!r:.50} is no date: write 2024-05-01") from None


hooks = environment(
    Airline, rows=[], config=Config, system=POLICY, snapshots=True, waits=False, module=__name__, name="desk"
)
make = hooks.make  # bound in this module, where unpickling looks for the class
