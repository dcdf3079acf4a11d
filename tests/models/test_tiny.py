from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.models import TinyMLAConfig, default_cache_dir, tiny_model, tiny_model_path

SMALL = TinyMLAConfig(layers=1, hidden_size=32, intermediate_size=32, heads=1, q_lora_rank=16)


def hashes(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    first, second = tiny_model(SMALL, cache_dir=tmp_path / "a"), tiny_model(SMALL, cache_dir=tmp_path / "b")
    assert hashes(first) == hashes(second)
    assert set(hashes(first)) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_same_bytes_in_another_process(tmp_path: Path) -> None:
    """Python's hash seed differs from process to process, so no order of a set or dict may reach the files."""
    here = tiny_model(SMALL, cache_dir=tmp_path / "a")
    program = (
        "import sys; from pathlib import Path; from orchestrator.models import TinyMLAConfig, tiny_model;"
        "print(tiny_model(TinyMLAConfig(layers=1, hidden_size=32, intermediate_size=32, heads=1, q_lora_rank=16),"
        "cache_dir=Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
    )
    assert hashes(Path(done.stdout.strip())) == hashes(here)


def test_other_seed_other_weights_in_another_folder(tmp_path: Path) -> None:
    other = TinyMLAConfig(seed=1, layers=1, hidden_size=32, intermediate_size=32, heads=1, q_lora_rank=16)
    first, second = tiny_model(SMALL, cache_dir=tmp_path), tiny_model(other, cache_dir=tmp_path)
    assert first != second
    assert hashes(first)["model.safetensors"] != hashes(second)["model.safetensors"]
    assert hashes(first)["tokenizer.json"] == hashes(second)["tokenizer.json"]


def test_the_number_of_layers_is_in_weights_and_configuration(tmp_path: Path) -> None:
    from safetensors import safe_open
    from transformers import AutoConfig

    config = TinyMLAConfig(layers=3, hidden_size=32, intermediate_size=32, heads=1, q_lora_rank=16)
    folder = tiny_model(config, cache_dir=tmp_path)
    with safe_open(str(folder / "model.safetensors"), "pt") as weights:
        names = set(weights.keys())
        latent = weights.get_slice("model.layers.2.self_attn.kv_a_proj_with_mqa.weight").get_shape()
    assert {name.split(".")[2] for name in names if ".layers." in name} == {"0", "1", "2"}
    assert latent == [512 + 64, 32]
    assert AutoConfig.from_pretrained(folder, local_files_only=True).num_hidden_layers == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"heads": -1}, "heads must be at least 1, got -1"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"vocab_size": 9_999}, "vocab_size must be at least 10000, got 9999"),
    ],
)
def test_sizes_that_make_no_model_are_refused(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TinyMLAConfig(**values)


def test_tokenizer_maps_words_to_their_own_numbers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model(SMALL, cache_dir=tmp_path), local_files_only=True)
    assert tokenizer.encode("w17 w18", add_special_tokens=False) == [17, 18]
    assert tokenizer.encode("w17 unheard w10239", add_special_tokens=False) == [17, 0, 10_239]
    assert tokenizer.decode([17, 18]) == "w17 w18"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 3)
    assert len(tokenizer) == SMALL.vocab_size


def test_a_second_call_writes_nothing(tmp_path: Path) -> None:
    folder = tiny_model(SMALL, cache_dir=tmp_path)
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert tiny_model(SMALL, cache_dir=tmp_path) == folder
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_what_a_killed_writer_left_is_never_taken_for_a_model(tmp_path: Path) -> None:
    """A faulty writer dies in the middle: it leaves its staging folder, and the model must still come out whole."""
    whole = hashes(tiny_model(SMALL, cache_dir=tmp_path / "whole"))
    program = (
        "import os, sys; from pathlib import Path; from orchestrator.models import TinyMLAConfig, tiny, tiny_model;"
        "tiny._tokenizer = lambda size: os._exit(7);"
        "tiny_model(TinyMLAConfig(layers=1, hidden_size=32, intermediate_size=32, heads=1, q_lora_rank=16),"
        "cache_dir=Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "cut")], check=False)
    assert done.returncode == 7
    left = list((tmp_path / "cut" / "models").iterdir())
    assert [(left[0] / name).exists() for name in ("model.safetensors", "config.json")] == [True, False]

    folder = tiny_model(SMALL, cache_dir=tmp_path / "cut")
    assert folder not in left
    assert hashes(folder) == whole


def test_a_folder_that_lost_its_configuration_is_replaced(tmp_path: Path) -> None:
    folder = tiny_model(SMALL, cache_dir=tmp_path)
    whole = hashes(folder)
    (folder / "config.json").unlink()
    assert hashes(tiny_model(SMALL, cache_dir=tmp_path)) == whole


def test_a_failed_write_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: both make write() fail after some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    received = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            tiny_model(SMALL, cache_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, received)
    assert str(caught.value.filename).endswith("/model.safetensors")
    assert list((tmp_path / "models").iterdir()) == []


def test_the_path_is_known_before_the_model_is_there(tmp_path: Path) -> None:
    path = tiny_model_path(SMALL, cache_dir=tmp_path)
    assert not path.exists()
    assert tiny_model(SMALL, cache_dir=tmp_path) == path


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CHUNKSMITH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache_dir() == tmp_path / ".cache" / "chunksmith"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "chunksmith"
    monkeypatch.setenv("CHUNKSMITH_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"
