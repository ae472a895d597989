"""A server whose requests are spans: launches kernels for them and says for which span each launch was.

    python_server.py SCENARIO API held|released

SCENARIO: http         two worker threads, 200 requests of four clients over HTTP, each with a traceparent header
          asyncio      100 tasks that take turns on one thread; parts of them in threads (to_thread, run_in_executor)
          pool         a thread pool, with and without copies of the context
          nested       spans in spans, detached out of order, and a context with many variables
API:      api          opentelemetry-api alone: the current span is the caller's
          sdk          opentelemetry-sdk too: each request has a span of its own, which is the current one
          nvtx         none of it (http only): a range whose name carries the header, by the package nvtx

The Nth launch has N blocks. Standard output has a line of JSON for each: [blocks, trace id, span id], empty where no span
was current. The model of a request is which kernel it launches. `held` keeps the GIL in the driver.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import ctypes
import functools
import http.client
import http.server
import itertools
import json
import random
import socket
import sys
import threading

MODELS = 5
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n" + b"".join(
    b".visible .entry model_%d()\n{\n// sim.duration_ns = %d\nret;\n}\n" % (model, 150000 + model) for model in range(MODELS)
)
SCENARIO, API, GIL = (sys.argv + ["http", "api", "held"])[1:4]
CUDA = (ctypes.PyDLL if GIL == "held" else ctypes.CDLL)("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
DEVICE, CONTEXT, MODULE = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
for status in (
    CUDA.cuInit(0),
    CUDA.cuDeviceGet(ctypes.byref(DEVICE), 0),
    CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(CONTEXT), DEVICE),
    CUDA.cuCtxSetCurrent(CONTEXT),
    CUDA.cuModuleLoadData(ctypes.byref(MODULE), PTX),
):
    assert status == 0, status
KERNELS = []
for model in range(MODELS):
    function = ctypes.c_void_p()
    assert CUDA.cuModuleGetFunction(ctypes.byref(function), MODULE, b"model_%d" % model) == 0
    KERNELS.append(function)

CURRENT = None
NUMBERS = itertools.count(1)
SAID = []
RANDOM = random.Random(4711)
trace = None


def launch(model, worker=False):
    """Launches, and notes what OpenTelemetry itself says is current."""
    if worker:
        CUDA.cuCtxSetCurrent(CONTEXT)
    number = next(NUMBERS)
    said = ["", ""]
    if API == "nvtx":
        said = getattr(CURRENT, "said", said) if CURRENT else said
    elif trace is not None:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            said = ["%032x" % context.trace_id, "%016x" % context.span_id]
    assert CUDA.cuLaunchKernel(KERNELS[model], number, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    SAID.append([number, *said, model])


# Before anything of OpenTelemetry's is there, but for what looks like it.
launch(0)
contextvars.ContextVar("current_context").set({"current-span-like": object()})
contextvars.ContextVar("another").set(7)
launch(0)

if API == "nvtx":
    import nvtx

    CURRENT = threading.local()
else:
    from opentelemetry import context as otel_context
    from opentelemetry import baggage, propagate, trace
if API == "sdk":
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
TRACER = trace.get_tracer("server") if trace else None
launch(0)


def header(request):
    return "00-%032x-%016x-%02x" % (0xABC0000000000000000000000000 + request, 0xF00000000000 + request, request & 1)


def extracted(request):
    return propagate.extract({"traceparent": header(request)})


@contextlib.contextmanager
def request_of(headers):
    if API == "nvtx":
        with nvtx.annotate("request traceparent=" + headers["traceparent"]):
            CURRENT.said = headers["traceparent"].split("-")[1:3]
            yield
            CURRENT.said = ["", ""]
    else:
        with TRACER.start_as_current_span("request", context=propagate.extract(headers)):
            yield


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        model = int(self.path.rsplit("/", 1)[1])
        launch(model)
        with request_of(self.headers):
            for _ in range(RANDOM.randrange(1, 4)):
                launch(model)
        launch(model)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve_http():
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = listening.getsockname()[1]

    def worker():
        CUDA.cuCtxSetCurrent(CONTEXT)
        while True:
            try:
                connection, address = listening.accept()
            except OSError:
                return
            if not WORKING:
                return
            with connection:
                Handler(connection, address, None)

    def client(requests):
        for request in requests:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            headers = {"traceparent": header(request), "Connection": "close"}
            connection.request("GET", "/model/%d" % (request % MODELS), headers=headers)
            assert connection.getresponse().status == 200
            connection.close()

    WORKING.append(True)
    workers = [threading.Thread(target=worker) for _ in range(2)]
    requests = list(range(1, 201))
    RANDOM.shuffle(requests)
    clients = [threading.Thread(target=client, args=(requests[at::4],)) for at in range(4)]
    for thread in workers + clients:
        thread.start()
    for thread in clients:
        thread.join()
    WORKING.clear()
    for _ in workers:
        socket.create_connection(("127.0.0.1", port)).close()
    for thread in workers:
        thread.join()


WORKING = []


async def serve_asyncio():
    loop = asyncio.get_running_loop()
    pool = concurrent.futures.ThreadPoolExecutor(2)

    async def inner(model):
        launch(model)
        await asyncio.sleep(RANDOM.random() / 1000)
        launch(model)

    async def task(request):
        model = request % MODELS
        launch(model)
        with TRACER.start_as_current_span("request", context=extracted(request)):
            for _ in range(3):
                launch(model)
                await asyncio.sleep(RANDOM.choice((0, 0, 0.001)))
                launch(model)
            # A task of its own has a copy; what is current there is current here.
            await asyncio.create_task(inner(model))
            if hasattr(asyncio, "to_thread"):
                await asyncio.to_thread(launch, model, True)
            copied = contextvars.copy_context()
            await loop.run_in_executor(pool, functools.partial(copied.run, launch, model, True))
            # Without a copy a pool's thread works for nobody.
            await loop.run_in_executor(pool, launch, model, True)
            launch(model)
        launch(model)

    tasks = list(range(1, 101))
    RANDOM.shuffle(tasks)
    await asyncio.gather(*(task(request) for request in tasks))
    pool.shutdown()


def serve_pool():
    def work(request):
        model = request % MODELS
        token = otel_context.attach(extracted(request))
        launch(model, True)
        inner = otel_context.attach(baggage.set_baggage("user", "7"))
        launch(model)
        otel_context.detach(inner)
        launch(model)
        otel_context.detach(token)
        launch(model)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 201)))
        with TRACER.start_as_current_span("outer", context=extracted(7)):
            copies = [contextvars.copy_context() for _ in range(50)]
            list(pool.map(lambda copied: copied.run(launch, 1, True), copies))
            list(pool.map(lambda _: launch(2, True), range(50)))


def serve_nested():
    # So many that the tree has nodes of every kind but those of collisions.
    kept = [contextvars.ContextVar("variable %d" % at) for at in range(300)]

    def nested(depth):
        with TRACER.start_as_current_span("depth %d" % depth, context=extracted(depth) if depth % 7 == 0 else None):
            launch(depth % MODELS)
            if depth < 40:
                nested(depth + 1)
            launch(depth % MODELS)
            # Freed and allocated again, at the same addresses.
            for _ in range(20):
                token = otel_context.attach(extracted(depth + 1000))
                launch(depth % MODELS)
                otel_context.detach(token)

    nested(1)
    for at, variable in enumerate(kept):
        variable.set(at)
        if at in (3, 17, 40, 299):
            nested(30)
    contextvars.Context().run(nested, 35)
    launch(0)


def serve_invalid():
    for request in range(1, 41):
        # Detached at once, so that contexts follow each other at one address.
        span = trace.INVALID_SPAN if request <= 20 else trace.get_current_span(extracted(request))
        token = otel_context.attach(trace.set_span_in_context(span))
        launch(request % MODELS)
        otel_context.detach(token)


def serve_changed():
    span = trace.NonRecordingSpan(trace.get_current_span(extracted(1)).get_span_context())
    otel_context.attach(trace.set_span_in_context(span))
    launch(0)
    launch(0)
    sys.setswitchinterval(1e-6)
    changing = True

    def change():
        attributes, more = span.__dict__, {"attribute %d" % at: 1 for at in range(5500)}
        while changing:
            attributes.update(more)
            attributes.clear()

    changer = threading.Thread(target=change)
    changer.start()
    for _ in range(20000):
        CUDA.cuLaunchKernel(KERNELS[0], 1, 1, 1, 1, 1, 1, 0, None, None, None)
    changing = False
    changer.join()


if SCENARIO == "asyncio":
    asyncio.run(serve_asyncio())
else:
    {"http": serve_http, "pool": serve_pool, "nested": serve_nested, "invalid": serve_invalid, "changed": serve_changed}[SCENARIO]()
if SCENARIO == "changed":
    sys.exit(0)
launch(0)
assert CUDA.cuCtxSynchronize() == 0
for line in SAID:
    print(json.dumps(line))
