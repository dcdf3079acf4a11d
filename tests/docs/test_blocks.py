"""Every block of the README and the docs does what it says: commands and Python are run, specs are validated."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import UserError
from orchestrator.sweep import SweepSpec, load_spec
from tests.analysis.runs import Run
from tests.docs.blocks import LANGUAGES, PAGES, ROOT, Block, blocks_of
from tests.docs.providers import PROVIDERS, provided

BASES = ("cpu_demo", "cpu_goodput", "deepseek_v3_dcp", "lab_fidelity")
"""A part of a spec is put into one of these."""

BLOCKS = {str(path.relative_to(ROOT)): list(blocks_of(path)) for path in PAGES}
LONG = [block for blocks in BLOCKS.values() for block in blocks if block.is_long]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user has it after some runs; the runs are copies of the shipped one."""
    for name in ("cpu-demo", "tiny-mla", "bench", "h100", "h200-vllm-0.31", "vllm-032", "monday", "tuesday"):
        shutil.copytree(ROOT / "results/data/cpu-demo", tmp_path / "runs" / name)
    for name in ("cpu-demo-earlier", "vllm-031"):
        shutil.copytree(ROOT / "results/data/cpu-demo-earlier", tmp_path / "runs" / name)
    decoding = Run(tmp_path / "runs/cpu-goodput")
    decoding.finalist(0, 0.9, baseline={"median_tpot_ms": 5.0, "output_throughput": 9.0})
    (tmp_path / "point.yaml").write_text("model: deepseek-v3\nmax_num_seqs: 64\n")
    shutil.copytree(ROOT / "search_spaces", tmp_path / "search_spaces")
    logs = tmp_path / "runs/cpu-demo/logs"
    logs.mkdir()
    (logs / "engine-80f648e271.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # What a page installs is there already, and nothing else is let in.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path


def validate(block: Block, folder: Path) -> None:
    """A whole spec as it is; a part of one in a shipped spec that has the rest."""
    part = yaml.safe_load(block.text)
    if "version" in part:
        path = folder / "block.yaml"
        path.write_text(block.text)
        load_spec(path).search_space()
        return
    if not part.keys() & SweepSpec.model_fields.keys():
        part = {"space": part}
    errors = []
    for base in BASES:
        path = folder / "block.yaml"
        content: dict[str, Any] = yaml.safe_load((ROOT / f"search_spaces/{base}.yaml").read_text()) | part
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        try:
            load_spec(path).search_space()
            return
        except UserError as error:
            errors.append(f"{base}: {error}")
    raise AssertionError(f"{block.place}: no shipped spec takes this: " + "\n".join(errors))


def do(block: Block, folder: Path, names: dict[str, Any]) -> None:
    """What the block says, with what it needs. ``names`` are those of the page's Python."""
    with provided(block.needs, folder) as (words, run):
        block = block.with_words(words)
        if block.language == "bash":
            for line in block.commands:
                run(line)
        elif block.language == "python":
            exec(compile(block.text, block.place, "exec"), names)
        elif block.language == "yaml":
            validate(block, folder)


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks])
def test_the_blocks_of_a_page_do_what_they_say(page: str, folder: Path) -> None:
    # Blocks of a page follow each other, as a reader would type them.
    names: dict[str, Any] = {"__name__": page}
    for block in BLOCKS[page]:
        assert block.language in LANGUAGES, f"{block.place}: say what the block is: {', '.join(sorted(LANGUAGES))}"
        if not block.is_long:
            do(block, folder, names)


@pytest.mark.soak
@pytest.mark.engine
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("block", LONG, ids=lambda block: block.place)
def test_a_long_block_does_what_it_says(block: Block, folder: Path) -> None:
    do(block, folder, {"__name__": block.page})


def test_every_need_is_provided_and_every_provider_is_needed() -> None:
    assert {name for blocks in BLOCKS.values() for block in blocks for name in block.needs} == set(PROVIDERS)


def test_every_extra_that_is_installed_is_there() -> None:
    """pip goes on with a warning where it is not."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [block.text for blocks in BLOCKS.values() for block in blocks]
    named = re.findall(r"pip install .*(?:chunksmith|\.)\[(\w+)\]", "".join(texts))
    assert {"postgresql", "s3", "sweep"} <= set(named) <= set(extras)


@pytest.mark.parametrize(
    "comment",
    [
        "<!-- not run: for want of time -->",
        "<!-- runs with: -->",
        "<!-- runs with s3 -->",
        "<!-- runs in test-docs with: engine -->",
    ],
)
def test_a_comment_that_is_misspelt_is_an_error(comment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"{comment}\n```bash\ntrue\n```\n")
    with pytest.raises(AssertionError, match="says nothing known"):
        list(blocks_of(page))
