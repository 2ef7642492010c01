"""A server of these tests that says it is OpenEnv's and answers `reset` with the text in its second argument."""

import sys

import uvicorn
from fastapi import FastAPI, WebSocket

app = FastAPI()
ANSWER = sys.argv[2]


@app.get("/schema")
def schema() -> dict[str, object]:
    return {"action": {"properties": {"message": {"type": "string"}}, "required": ["message"]}}


@app.get("/metadata")
def metadata() -> dict[str, str]:
    return {"name": "nonsense"}


@app.websocket("/ws")
async def session(socket: WebSocket) -> None:
    await socket.accept()
    await socket.receive_text()
    if ANSWER == "hang up":
        await socket.close()
    elif ANSWER != "nothing":
        await socket.send_text(ANSWER)
    async for _ in socket.iter_text():
        pass


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
