"""How rows are stored: as they are, and as the packed fp8 record."""

from __future__ import annotations

import pytest
import torch

from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.rows import Fp8Rows, PlainRows


def test_the_record_of_deepseek_v4_has_584_bytes() -> None:
    """448 of fp8, 64 rotary elements of two bytes, 7 scales and a byte of padding."""
    rows = Fp8Rows(512, 64)
    assert rows.stored_width == 448 + 128 + 8
    assert rows.stored_dtype == torch.uint8


def test_packing_keeps_three_bits_of_the_fraction_and_the_rotary_part() -> None:
    rows = Fp8Rows(512, 64)
    values = torch.randn(50, 512) * torch.logspace(-6, 6, 50, base=2.0).unsqueeze(1)
    values[3] = 0.0
    out = torch.empty(50, 512)
    rows.decode(rows.encode(values), out)
    assert torch.equal(out[:, 448:], values[:, 448:].bfloat16().float())
    assert torch.equal(out[3], torch.zeros(512))
    groups, found = values[:, :448].view(50, 7, 64), out[:, :448].view(50, 7, 64)
    # Half a unit of the last of e4m3's three bits, and for the smallest ones half of its smallest step.
    largest = groups.abs().amax(-1, keepdim=True)
    assert bool(((found - groups).abs() <= groups.abs() / 16 + largest * 2.0**-9 / 224 * 1.01).all())


def test_packing_what_was_unpacked_changes_nothing() -> None:
    rows = Fp8Rows(512, 64)
    stored = rows.encode(torch.randn(20, 512))
    out = torch.empty(20, 512, dtype=torch.bfloat16)
    rows.decode(stored, out)
    again = torch.empty(20, 512, dtype=torch.bfloat16)
    rows.decode(rows.encode(out), again)
    assert torch.equal(out, again)


@pytest.mark.parametrize("exponent", [-40, -1, 0, 7])
def test_every_code_is_unpacked_to_its_own_value(exponent: int) -> None:
    """All 254 numbers of e4m3, subnormal ones too, as torch converts them, times the scale."""
    codes = torch.arange(256, dtype=torch.uint8).view(4, 64)
    rows = Fp8Rows(128, 64)
    stored = rows.encode(torch.zeros(4, 128))
    stored[:, :64] = codes
    stored[:, 64 + 128] = exponent + 127
    out = torch.empty(4, 128, dtype=torch.bfloat16)
    rows.decode(stored, out)
    expected = codes.view(torch.float8_e4m3fn).float() * 2.0**exponent
    is_number = ~expected.isnan()
    assert int(is_number.sum()) == 254
    assert torch.equal(out[:, :64].float()[is_number], expected[is_number])


@pytest.mark.parametrize(("width", "rope"), [(64, 64), (100, 64), (16, 64)])
def test_a_row_without_whole_groups_cannot_be_packed(width: int, rope: int) -> None:
    with pytest.raises(LabError, match="lab-shape: a row of fp8 must have a multiple of 64 elements"):
        Fp8Rows(width, rope)


def test_plain_rows_are_kept_as_they_are() -> None:
    rows, values = PlainRows(10, torch.bfloat16), torch.randn(4, 10).bfloat16()
    out = torch.empty_like(values)
    rows.decode(rows.encode(values), out)
    assert torch.equal(out, values)
