"""Graphs timed by node, as a whole, and switched from the one to the other while they run.

`graph_soak` instantiates once, before any switch, and is in the middle of a launch nearly all the time, where a switch would crash CUPTI."""

import re
import statistics

from .. import reports

NODES = 1000
REPLAYS = 400
MODES = ("node", "graph", "auto")


def replay_us(text):
    found = re.search(r"^INFO loop replays=(\d+) seconds=([\d.]+)", text, re.MULTILINE)
    return float(found[2]) / int(found[1]) * 1e6 if found and int(found[1]) else None


def by_hand(bench, mode, outcome, report):
    """Launches are exact in every mode, and each is there once: as a whole, or as all of its nodes."""
    hand, got = reports.expected(outcome.stdout) or {}, reports.counts(report)
    whole = report["whole_graphs"]["calls"]
    wrong = reports.differences(hand, got, ("launches", "graph_launches"))
    if got["graph_node_calls"] + whole * NODES != hand.get("graph_node_calls"):
        wrong.append(f"{got['graph_node_calls']} nodes and {whole} whole launches of {NODES}, {hand.get('graph_node_calls')} nodes by hand")
    if got["dropped"] or got["device_only"]:
        wrong.append(f"dropped {report.get('dropped')} device_only {got['device_only']}")
    doubled, coverage = report["doubled_graph_records"], report["device_time_coverage"]
    bench.check(f"{mode}-counts", bool(hand) and not wrong, f"{'; '.join(wrong) or 'exact'}; {whole} whole, {doubled} records in a second form, coverage {coverage:.6f}")
    return whole


def look(bench, program):
    """Nodes are looked at again after 15 s as a whole: there and back, with each launch in one form."""
    outcome, folder = bench.traced("look", [program, 10_000_000, 18], "--graph-times", "auto")
    if not bench.check("look-exit", outcome.code == 0, outcome.ending()):
        return
    report = bench.report("look", folder)
    if report:
        by_hand(bench, "look", outcome, report)
        changes = [(change["mode"], change["reason"]) for change in report["graph_times"]]
        by_graph = ("graph", "many_short_nodes")
        bench.check("look", changes == [by_graph, ("node", "looks_again"), by_graph], f"{report['graph_times']}")
        bench.check("look-untimed", report["untimed_operations"] <= 15, f"{report['untimed_operations']} launches without a record at three switches")


def run(bench):
    program = bench.programs.get("graph_soak")
    if not program:
        bench.row("graphs", "FAIL", "was not built")
        return
    replays = REPLAYS // 4 if bench.quick else REPLAYS
    bare, took, found = [], {mode: [] for mode in MODES}, {}
    for round_ in range(1 if bench.quick else 5):
        outcome = bench.bare(f"untraced-{round_}", [program, replays])
        if outcome.code != 0:
            bench.row("untraced", "SKIP", f"does not run here: {outcome.ending()} {outcome.stderr[-200:]!r}")
            return
        bare.append(replay_us(outcome.stderr))
        for mode in MODES:
            outcome, folder = bench.traced(f"{mode}-{round_}", [program, replays], "--graph-times", mode)
            if not bench.check(f"{mode}-exit-{round_}", outcome.code == 0, outcome.ending()):
                continue
            took[mode].append(replay_us(outcome.stderr))
            found[mode] = (outcome, folder)
    for mode in MODES:
        if took[mode]:
            ratio = statistics.median(took[mode]) / statistics.median(bare)
            bench.row(f"{mode}-cost", "INFO", f"{ratio:.3f} of untraced: {statistics.median(took[mode]):.0f} us a replay of {NODES} nodes, untraced {statistics.median(bare):.0f} us")
    totals = {}
    for mode, (outcome, folder) in found.items():
        report = bench.report(mode, folder)
        if not report:
            continue
        whole = by_hand(bench, mode, outcome, report)
        totals[mode] = sum(kernel.get("total_ns") or 0 for kernel in report["kernels"]) + report["whole_graphs"]["total_ns"]
        changes = [(change["mode"], change["reason"], change["at_ns"]) for change in report["graph_times"]]
        if mode == "node":
            bench.check("node-none-whole", whole == 0, f"{whole} whole launches, {changes}")
            continue
        nodes = [graph["nodes"] for graph in report["graphs"] if graph["timed_calls"]]
        # Null where the record's number for the graph is not the one that cuptiGetGraphExecId gives.
        bench.check(f"{mode}-nodes", not whole or nodes == [NODES], f"nodes of the graphs timed as a whole: {nodes}, labels {[graph['label'] for graph in report['graphs']][:3]}")
        if mode == "graph":
            bench.check("graph-all-whole", whole == report["graph_launches"], f"{whole} of {report['graph_launches']}, {changes}")
        else:
            bench.check("switch", bool(changes) and changes[0][:2] == ("graph", "many_short_nodes") and whole > 0, f"{changes}; {whole} whole launches after it, of a graph that was instantiated before")
            # Launches at the switch may have neither form (one to three, driver 580): they are counted, and have no time.
            bench.check("switch-untimed", report["untimed_operations"] <= 5, f"{report['untimed_operations']} launches without a record")
            bench.row("switch-doubled", "INFO", f"{report['doubled_graph_records']} records in a second form")
    if "node" in totals and "graph" in totals:
        # Four chains run side by side, so a whole launch is shorter than the sum of its nodes.
        bench.row("time", "INFO", f"device time by graph {totals['graph'] / 1e6:.2f} ms, sum of nodes {totals['node'] / 1e6:.2f} ms")
    if not bench.quick:
        look(bench, program)
