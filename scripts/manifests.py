"""Validates packaging/kubernetes and runs what it describes. scripts/check-manifests starts it."""

import copy
import http.server
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import kubernetes_validate
import yaml

MANIFESTS = pathlib.Path("packaging/kubernetes")


def documents():
    """All documents, by kind and name."""
    found = {}
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            found[document["kind"], document["metadata"]["name"]] = document
    return found


def validate(found):
    """Strictly: a field that the schema lacks is an error, too."""
    version = kubernetes_validate.latest_version()
    for document in found.values():
        kubernetes_validate.validate(document, version, strict=True)
    wrong = copy.deepcopy(found["DaemonSet", "gputrace-collector"])
    wrong["spec"]["template"]["spec"]["hostPid"] = True
    try:
        kubernetes_validate.validate(wrong, version, strict=True)
    except kubernetes_validate.ValidationError:
        print(f"{len(found)} documents are valid in Kubernetes {version}")
    else:
        raise AssertionError("the validator takes a field that does not exist")


class BackEnd(http.server.BaseHTTPRequestHandler):
    """Takes OTLP in the OpenTelemetry Collector's place."""

    paths = set()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.paths.add(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Node:
    """The folders of a node, all below a temporary one, and its processes."""

    def __init__(self, folder, program, port):
        self.folder = folder
        self.port = port
        (folder / "bin").mkdir()
        shutil.copy(program, folder / "bin/gputrace")
        for path, mode in [("gputrace", 0o777), ("run/gputrace", 0o755), ("var/lib/gputrace", 0o755)]:
            (folder / path).mkdir(parents=True)
            (folder / path).chmod(mode)

    def place(self, text):
        """A text of the manifests with this node's folders."""
        text = text.replace("http://opentelemetry.gputrace:4318", f"http://127.0.0.1:{self.port}")
        return re.sub(r"(?<![\w/.-])/(gputrace|(run|var/lib|tmp)/gputrace)", rf"{self.folder}/\1", text)

    def environment(self, container, **more):
        named = {entry["name"]: self.place(entry["value"]) for entry in container.get("env", [])}
        return {"PATH": f"{self.folder}/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder), **named, **more}

    def words(self, container):
        return [self.place(word) for word in container["command"] + container.get("args", [])]


def check_options(found, program):
    """Every option that a manifest gives to gputrace is one of its subcommand's."""
    containers = [container for document in found.values() if "template" in document.get("spec", {})
                  for container in document["spec"]["template"]["spec"]["containers"]]
    for command in [container["command"] + container["args"] for container in containers if container.get("command", [""])[0] == "gputrace"]:
        _, subcommand, *options = command
        page = subprocess.run([program, subcommand, "--help"], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if page.returncode != 0:
            print(f"SKIPPED: the options of gputrace {subcommand}, which this gputrace does not have")
            continue
        missing = [option for option in options if option.split("=")[0] not in page.stdout.split()]
        assert not missing, f"gputrace {subcommand} has no {missing}"
        print(f"gputrace {subcommand} has all {len(options)} options that the manifest gives it")


def run(found, program):
    workload = found["Job", "train"]["spec"]["template"]["spec"]
    (init,), (train,) = workload["initContainers"], workload["containers"]
    (collector,) = found["DaemonSet", "gputrace-collector"]["spec"]["template"]["spec"]["containers"]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BackEnd)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        node = Node(pathlib.Path(folder), program, server.server_port)
        subprocess.run(node.words(init), env=node.environment(init), check=True)
        running = subprocess.Popen(node.words(collector), env=node.environment(collector), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            joining = running.stdout.readline().strip()
            environment = node.environment(train)
            assert joining == f"GPUTRACE_SESSION={environment['GPUTRACE_SESSION']}", joining
            library = subprocess.run([f"{folder}/bin/gputrace", "lib"], env=node.environment(init), check=True, text=True, stdout=subprocess.PIPE)
            environment["LD_LIBRARY_PATH"] = str(pathlib.Path(library.stdout.strip()).parent / "simulated")
            command = [f"{folder}/bin/gputrace", "demo-workload"]
            if os.geteuid() == 0:
                # As in a container: process ids of its own, and the session's folder not writable.
                read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
                command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", read_only, f"{folder}/run/gputrace", *command]
            # The namespaces' own programs are not the workload.
            preloads = [f"{name}={environment.pop(name)}" for name in ["LD_PRELOAD", "GPUTRACE_SESSION", "LD_LIBRARY_PATH"]]
            command[-2:-2] = ["env", *preloads]
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        finally:
            running.send_signal(signal.SIGTERM)
            code = running.wait(60)
        assert code == 0, code
        report = subprocess.run([f"{folder}/bin/gputrace", "report", f"{folder}/var/lib/gputrace/traces"], check=True, text=True, stdout=subprocess.PIPE)
        assert "gemm_backward" in report.stdout and "Lost       nothing" in report.stdout, report.stdout
        assert BackEnd.paths == {"/v1/traces", "/v1/metrics"}, BackEnd.paths
    print("the init container, the collector and a workload run as the manifests say")


found = documents()
validate(found)
check_options(found, sys.argv[1])
run(found, sys.argv[1])
