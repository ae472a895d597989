"""Launches from one function, by what the thread's Python context has; prints ns a launch: hot, and after 1 MiB read.

    callers.py BURSTS none|variables|many|api|sdk     nothing, five or fifty variables, a span of opentelemetry-api's or -sdk's
"""

import contextvars
import ctypes
import sys

bursts = ctypes.PyDLL(sys.argv[1])
bursts.time_bursts.restype = ctypes.c_double
bursts.time_bursts.argtypes = [ctypes.c_long]
what = sys.argv[2]


def measure():
    bursts.begin_bursts()
    print("%.1f %.1f" % (bursts.time_bursts(0), bursts.time_bursts(1 << 20)))


if what in ("variables", "many"):
    for at in range(5 if what == "variables" else 50):
        contextvars.ContextVar("variable %d" % at).set(at)
    measure()
elif what == "none":
    measure()
else:
    from opentelemetry import propagate, trace

    if what == "sdk":
        from opentelemetry.sdk.trace import TracerProvider

        trace.set_tracer_provider(TracerProvider())
    context = propagate.extract({"traceparent": "00-%032x-%016x-01" % (7, 9)})
    with trace.get_tracer("bench").start_as_current_span("request", context=context):
        measure()
