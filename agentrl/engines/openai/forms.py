"""The form in which messages go to one server: as the options say, or as the server's refusals demand."""

from agentrl.engines.openai.endpoint import Endpoint
from agentrl.engines.openai.failure import Failure
from agentrl.engines.openai.roles import EMPTY, Roles, steps
from agentrl.engines.openai.wire import of_request
from agentrl.types import Request


class MessageForm:
    """The form of the messages of all requests to a server.

    Attributes:
        now: the present form.
        objection: the server's refusal of an earlier form; empty if there was none.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        system = "system" if endpoint.system == "auto" else endpoint.system
        self._endpoint = endpoint
        self._told = self.now = Roles(system=system, alternating=bool(endpoint.alternating))
        self.objection = ""

    def adapts(self, failure: Failure, why: str, request: Request, sent: Roles) -> bool:
        """Can the messages take another form, which the server may accept? If so, all later requests have this form.

        Args:
            failure: the refusal.
            why: the refusal in words, without secrets.
            request: the refused request.
            sent: the form of the refused request.
        """
        if failure.kind not in ("system", "order", "empty"):
            return False
        if self.now != sent:  # the refusal of another request has changed the form meanwhile
            return True
        refused = of_request(request, sent)["messages"]
        for roles in steps(failure.kind, failure.words.text, sent):
            if self._allowed(roles) and of_request(request, roles)["messages"] != refused:
                self.now, self.objection = roles, why
                return True
        return False

    def _allowed(self, roles: Roles) -> bool:
        """Do the options leave the choice of this form to the server?"""
        end = self._endpoint
        return (
            (end.system == "auto" or roles.system == end.system)
            and (end.alternating is None or roles.alternating == end.alternating)
            and (end.tool_calls != "native" or not roles.plain_calls)
        )

    def notes(self, name: str) -> list[str]:
        """Sentences for the report, if the form is not that of the options. `name` names the server."""
        now, told = self.now, self._told
        changes = {
            "the system message was joined to the first user message (endpoint.system=user)": (
                now.system == "user" != told.system
            ),
            "the system message was sent with the role developer (endpoint.system=developer)": (
                now.system == "developer" != told.system
            ),
            "messages of one role in a row were joined (endpoint.alternating=true)": (
                now.alternating and not told.alternating
            ),
            "tool calls and their results were written as text (endpoint.tool_calls=text does so from the start)": (
                now.plain_calls
            ),
            f"messages without a text, such as empty answers, were sent as {EMPTY!r}": now.filled,
        }
        made = "; ".join(text for text, applies in changes.items() if applies)
        return [f"{name} refuses the messages as they are ({self.objection}), so {made}"] if made else []
