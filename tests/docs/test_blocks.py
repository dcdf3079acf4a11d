"""Every block of the README and the docs does what it says: commands and Python are run, specs are validated."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main
from orchestrator.errors import UserError
from orchestrator.sweep import SweepSpec, load_spec
from tests.analysis.runs import Run
from tests.docs.blocks import LANGUAGES, PAGES, ROOT, Block, blocks_of

NOT_RUN = {
    "README.md": 2,
    "docs/concepts/fidelity.md": 1,
    "docs/how-to/bench.md": 1,
    "docs/how-to/cluster.md": 1,
    "docs/how-to/first-sweep.md": 3,
    "docs/how-to/results.md": 3,
    "docs/how-to/scripts.md": 1,
    "docs/how-to/soak.md": 1,
    "docs/how-to/storage.md": 2,
    "docs/reference/commands.md": 7,
    "docs/reference/kernel-lab.md": 3,
}
"""Blocks of each page that carry ``<!-- not run: REASON -->``. A new one needs a good reason, and a new number here."""

BASES = ("cpu_demo", "cpu_goodput", "deepseek_v3_dcp", "lab_fidelity")
"""A part of a spec is put into one of these."""

BLOCKS = {str(path.relative_to(ROOT)): list(blocks_of(path)) for path in PAGES}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user has it after some runs; the runs are copies of the shipped one."""
    for name in ("cpu-demo", "bench", "h100", "h200-vllm-0.31", "vllm-032", "monday", "tuesday"):
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
    return tmp_path


def run_command(line: str, place: str) -> None:
    """A command of ours in this process, anything with a pipe or another program in a shell."""
    words = shlex.split(line, comments=True)
    if words[0] == "chunksmith" and not {"|", ">", "&&"} & set(words):
        assert main(words[1:]) == 0, f"{place}: {line}"
        return
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-ec", line], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{place}: {line}: {done.stderr}"


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


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks])
def test_the_blocks_of_a_page_do_what_they_say(page: str, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": page}
    for block in BLOCKS[page]:
        assert block.language in LANGUAGES, f"{block.place}: say what the block is: {', '.join(sorted(LANGUAGES))}"
        if block.reason:
            continue
        if block.language == "bash":
            for line in block.commands:
                run_command(line, block.place)
        elif block.language == "python":
            # Blocks of a page follow each other, as a reader would type them.
            exec(compile(block.text, block.place, "exec"), names)
        elif block.language == "yaml":
            validate(block, folder)


def test_what_is_not_run_is_counted() -> None:
    skipped = [block for blocks in BLOCKS.values() for block in blocks if block.reason]
    listed = "\n".join(f"{block.place}: {block.reason}" for block in skipped)
    assert Counter(block.page for block in skipped) == NOT_RUN, listed
    assert not [block for block in skipped if block.language not in ("bash", "python")]
