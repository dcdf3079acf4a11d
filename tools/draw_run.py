"""Draws docs/first-run.svg: what `chunksmith watch` prints of the shipped run, in thirty seconds.

python -m tools.draw_run           # write
python -m tools.draw_run --check   # exit code 1 where the picture is not what the command prints

Nothing in it is made up: the lines are the command's, and each appears when its trial ended, some ten times as fast.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path

import pandas as pd

from orchestrator.cli import main as chunksmith

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "results" / "data" / "cpu-demo"
PICTURE = ROOT / "docs" / "first-run.svg"
PROMPT = "$ chunksmith watch runs/cpu-demo"
LAST = "Confirmed points, with fresh prompts:"
"""The line of the answer before which the picture ends."""

SEARCH_S, ANSWER_S, END_S = 22.0, 24.0, 30.0
"""When the last trial has ended, when the answer comes, and when the picture rests."""
COLUMNS, ROWS = 138, 24
LINE, CHAR, MARGIN, BAR = 18, 7.25, 16, 30
"""Pixels: height of a line, width of a character, edge, title bar."""


def printed() -> list[str]:
    """What the command prints, up to ``LAST``; long lines are folded as a terminal does."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = chunksmith(["watch", str(RUN)])
    if code:
        raise SystemExit(code)
    lines = output.getvalue().partition(f"\n{LAST}")[0].splitlines()
    # The remark on this machine's vLLM is none of the run's.
    return [line for line in lines if not line.startswith("Here `vllm`")]


def timed(lines: Sequence[str]) -> list[tuple[float, str]]:
    """Each line with the second at which it appears."""
    ended = pd.read_parquet(RUN / "trials", columns=["started_at", "finished_at"]).sort_values("finished_at")
    begin = ended["started_at"].min()
    share = (ended["finished_at"] - begin) / (ended["finished_at"].max() - begin)
    times = [1 + float(part) * (SEARCH_S - 1) for part in share]
    found = [(0.0, PROMPT)]
    for number, line in enumerate(lines):
        second = times[number] if number < len(times) else ANSWER_S
        found += [(second, part) for part in _folded(line)]
    return found


def _folded(line: str) -> list[str]:
    return textwrap.wrap(line, COLUMNS, break_on_hyphens=False) or [""]


def picture(lines: Sequence[tuple[float, str]]) -> str:
    """The lines as an SVG that plays once; where motion is not wanted, it shows its end."""
    width, height = round(COLUMNS * CHAR + 2 * MARGIN), BAR + ROWS * LINE + 2 * MARGIN
    texts, steps, hidden = [], ["0%{transform:translateY(0)}"], max(len(lines) - ROWS, 0)
    for number, (second, line) in enumerate(lines):
        kind = "w" if line.startswith("Winner") else "p" if number == 0 else "o"
        texts.append(
            f'<text class="{kind} l" x="{MARGIN}" y="{(number + 1) * LINE}" '
            f'style="animation-delay:{second:.2f}s">{escape(line, quote=False)}</text>'
        )
        if number >= ROWS:
            above = (number + 1 - ROWS) * LINE
            steps.append(f"{100 * second / END_S:.2f}%{{transform:translateY(-{above}px)}}")
    steps.append(f"100%{{transform:translateY(-{hidden * LINE}px)}}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-label="A sweep of 24 trials, and its answer">',
            "<style>",
            "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
            ".o{fill:#d6deeb}.p{fill:#8b98ad}.w{fill:#7ee787;font-weight:bold}",
            "@media (prefers-reduced-motion:no-preference){",
            ".l{opacity:0;animation:show 1ms linear forwards}@keyframes show{to{opacity:1}}",
            f"#t{{animation:scroll {END_S:.0f}s step-end forwards}}@keyframes scroll{{{''.join(steps)}}}",
            "}",
            "</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#10151f"/>',
            '<circle cx="18" cy="16" r="5" fill="#ff5f57"/><circle cx="36" cy="16" r="5" fill="#febc2e"/>'
            '<circle cx="54" cy="16" r="5" fill="#28c840"/>',
            f'<svg y="{BAR}" width="{width}" height="{height - BAR - MARGIN // 2}">',
            f'<g id="t" transform="translate(0 -{hidden * LINE})">',
            *texts,
            "</g></svg></svg>",
            "",
        ]
    )


def main() -> int:
    """Write the picture, or check it; return the exit code."""
    parser = argparse.ArgumentParser(description="Draw the shipped run as it went.")
    parser.add_argument("--check", action="store_true", help="only say whether the picture is what the command prints")
    check = parser.parse_args().check
    text = picture(timed(printed()))
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == text:
        return 0
    if not check:
        PICTURE.write_text(text, encoding="utf-8")
    print(f"{PICTURE}: {'not what the command prints' if check else 'written'}")
    return 1 if check else 0


if __name__ == "__main__":
    sys.exit(main())
