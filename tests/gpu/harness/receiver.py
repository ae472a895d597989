"""A receiver of OTLP over HTTP that keeps what it was told of spans, behind the OpenTelemetry Collector (`.carry/otelcol`, which
scripts/collector-from-source builds: one static file) or rotel's agent (which needs its own Python), where one was carried along.

Reads protobuf by its wire format, for the few fields that are compared: nothing is installed on a machine with a GPU.
"""

import gzip
import http.server
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from pathlib import Path

from .build import GPU_TESTS

CARRIED = GPU_TESTS.parent.parent / ".carry"
COLLECTOR = """
receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: "127.0.0.1:{grpc}" }}, http: {{ endpoint: "127.0.0.1:{http}" }} }} }} }}
processors: {{ batch: {{ timeout: 100ms }} }}
exporters: {{ otlp_http: {{ endpoint: "{onward}", compression: none }} }}
service:
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines:
    traces: {{ receivers: [otlp], processors: [batch], exporters: [otlp_http] }}
    metrics: {{ receivers: [otlp], processors: [batch], exporters: [otlp_http] }}
"""


def fields(data):
    """(number, value) of a message: an int, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            yield number, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield number, data[at : at + size]
            at += size


def inner(data, *path):
    """The messages at a path of field numbers."""
    if not path:
        yield data
        return
    for number, value in fields(data):
        if number == path[0]:
            yield from inner(value, *path[1:])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Receiver:
    """`url` takes OTLP over gRPC and HTTP where there is one of the two, else over HTTP only; `spans` is {id: (trace, parent, name)}."""

    def __init__(self, scratch):
        self.spans, self.metric_requests, self.twice, self.lock = {}, 0, 0, threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if body.startswith(b"\x1f\x8b"):  # rotel compresses whatever it is told to do.
                    body = gzip.decompress(body)
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.name, self.why_no_agent = "", "none was carried along"
        self.agent = self.start_agent(scratch)

    def start_agent(self, scratch):
        port, other = free_port(), free_port()
        command = self.collector(scratch, port, other) or self.rotel(scratch, port, other)
        if not command:
            return None
        with open(f"{scratch}/agent.log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", other), 1).close()
                self.url = f"http://127.0.0.1:{other}"
                return process
            except OSError:
                if process.poll() is not None:
                    break
                time.sleep(0.1)
        process.kill()
        with open(f"{scratch}/agent.log", errors="replace") as log:
            self.why_no_agent = f"exit {process.wait()}: {log.read()[-300:]!r}"
        return None

    def collector(self, scratch, grpc, http):
        carried = CARRIED / "otelcol"
        if not carried.exists():
            return None
        program, configuration = Path(scratch) / "otelcol", Path(scratch) / "otelcol.yaml"
        shutil.copyfile(carried, program)
        program.chmod(0o755)
        configuration.write_text(COLLECTOR.format(grpc=grpc, http=http, onward=self.url))
        self.name = "the Collector"
        return [program, "--config", configuration]

    def rotel(self, scratch, grpc, http):
        wheels = sorted(CARRIED.glob("rotel-*.whl"))
        if not wheels:
            return None
        with zipfile.ZipFile(wheels[0]) as wheel:
            agent = Path(wheel.extract("rotel/rotel-agent", scratch))
        agent.chmod(0o755)
        self.name = "rotel"
        return [agent, "start", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--otlp-http-endpoint", f"127.0.0.1:{http}", "--exporter", "otlp", "--otlp-exporter-protocol", "http",
                "--otlp-exporter-compression", "none", "--otlp-exporter-endpoint", self.url, "--batch-timeout", "50ms", "--pid-file", f"{scratch}/rotel.pid"]

    def take(self, path, body):
        with self.lock:
            if not path.endswith("/v1/traces"):
                self.metric_requests += 1
                return
            for span in inner(body, 1, 2, 2):
                said = dict(fields(span))
                key = said[2].hex()
                self.twice += key in self.spans
                self.spans[key] = said[1].hex(), said.get(4, b"").hex(), said[5].decode()

    def waits_for(self, count, seconds=20):
        end = time.monotonic() + seconds
        while len(self.spans) < count and time.monotonic() < end:
            time.sleep(0.05)

    def close(self):
        if self.agent:
            self.agent.kill()
            self.agent.wait()
        self.server.shutdown()
