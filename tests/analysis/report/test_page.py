"""The report, opened in a real browser without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.analysis.report import report
from orchestrator.cli import main
from tests.analysis.runs import Run
from tests.browsers import chromium

Scheme = Literal["light", "dark"]
NASTY = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    run = Run(folder / "run")
    for number, ratio in enumerate((0.9, 0.66, 0.8)):
        run.finalist(number, ratio)
        run.confirm(number, ratio, phase="search", pairs=3)
        run.trial(number, ratio=ratio, ratio_low=ratio - 0.02, ratio_high=ratio + 0.02)
    run.trial(3, outcome="failed", failure="oom", failure_detail=NASTY, ratio=None, workspace_bytes=None)
    run.trial(4, outcome="infeasible", failure="slo", ratio=None)
    run.folder.provenance.write_text(json.dumps({"host": NASTY, "engines": [{"version": "0.32.0", "resolved": {}}]}))
    file = folder / "report.html"
    assert main(["report", str(run.path), "-o", str(file)]) == 0
    return file


def opened(browser: Browser, file: Path, *, width: int = 1440, scheme: Scheme = "light") -> tuple[Page, list[str]]:
    """The page, drawn, and what it complained of."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-drawn]", timeout=60_000)
    return page, trouble


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_every_plot_is_drawn_without_a_complaint(browser: Browser, page_file: Path, width: int, scheme: Scheme) -> None:
    page, trouble = opened(browser, page_file, width=width, scheme=scheme)
    assert trouble == []
    assert page.locator(".plot").count() == 5
    assert page.locator(".plot .main-svg").count() >= 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    worst = page.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
    page.context.close()


CONTRAST = """() => {
  const luminance = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => {
      const s = Number(v) / 255;
      return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!colour.endsWith(", 0)")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = { ratio: 99 };
  const texts = "h1, h2, p, td, th, code, main button:not(.modebar-btn), summary, dt, dd";
  for (const element of document.querySelectorAll(texts)) {
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) worst = { ratio, what: element.outerHTML.slice(0, 80) };
  }
  return worst;
}"""
"""The worst contrast of a text on the page, by the formula of WCAG 2.1 (relative luminance)."""


def test_the_answer_and_its_command_stand_on_top(browser: Browser, page_file: Path) -> None:
    page, _ = opened(browser, page_file)
    assert page.locator("h1").inner_text() == "Winner: trial 1"
    command = page.locator("#command").inner_text()
    assert command.endswith("""--additional-config '{"chunksmith": {"mla_workspace_rows": 256}}'""")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#copy").click()
    page.wait_for_function("document.getElementById('copied').textContent !== ''")
    assert page.evaluate("navigator.clipboard.readText()") == command
    page.context.close()


def test_the_table_sorts_and_filters_by_keyboard(browser: Browser, page_file: Path) -> None:
    page, _ = opened(browser, page_file)

    def trials() -> list[str]:
        return page.locator("#table tbody tr:visible td:first-child").all_inner_texts()

    assert trials() == ["0", "1", "2", "3", "4"]
    head = page.locator("#table th button", has_text="ratio").first
    head.focus()
    page.keyboard.press("Enter")
    assert trials()[:3] == ["1", "2", "0"]
    assert page.locator("#table th[aria-sort=ascending]").inner_text().startswith("ratio")
    page.keyboard.press("Enter")
    # Trials without a ratio stay at the end.
    assert trials()[:3] == ["0", "2", "1"]
    page.locator("#filter").focus()
    page.keyboard.type("OOM")
    assert trials() == ["3"]
    assert page.locator("#shown").inner_text() == "1 of 5 trials"
    page.context.close()


def test_what_a_run_holds_is_text_and_never_markup(browser: Browser, page_file: Path) -> None:
    page, trouble = opened(browser, page_file)
    assert page.locator("#table img").count() == page.locator("dl img").count() == 0
    assert NASTY in page.locator("#table").inner_text()
    assert trouble == []
    page.context.close()


def test_every_control_has_a_name(browser: Browser, page_file: Path) -> None:
    page, _ = opened(browser, page_file)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button:not([data-title]), input, [role=img], [role=region]")]
          .filter((e) => !e.closest(".modebar") && !(e.textContent.trim() || e.getAttribute("aria-label")
            || e.labels?.length || document.getElementById(e.getAttribute("aria-labelledby"))))
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    page.context.close()


def test_a_run_without_any_result_has_a_report_too(browser: Browser, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    file = tmp_path / "empty.html"
    file.write_text(report(run.path))
    page, trouble = opened(browser, file)
    assert page.locator("h1").inner_text() == "No clear winner"
    assert page.locator("main").inner_text().find("No trial is recorded yet.") > 0
    assert trouble == []
    page.context.close()
