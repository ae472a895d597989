"""A small inference server in PyTorch: torch_server.py otel|nvtx [--requests N]

Two worker threads answer HTTP requests of four clients; each request has a traceparent header and asks for one of three
models. With `otel` the server uses opentelemetry-api (and its SDK where that is installed) as any server does; with `nvtx`
it knows nothing of it and puts the header into the name of an NVTX range.

Every request works on a tensor of a size of its own, so that its kernels are known by their grids: request R launches
kernels of R times as many blocks as the first. Standard output has a line of JSON for each request: its number, the
trace and span that its kernels belong under, and how many kernels it launches; and one for what was launched outside.
"""

import http.client
import http.server
import json
import random
import socket
import sys
import threading
from contextlib import contextmanager

import torch

WAY = sys.argv[1]
REQUESTS = int(sys.argv[sys.argv.index("--requests") + 1]) if "--requests" in sys.argv else 200
BLOCK_ELEMENTS = 1 << 16
DEVICE = torch.device("cuda", 0)
# A model is how many kernels a request launches, each of which does one thing to each element.
MODELS = {"small": 2, "medium": 3, "large": 5}
if WAY == "otel":
    from opentelemetry import propagate, trace

    try:
        from opentelemetry.sdk.trace import TracerProvider

        trace.set_tracer_provider(TracerProvider())
    except ImportError:
        pass  # Then the current span is the client's.
    TRACER = trace.get_tracer("server")
SAID, LOCK = [], threading.Lock()
DONE = threading.Event()


def header(request):
    return "00-%032x-%016x-01" % (0xABC << 64 | request, 0xF0000000 + request)


@contextmanager
def span_of(headers):
    """The span that the request's kernels belong under: the server's own or the client's."""
    if WAY == "nvtx":
        with torch.cuda.nvtx.range("request traceparent=" + headers["traceparent"]):
            yield headers["traceparent"].split("-")[1:3]
    else:
        with TRACER.start_as_current_span("request", context=propagate.extract(headers)) as span:
            context = span.get_span_context()
            yield ["%032x" % context.trace_id, "%016x" % context.span_id]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        _, model, request = self.path.split("/")
        with torch.no_grad(), span_of(self.headers) as (trace_id, span_id):
            values = torch.empty(int(request) * BLOCK_ELEMENTS, device=DEVICE)  # No kernel.
            for _ in range(MODELS[model]):
                values.fill_(1.0)
            torch.cuda.current_stream().synchronize()
        with LOCK:
            SAID.append({"request": int(request), "trace": trace_id, "span": span_id, "kernels": MODELS[model]})
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def worker(listening):
    while True:
        connection, address = listening.accept()
        with connection:
            if DONE.is_set():
                return
            Handler(connection, address, None)


def client(port, requests):
    for request in requests:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        model = sorted(MODELS)[request % len(MODELS)]
        connection.request("GET", f"/{model}/{request}", headers={"traceparent": header(request), "Connection": "close"})
        assert connection.getresponse().status == 200
        connection.close()


def main():
    torch.ones(7, device=DEVICE).sum().item()  # Outside of any request.
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listening.getsockname()[1]
    requests = list(range(1, REQUESTS + 1))
    random.Random(4711).shuffle(requests)
    workers = [threading.Thread(target=worker, args=(listening,)) for _ in range(2)]
    clients = [threading.Thread(target=client, args=(port, requests[at::4])) for at in range(4)]
    for thread in workers + clients:
        thread.start()
    for thread in clients:
        thread.join()
    DONE.set()
    for _ in workers:
        socket.create_connection(("127.0.0.1", port)).close()
    for thread in workers:
        thread.join()
    torch.ones(7, device=DEVICE).sum().item()
    for line in sorted(SAID, key=lambda said: said["request"]):
        print(json.dumps(line))


main()
