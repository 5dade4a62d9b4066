"""Pages in a browser (make test-browser): no errors, pictures drawn, hover, zoom, slider."""

import shutil

import pytest

import kernelbayes as kb
import pages
from kernelbayes.cli.live import Live

webdriver = pytest.importorskip("selenium.webdriver")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are needed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def of(name):
        if name not in made:
            result, options = pages.PAGES[name][0]()
            path = folder / f"{len(made)}.html"
            made[name] = kb.report(result, path, title=pages.HOSTILE[1], **options).as_uri()
        return made[name]

    return of


def opened(browser, address, width=1000, dark=False):
    browser.get_log("browser")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


def moved(browser, x, y, what="mouseMoved", **more):
    event = {"type": what, "x": x, "y": y, **more}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)


def frame(browser, number):
    """Middle and size of the picture with this number, scrolled into view."""
    return browser.execute_script(
        "const svg = document.querySelectorAll('figure.picture svg')[arguments[0]];"
        "svg.scrollIntoView({block: 'center'}); const r = svg.getBoundingClientRect();"
        "return [r.left + r.width / 2, r.top + r.height / 2, r.width, r.height];",
        number,
    )


@pytest.mark.parametrize("name", pages.PAGES)
@pytest.mark.parametrize(("width", "dark"), [(1000, False), (1000, True), (360, False)])
def test_every_page_is_drawn_without_errors_and_fits(browser, address, name, width, dark):
    opened(browser, address(name), width, dark)
    assert browser.get_log("browser") == []
    # Nothing sticks out: the page is as wide as the screen.
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.data')].map(g => {const b = g.getBBox();"
        "return [b.width, b.height]})"
    )
    assert len(boxes) == pages.PAGES[name][1]
    assert all(w > 0 or h > 0 for w, h in boxes)


def test_dark_pages_are_dark(browser, address):
    shades = []
    for dark in (False, True):
        opened(browser, address("batch"), dark=dark)
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        shades.append(sum(map(int, colour.strip("rgb()").split(","))))
    assert shades[0] > 600 > 200 > shades[1]


@pytest.mark.parametrize("name", ["batch", "filter in the plane", "drift", "independence"])
def test_values_are_told_where_one_points(browser, address, name):
    opened(browser, address(name))
    for number in range(pages.PAGES[name][1]):
        x, y, *_ = frame(browser, number)
        moved(browser, x, y)
        tip = browser.execute_script(
            "const t = document.querySelectorAll('figure.picture')[arguments[0]]"
            ".querySelector('.tip'); return t.hidden ? '' : t.textContent",
            number,
        )
        assert ":" in tip
        assert any(letter.isdigit() for letter in tip)
    assert browser.get_log("browser") == []


def drawn(browser, script):
    return browser.execute_script(
        f"return [...document.querySelectorAll('.moving')].map(m => {script})"
    )


@pytest.mark.parametrize("name", ["batch", "batch of names", "filter in the plane"])
def test_the_slider_moves_what_is_drawn(browser, address, name):
    opened(browser, address(name))
    before = drawn(browser, "m.outerHTML")
    browser.execute_script(
        "const s = document.querySelector('.slider input'); s.value = 1;"
        "s.dispatchEvent(new Event('input'))"
    )
    after = drawn(browser, "m.outerHTML")
    assert len(before) == len(after) == pages.PAGES[name][1]
    assert all(a != b for a, b in zip(before, after, strict=True))
    told = browser.execute_script("return document.querySelector('.slider output').textContent")
    assert told.endswith(" 1")
    assert browser.get_log("browser") == []


def test_what_the_script_draws_is_what_python_drew(browser, address):
    """The last frame is drawn by both: by Python into the file, by the script when it starts."""
    opened(browser, address("batch"))
    with_script = drawn(browser, "m.getAttribute('d') || m.outerHTML")
    text = browser.execute_script(
        "const x = new XMLSerializer(); return [...document.querySelectorAll('.moving')]"
        ".map(m => m.getBBox()).map(b => [b.x, b.y, b.width, b.height])"
    )
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(address("batch"))
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    without = browser.execute_script(
        "return [...document.querySelectorAll('.moving')].map(m => m.getBBox())"
        ".map(b => [b.x, b.y, b.width, b.height])"
    )
    assert with_script
    # Half a unit: coordinates have one digit, and curves start on the axis or at their first value.
    for a, b in zip(text, without, strict=True):
        assert all(abs(p - q) <= 0.5 for p, q in zip(a, b, strict=True))


