"""Take the pictures of docs/howto/ui.md: a skewed topology runs for two minutes, Chromium looks at it.

python scripts/ui_images.py    # needs Playwright and Chromium; writes docs/images/ui-*.png
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

REPO = Path(__file__).parents[1]
IMAGES = REPO / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
#: So long the charts of the pictures are.
RECORDED_MS = 70_000
SIZE = {"width": 1200, "height": 860}


def heron(home: Path, *words: str) -> str:
    env = {**os.environ, "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client"), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "heronpy.cli", *words]
    return subprocess.run(command, env=env, cwd=REPO, check=True, capture_output=True, text=True).stdout


def shoot(browser: Any, scheme: str, address: str, seen: str, name: str, wait_ms: int = 0, height: int = 860) -> None:
    """One picture, once something is seen and so much time has passed."""
    context = browser.new_context(viewport={**SIZE, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.locator(seen).first.wait_for()
    page.wait_for_timeout(wait_ms)
    page.screenshot(path=IMAGES / f"ui-{name}.png")
    context.close()


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder, sync_playwright() as playwright:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        try:
            heron(home, "submit", "local", "topologies/sick.py", "Orders", "--what", "skew")
            heron(
                home,
                "submit",
                "local",
                "topologies/word_count.py",
                "Words",
                "--config-property",
                "heron.instance.batch_tuples=64",
            )
            heron(home, "deactivate", "local", "Words")
            address = heron(home, "ui").split()[-1]
            role = next((home / "topologies" / "local").iterdir()).name
            orders = f"{address}/#/t/local/{role}/default/Orders"
            arguments = ["--no-sandbox"] if os.getuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
            shoot(browser, "light", orders, ".chart canvas", "topology", RECORDED_MS)
            shoot(browser, "dark", orders, ".chart canvas", "topology-dark", 20_000)
            shoot(browser, "light", address, ".spark path", "list", height=260)
            heavy = f"{orders}/component/work"
            shoot(browser, "dark", heavy, "tbody tr", "component-dark", 12_000)
            shoot(browser, "light", f"{orders}/doctor", "article", "doctor", height=640)
            context = browser.new_context()
            page = context.new_page()
            page.goto(heavy)
            task = page.locator("tbody tr a").first
            task.wait_for()
            shoot(browser, "light", f"{address}/{task.get_attribute('href')}", ".log .line", "task", 3_000, height=760)
            browser.close()
        finally:
            heron(home, "ui", "stop")
            for name in ("Orders", "Words"):
                heron(home, "kill", "local", name)


if __name__ == "__main__":
    main()
