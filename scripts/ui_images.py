"""Take the pictures of docs/howto/ui.md, each page in light and in dark: topologies run, Chromium looks at them.

python scripts/ui_images.py                # needs Playwright, Chromium, Pillow, PySpark and Java; writes docs/images/ui-*.png
python scripts/ui_images.py list traces    # only these pages
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

REPO = Path(__file__).parents[1]
IMAGES = REPO / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
#: So long the charts of the pictures are.
RECORDED_MS = 40_000
WIDTH = 1200
#: Enough for what a page shows, smooth letters included, at a third of the bytes of all colours.
COLOURS = 128
#: Folders of this machine are nobody's business.
RENAME = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""
SPARK, ENDED = "SparkSinkDemo", "Ended"


@dataclass(frozen=True)
class Picture:
    """A page: of which topology, what is seen once it is there, and how high the picture is."""

    name: str
    topology: str
    parts: str
    seen: str
    height: int = 700
    #: A button that is pressed first, and a link that leads on.
    press: str = ""
    follow: str = ""


PICTURES = (
    Picture("topology", "Orders", "", ".chart canvas", 860),
    Picture("list", "", "", ".spark path", 420),
    Picture("tasks", "Orders", "tasks", "tbody tr", 520),
    Picture("component", "Orders", "component/work", "tbody tr", 860),
    Picture("task", "Orders", "component/work", ".log .line", 760, follow="tbody tr a"),
    Picture(
        "profile",
        "Orders",
        "component/work",
        "[aria-label='flame graph'] rect",
        860,
        follow="tbody tr a",
        press="profile",
    ),
    Picture("doctor", "Orders", "doctor", "article", 640),
    Picture("traces", "Orders", "traces", ".waterfall", 860),
    Picture("logs", "Orders", "logs", "tbody tr", 480),
    Picture("config", "Orders", "config", "tbody tr", 640),
    Picture("exceptions", "Shop", "exceptions", "details", 480),
    Picture("letters", "Shop", "letters", "details[open] pre", 560, follow="details summary"),
    Picture("checkpoints", "Counts", "checkpoints", "tbody tr", 640),
    Picture("batches", SPARK, "batches", "tbody tr", 860),
    Picture("ended", ENDED, "", ".chart canvas", 760),
)


def heron(home: Path, *words: str) -> str:
    env = {**os.environ, "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client"), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "heronpy.cli", *words]
    return subprocess.run(command, env=env, cwd=REPO, check=True, capture_output=True, text=True).stdout


def submit(home: Path, folder: Path, wanted: set[str]) -> list[str]:
    """Start what the pictures show; the names."""
    book = folder / "book.txt"
    book.write_text("".join(f"word{number % 97} word{number % 13} word\n" for number in range(5000)))
    short = ("--config-property", "heron.instance.batch_tuples=64")
    programs: dict[str, tuple[str, ...]] = {
        "Orders": ("topologies/sick.py", "Orders", "--what", "skew"),
        "Shop": ("scripts/ui_orders.py", "-", "--config-property", "heron.instance.poison_tries=2"),
        "Counts": (
            "topologies/stateful_word_count.py", "Counts", "--file", str(book), "--out", str(folder / "counts"), "--rate", "500",
            "--times", "1000",
        ),
        SPARK: ("topologies/spark_sink.py", "-", "--output", str(folder / "readings"), "--readings", "50000000"),
        ENDED: ("topologies/word_count.py", ENDED, *short),
    }  # fmt: skip
    chosen = [name for name in programs if name in wanted or ("" in wanted and name in ("Orders", "Shop", ENDED))]
    for name in chosen:
        heron(home, "submit", "local", *programs[name])
    return chosen


def shoot(browser: Any, scheme: str, address: str, picture: Picture) -> None:
    """One picture, once something is seen."""
    context = browser.new_context(viewport={"width": WIDTH, "height": picture.height}, color_scheme=scheme)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(address)
    if picture.follow:
        page.locator(picture.follow).first.click()
    if picture.press:
        page.get_by_role("button", name=picture.press, exact=False).first.click()
    page.locator(picture.seen).first.wait_for()
    page.wait_for_timeout(2_500)  # an update
    page.evaluate(RENAME, [str(REPO), "/home/you/heronpy"])
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    few = taken.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(IMAGES / f"ui-{picture.name}{'' if scheme == 'light' else '-dark'}.png", optimize=True)
    context.close()


def take(browser: Any, home: Path, folder: Path, pictures: list[Picture], recorded_ms: int) -> None:
    """Pictures of topologies that run together, after some time for their charts."""
    running = submit(home, folder, {one.topology for one in pictures})
    try:
        address = heron(home, "ui").split()[-1]
        role = next((home / "topologies" / "local").iterdir()).name

        def page_of(topology: str, *parts: str) -> str:
            return "/".join([address, "#/t/local", role, "default", topology, *parts])

        context = browser.new_context()
        page = context.new_page()
        page.goto(page_of(running[0]))  # looked at while its charts are recorded
        page.wait_for_timeout(recorded_ms)
        context.close()
        if ENDED in running:
            heron(home, "kill", "local", ENDED)
            running.remove(ENDED)
        for one in pictures:
            for scheme in ("light", "dark"):
                shown = page_of(one.topology, *([one.parts] if one.parts else [])) if one.topology else address
                shoot(browser, scheme, shown, one)
                print(one.name, scheme, flush=True)
    finally:
        for name in running:
            heron(home, "kill", "local", name)


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    pictures = [one for one in PICTURES if not names or one.name in names]
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder, sync_playwright() as playwright:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            # Spark would take the others their CPU.
            for alone in (False, True):
                mine = [one for one in pictures if (one.topology == SPARK) is alone]
                if mine:
                    take(browser, home, Path(folder), mine, RECORDED_MS)
        finally:
            browser.close()
            heron(home, "ui", "stop")


if __name__ == "__main__":
    main(sys.argv[1:])
