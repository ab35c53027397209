"""A headless Chromium, driven by its DevTools protocol over two pipes."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 30  # A loaded machine is given time.
KEYS = {
    "ArrowUp": 38,
    "ArrowDown": 40,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Tab": 9,
    "r": 82,
}
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)


def find_chromium() -> str | None:
    """The path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page; what went wrong in it is in `problems`."""

    def __init__(self, profile):
        # Chromium reads commands from descriptor 3 and answers on 4.
        from_us, self.commands = os.pipe()
        self.answers, to_us = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (from_us, to_us)]
        script = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        program = find_chromium()
        assert program
        self.process = subprocess.Popen(
            [
                *("bash", "-c", script, "bash", program, *OPTIONS),
                *(f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (from_us, to_us, *ends):
            os.close(end)
        self.number, self.received, self.session = 0, b"", None
        self.problems, self.events = [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send(
            "Target.attachToTarget", targetId=target, flatten=True
        )["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.send(f"{part}.enable")
        # Nothing moves between finding a place and clicking on it.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.send("Emulation.setEmulatedMedia", features=[still])

    def close(self):
        self.process.terminate()
        self.process.wait(SECONDS)
        for end in (self.commands, self.answers):
            os.close(end)

    def send(self, method, **parameters):
        """Calls a method of the protocol and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self.number:
            self._note(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _message(self):
        end = time.monotonic() + SECONDS
        while b"\0" not in self.received:
            left = max(0, end - time.monotonic())
            readable, _, _ = select.select([self.answers], [], [], left)
            part = os.read(self.answers, 2**16) if readable else b""
            assert part, "the browser is silent"
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        method, parameters = event["method"], event.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"])
        if method == "Log.entryAdded":
            self.problems.append(parameters["entry"])
        if method == "Runtime.consoleAPICalled":
            self.problems.append(parameters["args"])

    def open(self, address, width=1200, height=900, *, phone=False):
        """Opens a page and waits until it is loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.events.clear()
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression in the page."""
        result = self.send(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in result, (script, result)
        return result["result"].get("value")

    def wait(self, condition):
        """Waits until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self.run(condition):
            assert time.monotonic() < end, f"not true: {condition}"
            time.sleep(0.05)

    def click(self, selector, right=0.5, down=0.5):
        """Clicks on an element, at a share of its width and its height."""
        x, y = self.run(
            f"""(async () => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center", behavior: "instant"}});
            let box = element.getBoundingClientRect();
            // A page that still scrolls moves it away from under the mouse.
            for (let still = 0; still < 3;) {{
                await new Promise(requestAnimationFrame);
                const now = element.getBoundingClientRect();
                still = now.x === box.x && now.y === box.y ? still + 1 : 0;
                box = now;
            }}
            return [box.x + {right} * box.width, box.y + {down} * box.height];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                **{"type": kind, "x": x, "y": y},
                button="left",
                clickCount=1,
            )

    def drop(self, selector, name, content, kind="image/png"):
        """Drops a file on an element, as a user does with the mouse."""
        text, told = base64.b64encode(content).decode(), json.dumps(name)
        self.run(
            f"""(() => {{
            const bytes = Uint8Array.from(atob("{text}"),
                (x) => x.charCodeAt());
            const data = new DataTransfer();
            data.items.add(new File([bytes], {told}, {{type: "{kind}"}}));
            document.querySelector("{selector}").dispatchEvent(
                new DragEvent("drop", {{dataTransfer: data, bubbles: true,
                cancelable: true}}));
            }})()"""
        )

    def press(self, key):
        """Presses a key of `KEYS` and lets it go."""
        letter = {"text": key} if len(key) == 1 else {}
        code = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, **code, **letter)

    def screenshot(self, *, whole=False) -> bytes:
        """PNG of the window, or of the whole page."""
        picture = self.send(
            "Page.captureScreenshot", captureBeyondViewport=whole
        )
        return base64.b64decode(picture["data"])
