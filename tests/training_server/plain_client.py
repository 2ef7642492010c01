"""A client without the SDK: HTTP and JSON, as SDK 0.16 sends them."""

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    """Status and content of an answer."""

    status: int
    body: Any


class PlainClient:
    """One session of a server.

    Args:
        url: address of the server.
        token: the API key.
    """

    def __init__(self, url: str, token: str = "tml-dummy") -> None:
        self._address, self._token = urlsplit(url).netloc, token
        self.session = ""

    def send(self, method: str, route: str, body: Any = None, **headers: str) -> Reply:
        """The answer to a request."""
        connection = http.client.HTTPConnection(self._address, timeout=60)
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", "x-api-key": self._token}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, f"/api/v1/{route}", data, given)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        plain = answer.headers.get("content-type", "").startswith("application/json") and content
        return Reply(answer.status, json.loads(content) if plain else content)

    def post(self, route: str, body: Any) -> Any:
        """The content of an answer that must be 200."""
        reply = self.send("POST", route, body)
        assert reply.status == 200, reply
        return reply.body

    def result(self, promise: Any) -> Any:
        """The result of a promise."""
        return self.post("retrieve_future", {"request_id": promise["request_id"], "allow_metadata_only": True})

    def do(self, route: str, body: Any) -> Any:
        """The result of a request that is answered with a promise."""
        return self.result(self.post(route, body))

    def begin(self) -> str:
        """Begin a session; returns its id."""
        body = {"tags": [], "user_metadata": {}, "sdk_version": "0.16.1", "project_id": None}
        self.session = self.post("create_session", body)["session_id"]
        return self.session

    def model(self, base: str, number: int = 0, rank: int = 4, seed: int = 5, **parts: bool) -> str:
        """Make a model; returns its id."""
        lora = {"rank": rank, "seed": seed, "train_unembed": False, "train_mlp": True, "train_attn": True, **parts}
        body = {
            "session_id": self.session or self.begin(),
            "model_seq_id": number,
            "base_model": base,
            "user_metadata": None,
            "lora_config": lora,
        }
        made = self.do("create_model", body)
        assert "model_id" in made, made
        return made["model_id"]
