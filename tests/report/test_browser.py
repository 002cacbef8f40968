"""The page in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

import base64
import shutil

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'gossamer[report]'")
pytest.importorskip("selenium", reason="no selenium: pip install selenium")

from matplotlib.image import imread
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from gossamer.report import write_report
from gossamer.runs.record import read_run
from tests.support.synthetic_runs import run_folder

BROWSER, DRIVER = shutil.which("chromium") or "", shutil.which("chromedriver") or ""
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    long = "a-run-with-a-very-long-name-without-any-space-" * 3
    runs = [
        run_folder(folder / "full", algorithm="dpsgd", compressor=None, sent=54_000_000, steps=66),
        run_folder(folder / long, uneven=2.0, steps=66),
        run_folder(folder / "bad", status="diverged", error="x" * 300, steps=66, data="/very/long/path" * 20),
        run_folder(folder / "new", summary=False, evaluate=False, steps=4),
    ]
    return write_report([read_run(run) for run in runs], folder / "report.html")


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield driver
    driver.quit()


def show(driver, page, width, scheme):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page.as_uri())
    driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")


def shot(driver, path):
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(picture["data"]))
    return imread(path)[..., :3]


def colours(picture):
    return len(np.unique(picture[::5, ::5].reshape(-1, 3), axis=0))


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_nothing_is_wider_than_the_screen(driver, page, width):
    show(driver, page, width, "light")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script("return document.body.scrollWidth") <= width
    script = """
        const inScroller = e => e.closest(".scroll, pre.command");
        return [...document.querySelectorAll("body *")].filter(e => !inScroller(e) && !e.closest("svg") &&
            e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    assert driver.execute_script(script) == []


def test_text_in_figures_stays_readable_on_a_phone(driver, page):
    show(driver, page, 375, "light")
    script = """return Math.min(...[...document.querySelectorAll(".panels svg text")].map(
        e => e.getBoundingClientRect().height))"""
    assert driver.execute_script(script) >= 9


def test_dark_is_dark_and_light_is_light(driver, page, tmp_path):
    seen = {}
    for scheme in ("light", "dark"):
        show(driver, page, 1280, scheme)
        seen[scheme] = shot(driver, tmp_path / f"{scheme}.png")
        script = "return getComputedStyle(document.querySelector('figure svg text')).fill"
        ink = [int(x) for x in driver.execute_script(script)[4:-1].split(",")]
        assert (max(ink) < 120) == (scheme == "light")
    assert seen["light"][0, 0].min() > 0.95
    assert seen["dark"][0, 0].max() < 0.2
    for picture in seen.values():
        assert colours(picture) > 50  # not blank: text, lines, colours


def test_a_click_sorts_the_table(driver, page):
    show(driver, page, 1280, "light")
    names = "return [...document.querySelectorAll('td.run a')].map(e => e.textContent)"
    click = "document.querySelectorAll('th button')[7].click()"
    driver.execute_script(click)
    assert driver.execute_script(names)[-2:] == ["full", "new"]  # what is missing comes last
    driver.execute_script(click)
    assert driver.execute_script(names)[::3] == ["full", "new"]


def test_without_scripts_the_page_is_whole(driver, page, tmp_path):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(page.as_uri())
        picture = shot(driver, tmp_path / "plain.png")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert colours(picture) > 50


def test_the_browser_complains_of_nothing_and_asks_nobody(driver, page):
    driver.get_log("browser"), driver.get_log("performance")
    show(driver, page, 1280, "light")
    assert driver.get_log("browser") == []
    asked = [
        e["message"] for e in driver.get_log("performance") if "Network.requestWillBeSent" in e["message"]
    ]
    assert all(page.as_uri() in message for message in asked)


def test_a_sheet_of_paper_is_wide_enough_and_white(driver, page):
    show(driver, page, 718, "dark")  # A4 without its margins
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 718
    ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert ground == "rgb(255, 255, 255)"


def test_it_prints_with_all_runs_unfolded(driver, page):
    driver.get(page.as_uri())
    folded = driver.execute_script("return document.querySelectorAll('details[open]').length") == 0
    pdf = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert folded
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") >= 4
