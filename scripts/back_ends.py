"""What check-phoenix and check-collector both need: a server to wait for, and what gputrace exports to compare with."""

import json
import socket
import subprocess
import time


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(what, seconds: float, step: float = 0.1) -> bool:
    """Whether what() came true in time."""
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(step)
    return bool(found)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def exported(gputrace: str, trace, signal: str) -> list:
    """The OTLP messages of "traces" or "metrics" that export writes of a trace, all its spans among them."""
    command = [gputrace, "export", "--format", "otlp-json", "--all", "--signal", signal, trace]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def spans_of(message: dict) -> dict:
    """{id: the span} of one message of traces."""
    scopes = [scope for resource in message.get("resourceSpans", []) for scope in resource["scopeSpans"]]
    return {span["spanId"]: span for scope in scopes for span in scope["spans"]}
