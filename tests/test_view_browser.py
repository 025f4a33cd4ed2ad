"""The viewer in a real browser: Chromium of the system, driven by Playwright. Without it there is nothing to run."""

import base64
import io
import shutil
import time

import numpy as np
import pytest
from matplotlib.image import imread

import torsor as ts
from torsor.view import Viewer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60_000  # milliseconds, for machines that draw by software

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


class Page:
    """A page, its errors, and what it has fetched."""

    def __init__(self, browser, url):
        self.page = browser.new_page(viewport={"width": 760, "height": 320})
        self.page.set_default_timeout(PATIENCE)
        self.errors, self.fetched = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.goto(url)

    def picture(self, frame=None):
        """What is on the canvas of the scene, in the page or in a frame of it: (height, width, 3), from 0 to 1."""
        place = self.page if frame is None else self.page.frames[1 + frame]
        place.wait_for_selector("canvas[data-engine]")
        drawn = place.evaluate("document.querySelector('canvas[data-engine]').toDataURL()")
        return imread(io.BytesIO(base64.b64decode(drawn.partition(",")[2])))[..., :3]

    def until(self, condition, frame=None):
        """Pictures, until one meets a condition."""
        end = time.monotonic() + 1e-3 * PATIENCE
        while time.monotonic() < end:
            picture = self.picture(frame)
            if condition(picture):
                return picture
            self.page.wait_for_timeout(200)
        pytest.fail("the picture never came")


@pytest.fixture
def open_page(browser):
    pages = []

    def opened(url):
        pages.append(Page(browser, url))
        return pages[-1]

    yield opened
    for page in pages:
        page.page.close()


def colored(picture):
    """The share of a picture that is red, as the arm is and nothing else."""
    return (picture[..., 0] - picture[..., 1:].max(axis=-1) > 0.2).mean()


def different(picture, other):
    return (np.abs(picture - other).max(axis=-1) > 0.1).mean()


def arm():
    """A thick red arm on a hinge, horizontal."""
    box = ts.Visual("box", (1.0, 0.3, 0.3), ts.SE3.translation(0.5, 0, 0), (0.9, 0.1, 0.1, 1.0))
    builder = ts.ModelBuilder("arm")
    builder.add_body("link", "world", ts.Revolute((0, 1, 0)), ts.SE3(), ts.Inertia.box((1, 0.3, 0.3), mass=1.0),
                     visuals=[box], joint_name="hinge", position_limits=(-1.5, 1.5))  # fmt: skip
    return builder.build()


def test_a_page_opens_draws_and_moves_by_its_sliders_and_by_a_motion(open_page):
    model = arm()
    with Viewer(model, port=0, open_browser=False) as viewer:
        page = open_page(viewer.url)
        before = page.until(lambda picture: colored(picture) > 0.03)

        number = page.page.get_by_role("textbox").last
        number.fill("-1.2")
        number.press("Enter")
        after = page.until(lambda picture: different(picture, before) > 0.03)
        assert viewer.q == pytest.approx([-1.2])
        assert colored(after) > 0.03

        number.fill("9")  # beyond the limit
        number.press("Enter")
        page.until(lambda picture: different(picture, after) > 0.03)
        assert viewer.q == pytest.approx([1.5])

        trajectory = ts.simulate(model, [0.0], [3.0], steps=50, integrator=ts.BDF2(h=0.02))
        viewer.play(trajectory)
        first = page.picture()
        page.until(lambda picture: different(picture, first) > 0.03)
        assert page.page.get_by_text("Pause").count() == 1
        assert page.errors == []
        assert all(url.startswith((viewer.url, "data:", "blob:")) for url in page.fetched)


def test_files_and_notebooks_play_by_themselves_without_a_network(open_page, tmp_path):
    trajectory = ts.simulate(arm(), [0.0], [3.0], steps=50, integrator=ts.BDF2(h=0.02))
    trajectory.html(tmp_path / "motion.html")
    beside = f'<iframe src="motion.html"></iframe>{trajectory._repr_html_()}'
    style = "<style>body {margin: 0} iframe {width: 370px; height: 310px}</style>"
    (tmp_path / "both.html").write_text(f"<!doctype html><head>{style}</head><body>{beside}</body>")
    page = open_page((tmp_path / "both.html").as_uri())
    for frame in (0, 1):
        first = page.until(lambda picture: colored(picture) > 0.03, frame)
        page.until(lambda picture, first=first: colored(picture) > 0.03 and different(picture, first) > 0.03, frame)
    assert page.errors == []
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in page.fetched)
