"""Chromium without a window, driven through the pipe of its DevTools protocol: nothing but the browser is needed."""

import json
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
TROUBLE = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
PATIENCE = 120
"""Seconds without a word after which the browser is given up."""


def chromium() -> str | None:
    """Where a browser is, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A running browser; the calls of https://chromedevtools.github.io/devtools-protocol/."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="browser-")
        # The protocol is spoken on the descriptors 3 and 4 of the browser.
        command = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        words = [str(chromium()), *FLAGS, f"--user-data-dir={self.folder.name}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(["bash", "-c", command, "bash", *words], bufsize=0, **pipes)
        self._left, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """The result of a call; events that come before it are kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self.process.stdin.write(json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            block = self.process.stdout.read(2**20) if ready else b""
            assert block, "the browser has ended, or says nothing"
            self._left += block
        text, _, self._left = self._left.partition(b"\0")
        return json.loads(text)

    def wait_for(self, event: str, session: str) -> None:
        """Read events until one of this name comes from the session's page."""
        while not any(each.get("method") == event and each.get("sessionId") == session for each in self.events):
            self.events.append(self._next())

    def close(self) -> None:
        self.call("Browser.close")
        with self.process:
            self.process.wait(timeout=60)
        self.folder.cleanup()


class Tab:
    """A page that is open at a width in CSS pixels, in light or dark, with scripts or without."""

    def __init__(self, browser: Browser, path: Path, width: int, *, dark: bool = False, scripts: bool = True) -> None:
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        browser.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        browser.wait_for("Page.loadEventFired", self.session)

    def call(self, method: str, **parameters: Any) -> Any:
        """A call to this page."""
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression: str) -> Any:
        """What JavaScript makes of an expression (which runs though the page's own scripts may not)."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def press_enter(self) -> None:
        """The key, as if it were pressed."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text="\r")

    def click(self, selector: str) -> None:
        """The mouse on the middle of an element."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        box = self.value(f"{element}.getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def trouble(self) -> list[dict[str, Any]]:
        """What the browser has complained of since the page was opened."""
        self.value("1")  # whatever was under way has been reported before this is answered
        return [each["params"] for each in self.browser.events if each.get("method") in TROUBLE]

    def fetched(self) -> list[str]:
        """The addresses that were asked for, without what the page itself holds."""
        asked = [each["params"] for each in self.browser.events if each.get("method") == "Network.requestWillBeSent"]
        return [url for each in asked if not (url := each["request"]["url"]).startswith("data:")]

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
