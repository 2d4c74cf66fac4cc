"""Take the pictures of README.md and docs/howto/ui.md, each page in light and in dark: topologies run, Chromium looks at them.

python scripts/ui_images.py                # needs Playwright, Chromium, Pillow, PySpark and Java; writes docs/images/ui-*.png
python scripts/ui_images.py list traces    # only these pages
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

REPO = Path(__file__).parents[1]
IMAGES = REPO / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
#: So long the charts of the pictures are, seconds.
RECORDED_S = 45.0
#: The picture of the job is taken when it has less lag and more load than this; it gets this time for that.
LAG_S, BUSY, HEALTHY_S = 1.0, 0.5, 1500.0
WIDTH = 1200
#: The most frequent ones stay as they are, smooth letters take the nearest, at a third of the bytes of all colours.
COLOURS = 200
#: Folders of this machine are nobody's business.
RENAME = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""
SPARK, ENDED, JOB = "SparkSinkDemo", "Ended", "Day"


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
    #: Behind the address, where it is no page of the topology.
    page: str = ""


PICTURES = (
    Picture("overview", "Clicks", "", ".chart canvas", 900),
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
    Picture("job", JOB, "", ".chart canvas", 1060, page=f"#/job/local%2F{JOB}"),
    Picture("ended", ENDED, "", ".head:has-text('KILLED')", 760),
)


def heron(home: Path, *words: str) -> str:
    env = {**os.environ, "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client"), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "heronpy.cli", *words]
    return subprocess.run(command, env=env, cwd=REPO, check=True, capture_output=True, text=True).stdout


def submit(home: Path, folder: Path, name: str) -> None:
    """Start what some pictures show."""
    if name == JOB:
        heron(home, "job", "create", "local", "topologies/day.py", "--slo", "lag=5s", "--max", "work=8")
        heron(home, "job", "set", "local", JOB, "scale.min.work=2", "--for", "2h", "--why", "a campaign at noon")
        return
    book = folder / "book.txt"
    book.write_text("".join(f"word{number % 97} word{number % 13} word\n" for number in range(5000)))
    programs: dict[str, tuple[str, ...]] = {
        "Orders": ("topologies/sick.py", "Orders", "--what", "skew"),
        "Clicks": ("scripts/ui_clicks.py", "-"),
        "Shop": ("scripts/ui_orders.py", "-", "--config-property", "heron.instance.poison_tries=2"),
        "Counts": (
            "topologies/stateful_word_count.py", "Counts", "--file", str(book), "--out", str(folder / "counts"), "--rate", "500",
            "--times", "1000",
        ),
        SPARK: ("topologies/spark_sink.py", "-", "--output", str(folder / "readings"), "--readings", "50000000"),
        ENDED: ("topologies/word_count.py", ENDED, "--config-property", "heron.instance.batch_tuples=64"),
    }  # fmt: skip
    heron(home, "submit", "local", *programs[name])


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
    counts = sorted(taken.getcolors(taken.width * taken.height), reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counts[:COLOURS] for part in colour])
    few = taken.quantize(palette=palette, dither=Image.Dither.NONE)
    few.save(IMAGES / f"ui-{picture.name}{'' if scheme == 'light' else '-dark'}.png", optimize=True)
    context.close()


def wait_healthy(home: Path) -> None:
    """Wait until the job is busy and in time, without an alert, and the scaler has decided something."""
    deadline = time.monotonic() + HEALTHY_S
    while time.monotonic() < deadline:
        job = json.loads(heron(home, "job", "show", "local", JOB, "--json"))
        scaler, decided = job["scaler"], any(one["who"] == "scaler" for one in job["decisions"])
        busy = max((one["busy"] or 0.0 for one in scaler["components"].values()), default=0.0)
        in_time = scaler["lag_s"] is not None and scaler["lag_s"] < LAG_S
        if job["state"] == "IN_SYNC" and decided and in_time and busy > BUSY and not scaler["alerts"]:
            return
        time.sleep(1.0)
    raise SystemExit(f"job {JOB} was not healthy within {HEALTHY_S:g} s; take its picture while the machine is idle")


def take(browser: Any, home: Path, folder: Path, topology: str, pictures: list[Picture]) -> None:
    """Pictures of one topology, after some time for its charts."""
    submit(home, folder, topology)
    try:
        address = heron(home, "ui").split()[-1]
        role = next((home / "topologies" / "local").iterdir()).name
        pages = "/".join([address, "#/t/local", role, "default", topology])
        context = browser.new_context()
        context.new_page().goto(pages)  # looked at while its charts are recorded
        time.sleep(RECORDED_S)
        if topology == JOB:
            wait_healthy(home)
        context.close()
        if topology == ENDED:
            heron(home, "kill", "local", ENDED)
        for one in pictures:
            for scheme in ("light", "dark"):
                shown = f"{pages}/{one.parts}".rstrip("/") if one.topology and not one.page else f"{address}/{one.page}"
                shoot(browser, scheme, shown, one)
                print(one.name, scheme, flush=True)
    finally:
        if topology == JOB:
            heron(home, "job", "stop", "local", JOB)
            heron(home, "job", "delete", "local", JOB)
            heron(home, "manager", "stop", "local")
        elif topology != ENDED or topology in heron(home, "list", "local"):
            heron(home, "kill", "local", topology)


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    pictures = [one for one in PICTURES if not names or one.name in names]
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder, sync_playwright() as playwright:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            # One after the other, so that each has the machine for itself; the list comes last, and has them all.
            for topology in (ENDED, JOB, "Clicks", "Shop", "Counts", SPARK, "Orders"):
                mine = [
                    one for one in pictures if one.topology == topology or (topology == "Orders" and not one.topology)
                ]
                if mine:
                    take(browser, home, Path(folder), topology, mine)
        finally:
            browser.close()
            heron(home, "ui", "stop")


if __name__ == "__main__":
    main(sys.argv[1:])
