"""Takes the pictures of README.md and docs/howto/ui.md with Chromium, each page in light and in dark.

python scripts/ui_images.py                # needs Playwright, Chromium, Pillow, PySpark and Java; writes docs/images/ui-*.png
python scripts/ui_images.py list traces    # only these pages
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from PIL import Image
from playwright.sync_api import sync_playwright

from heronpy.common.folders import make_folders
from heronpy.common.host import this_host
from heronpy.jobs.manager import SYNCER, Acting, folder_of, minutes_of
from heronpy.jobs.plans import pairs_of
from heronpy.jobs.store import Scaled, Store
from heronpy.jobs.syncer import Running
from heronpy.loadtest.jobs.model import START_S, Model
from heronpy.loadtest.jobs.scenarios import GOAL, TIMES, Scene, daily, noise
from heronpy.scaling.history import History
from heronpy.scaling.replaying import Minute
from heronpy.scaling.state import State
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))
from tests.jobs.job_worlds import Clock, definition_of  # noqa: E402
from tests.scaling.scenes import parts  # noqa: E402

IMAGES = REPO / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
#: Seconds of data in the charts of the pictures.
RECORDED_S = 45.0
#: Hours of model time before the picture of the job is taken, on the third day before noon.
HOURS = 58.0
WIDTH = 1200
#: Number of colours of a picture; this reduces the files to a third of their size.
COLOURS = 200
#: Replaces folder names of this machine in the pictures.
RENAME = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""
SPARK, ENDED, JOB = "SparkSinkDemo", "Ended", "Day"


@dataclass(frozen=True)
class Picture:
    """A picture of a page: its topology, the element that shows that the page is ready, and the height."""

    name: str
    topology: str
    parts: str
    seen: str
    height: int = 700
    #: A button that is clicked first, and a link that is followed.
    press: str = ""
    follow: str = ""
    #: Path after the address, for a page that belongs to no topology.
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
    """Submit the topologies that some pictures show."""
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
    """Take one picture when its page is ready."""
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


def job_of_model(home: Path) -> StateManager:
    """Store a job with two and a half days of decisions of the scaler about a model of a topology. The model does not
    depend on the load of this machine. Close the result after the pictures.
    """
    os.environ["HERON_HOME"] = str(home)
    state, clock = open_state("local", str(home / "state" / "local")), Clock(START_S)
    store = Store(state, clock)
    layer = {"definition": store.define(definition_of("work", "store")), "parallelism": {"work": 4, "store": 2}}
    scale = {"max": GOAL.max, "min": {"work": 2}}
    store.create(JOB, {"provisioner": {**layer, "slo": {"lag_s": GOAL.lag_s}}}, "ann on login1", "first version")
    store.set(JOB, "oncall", {"scale": scale}, 0, "ann on login1", "follow the load")
    make_folders(folder_of("local"))
    before = State()
    with closing(History(minutes_of("local", JOB), TIMES)) as history:
        model = Model(parts(), daily(1000, 9000), noise=noise(1, 0.02), step_s=60.0)
        looks = Scene(model, HOURS, GOAL, minutes=history).looks
        for look, outcome in looks:
            clock.now, slo, was = look.at, outcome.state.slo, before.slo
            minute = msgspec.json.encode(Minute(look, GOAL, TIMES.day_s, before))
            history.look(look.at, slo.measured_s - was.measured_s, slo.broken_s - was.broken_s, minute)
            for decision in outcome.decisions:
                store.decided(JOB, "scaler", decision.component, decision.text)
            if outcome.changes:
                why, version = outcome.decisions[0].text, store.get(JOB).versions["scaler"]
                store.set(JOB, "scaler", outcome.changes, version, "scaler", why)
            before = outcome.state
    scaled, version = store.scaled(JOB)
    last = replace(looks[-1][0], at=time.time())  # the page says so if figures are old
    store.put_scaled(JOB, Scaled(scaled.created, before, last), version)
    leaves: dict[tuple[str, ...], Any] = {("parallelism", one.name): one.tasks for one in last.components}
    store.put_running(JOB, Running("manager", f"{JOB}-1", pairs_of(leaves | {("run",): "running"}), state="IN_SYNC"), 0)
    acting = Acting("manager", os.getpid(), os.getppid(), this_host().to_text(), clock.now)
    state.create(paths.job_manager(SYNCER), msgspec.json.encode(acting), ephemeral=True)
    return state


def take_job(browser: Any, home: Path, pictures: list[Picture]) -> None:
    """Take the pictures of the job, without running a topology."""
    with closing(job_of_model(home)):
        address = heron(home, "ui").split()[-1]
        for one in pictures:
            for scheme in ("light", "dark"):
                shoot(browser, scheme, f"{address}/{one.page}", one)
                print(one.name, scheme, flush=True)


def take(browser: Any, home: Path, folder: Path, topology: str, pictures: list[Picture]) -> None:
    """Take the pictures of one topology, after its charts have recorded for some time."""
    submit(home, folder, topology)
    try:
        address = heron(home, "ui").split()[-1]
        role = next((home / "topologies" / "local").iterdir()).name
        pages = "/".join([address, "#/t/local", role, "default", topology])
        context = browser.new_context()
        context.new_page().goto(pages)  # shown while its charts are recorded
        time.sleep(RECORDED_S)
        context.close()
        if topology == ENDED:
            heron(home, "kill", "local", ENDED)
        for one in pictures:
            for scheme in ("light", "dark"):
                shown = f"{pages}/{one.parts}".rstrip("/") if one.topology else f"{address}/"
                shoot(browser, scheme, shown, one)
                print(one.name, scheme, flush=True)
    finally:
        if topology != ENDED or topology in heron(home, "list", "local"):
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
            # Run the topologies one after the other, so that they do not compete for CPU; take the list last.
            for topology in (ENDED, JOB, "Clicks", "Shop", "Counts", SPARK, "Orders"):
                mine = [
                    one for one in pictures if one.topology == topology or (topology == "Orders" and not one.topology)
                ]
                if mine and topology == JOB:
                    take_job(browser, home, mine)
                elif mine:
                    take(browser, home, Path(folder), topology, mine)
        finally:
            browser.close()
            heron(home, "ui", "stop")


if __name__ == "__main__":
    main(sys.argv[1:])
