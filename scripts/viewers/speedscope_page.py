"""Opens a speedscope export in headless Chromium and prints what the page shows as JSON. Run by scripts/check-viewers.

usage: speedscope_page.py PAGE FILE.speedscope.json [PICTURE.png]

PAGE is the index.html of the npm package. Printed are the profiles' names, the first one's sandwich table (self times in
nanoseconds by symbol, the rows in view), and the dialogs that the page opened. PICTURE gets the first profile's time order.
"""
import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import websocket

UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


class Page:
    def __init__(self, folder):
        self.calls, self.dialogs = 0, []
        end = time.monotonic() + 30
        while True:
            try:
                port = (folder / "DevToolsActivePort").read_text().split()[0]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=5) as answer:
                    page = next(page for page in json.load(answer) if page["type"] == "page")
                break
            except (OSError, IndexError, StopIteration):
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=60)
        self.call("Page.enable")

    def call(self, method, **parameters):
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("method") == "Page.javascriptDialogOpening":
                self.dialogs.append(message["params"]["message"])
                self.calls += 1
                self.socket.send(json.dumps({"id": -1, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}}))
            if message.get("id") == self.calls or message.get("id") == self.calls - 1 and "result" in message:
                return message.get("result", {})

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True).get("result", {}).get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            code = f"Digit{key}" if key.isdigit() else f"Key{key.upper()}"
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, text=key if kind == "keyDown" else "")
        time.sleep(0.5)

    def lines(self):
        return (self.value("document.body.innerText") or "").splitlines()

    def profile(self):
        """The name of the profile in view, its number and how many there are; None while nothing is open."""
        found = (re.fullmatch(r"(.*) \((\d+)/(\d+)\)", line) for line in self.lines())
        return next(((one[1], int(one[2]), int(one[3])) for one in found if one), None)


def sandwich(lines):
    """Self times by symbol: each row is its total, its self time and its name."""
    times = {}
    cells = [line.strip() for line in lines if line.strip()]
    for total, own, name in zip(cells, cells[1:], cells[2:]):
        both = [re.fullmatch(r"([\d.]+)(ns|µs|ms|s) \([\d.<]+%\)", cell) for cell in (total, own)]
        if all(both):
            times[name] = float(both[1][1]) * UNITS[both[1][2]]
    return times


def main():
    index, export = (Path(name).resolve() for name in sys.argv[1:3])
    folder = Path(tempfile.mkdtemp())
    (folder / "profile.js").write_text(
        f"speedscope.loadFileFromBase64('{export.name}', '{base64.b64encode(export.read_bytes()).decode()}')")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    browser = subprocess.Popen(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--remote-allow-origins=*",
         "--allow-file-access-from-files", f"--user-data-dir={folder}/user", "--window-size=1500,500", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page = Page(folder / "user")
        page.call("Page.navigate", url=f"file://{index}#localProfilePath={folder}/profile.js")
        end = time.monotonic() + 60
        while not page.profile() and time.monotonic() < end:
            time.sleep(0.2)
        if not page.profile():
            sys.exit(f"speedscope did not open {export}: {page.lines()}")
        time.sleep(1)
        if sys.argv[3:]:
            Path(sys.argv[3]).write_bytes(base64.b64decode(page.call("Page.captureScreenshot")["data"]))
        page.press("3")
        shown = {"sandwich": sandwich(page.lines()), "profiles": [page.profile()[0]]}
        page.press("1")
        while page.profile()[1] < page.profile()[2]:
            page.press("n")
            shown["profiles"].append(page.profile()[0])
        print(json.dumps(shown | {"dialogs": page.dialogs}))
    finally:
        browser.terminate()
        browser.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