def test_dragging_zooms_and_a_double_click_shows_all(browser, address):
    opened(browser, address("batch"))
    x, y, width, _ = frame(browser, 0)

    def ticks():
        return browser.execute_script(
            "return [...document.querySelector('.tick.x').querySelectorAll('text')]"
            ".map(t => t.textContent)"
        )

    all_of_them = ticks()
    moved(browser, x - width / 8, y, "mousePressed", button="left", clickCount=1)
    moved(browser, x + width / 8, y, button="left")
    moved(browser, x + width / 8, y, "mouseReleased", button="left", clickCount=1)
    zoomed = ticks()
    assert zoomed != all_of_them
    span = [float(t[-1]) - float(t[0]) for t in (all_of_them, zoomed)]
    assert span[1] < 0.5 * span[0]
    for count in (1, 2):
        moved(browser, x, y, "mousePressed", button="left", clickCount=count)
        moved(browser, x, y, "mouseReleased", button="left", clickCount=count)
    assert ticks() == all_of_them
    assert browser.get_log("browser") == []


def test_the_live_page_draws_what_is_sent(browser):
    with Live(0) as server:
        opened(browser, f"http://{server.hosts[0]}/")
        for t in range(1, 30):
            step = {
                "t": t,
                "z_mean": t / 10,
                "z_sd": 1.0,
                "z_low": -1.0 + t / 10,
                "z_high": 1.0 + t / 10,
            }
            server.publish({**step, "support": 0.9, "ess": 50.0, "prior_share": 0.0})
        wait = WebDriverWait(browser, 10)
        wait.until(lambda b: "step 29" in b.find_element("id", "state").text)
        assert browser.find_element("id", "state").get_attribute("class") == "good"
        path = browser.execute_script(
            "return document.querySelector('path.line').getAttribute('d')"
        )
        assert path.count("L") == 28
    wait.until(lambda b: "ended" in b.find_element("id", "state").text)
    assert browser.get_log("browser") == []


def test_the_live_page_draws_probabilities_of_categories(browser):
    with Live(0) as server:
        opened(browser, f"http://{server.hosts[0]}/")
        for t in range(1, 6):
            # "low" is a category here, and "z" a number beside it.
            step = {"t": t, "z_mean": 0.5, "z_sd": 0.1, "z_low": 0.4, "z_high": 0.6}
            step |= {"risk": "low", "risk_high": 0.1 * t, "risk_low": 1.0 - 0.1 * t}
            server.publish({**step, "support": 0.9, "ess": 50.0, "prior_share": 0.0})
        wait = WebDriverWait(browser, 10)
        wait.until(lambda b: "step 5" in b.find_element("id", "state").text)
        titles = [title.text for title in browser.find_elements("css selector", "h2")]
    assert titles == ["z: 0.5000 (0.4000 to 0.6000)", "risk_high: 0.50", "risk_low: 0.50"]
    wait.until(lambda b: "ended" in b.find_element("id", "state").text)
    assert browser.get_log("browser") == []


def test_print_has_pictures_side_by_side_and_the_beginning_of_long_tables(browser, address):
    opened(browser, address("filter in the plane"))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = """
      const seen = (one) => one.getClientRects().length > 0;
      return [[...document.querySelectorAll(".tools, .slider input, .play")].filter(seen).length,
        getComputedStyle(document.querySelector(".pictures")).gridTemplateColumns.split(" ").length,
        Math.max(...[...document.querySelectorAll(".wide table")].map(
          (table) => [...table.rows].filter(seen).length))];"""
    buttons, columns, rows = browser.execute_script(shown)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert (buttons, columns) == (0, 2)
    assert rows <= 31
