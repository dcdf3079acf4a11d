"""Copies of small blocks, against torch's own selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.block_copy import LARGEST, LINE, can_copy, copy_blocks


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@given(lines=st.integers(1, 40), ids=st.lists(st.integers(0, 6), max_size=20), shift=st.integers(0, 3))
def test_copies_bit_by_bit_and_nothing_beside(lines: int, ids: list[int], shift: int) -> None:
    """The bits are arbitrary, NaN among them, and the target is not aligned to a line."""
    width = lines * LINE // 2
    generator = torch.Generator().manual_seed(lines)
    bits = torch.randint(-(2**15), 2**15, (7, width), generator=generator, dtype=torch.int16)
    whole = torch.full((shift + len(ids) * width + 64,), 7, dtype=torch.int16)
    out = whole[shift : shift + len(ids) * width].view(len(ids), width)
    copy_blocks(bits.view(torch.bfloat16), torch.tensor(ids, dtype=torch.int64), out.view(torch.bfloat16))
    assert torch.equal(out, bits[ids])
    assert bool((whole[:shift] == 7).all())
    assert bool((whole[shift + len(ids) * width :] == 7).all())


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_id_that_is_no_block_copies_nothing(bad: int) -> None:
    out = torch.zeros(3, 32, dtype=torch.bfloat16)
    with pytest.raises(IndexError, match=r"^a block id is not in 0 to 2$"):
        copy_blocks(torch.ones(3, 32, dtype=torch.bfloat16), torch.tensor([0, bad, 1]), out)
    assert not out.any()


@pytest.mark.parametrize(
    "change",
    [
        lambda case: case | {"out": torch.zeros(2, 64, dtype=torch.bfloat16)},
        lambda case: case | {"out": torch.zeros(1, 32, dtype=torch.float16)},
        lambda case: case | {"out": torch.zeros(32, 2, dtype=torch.bfloat16).t()[:, :32]},
        lambda case: case | {"ids": torch.tensor([0], dtype=torch.int32)},
        lambda case: case | {"blocks": torch.zeros(4, 31, dtype=torch.bfloat16)},
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    case = {
        "blocks": torch.zeros(4, 32, dtype=torch.bfloat16),
        "ids": torch.tensor([0]),
        "out": torch.zeros(1, 32, dtype=torch.bfloat16),
    }
    with pytest.raises(ValueError, match=r"^cannot copy blocks"):
        copy_blocks(**change(case))


@pytest.mark.usefixtures("one_thread")
def test_is_for_small_blocks_of_whole_lines_on_one_thread() -> None:
    def blocks(size: int) -> torch.Tensor:
        return torch.zeros(2, size // 2, dtype=torch.bfloat16)

    assert [can_copy(blocks(size)) for size in (LINE, LARGEST, LINE // 2, LARGEST + LINE, LINE + 2)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    torch.set_num_threads(2)
    assert not can_copy(blocks(LINE))
