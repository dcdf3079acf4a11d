"""How one cached row is stored: as it is, or as the packed fp8 record of DeepSeek-V4."""

from __future__ import annotations

from typing import Final, Protocol

import torch

from orchestrator.engines.kernel_lab.errors import LabError

FP8_GROUP: Final = 64
"""Elements that share one scale."""

FP8_LARGEST: Final = 448.0
"""Largest finite value of ``float8_e4m3fn``."""

_SCALE_BYTES_STEP: Final = 8
_EXPONENT_BIAS: Final = 127
_BIAS_DIFFERENCE: Final = 120
"""Of the exponents of bf16 (127) and e4m3 (7)."""

_SIGN_AND_MAGNITUDE: Final = 0x87FF - 0x10000
"""As int16: where the bits of e4m3 lie in bf16, sign at the top, exponent and fraction across the border of the two."""

_DECODED_TOGETHER: Final = 1024
"""Records whose intermediate results stay in the cache of a core."""


class RowFormat(Protocol):
    """How rows of ``width`` elements lie in a cache of ``stored_width`` elements of ``stored_dtype``."""

    @property
    def width(self) -> int:
        """Elements of a row."""
        ...

    @property
    def stored_width(self) -> int:
        """Elements of a stored row."""
        ...

    @property
    def stored_dtype(self) -> torch.dtype:
        """Their dtype."""
        ...

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        """Stored form of rows, ``[n, width]`` to ``[n, stored_width]``."""
        ...

    def decode(self, stored: torch.Tensor, out: torch.Tensor) -> None:
        """Write the rows of a stored form, ``[n, stored_width]``, to ``out``, ``[n, width]``."""
        ...


class PlainRows:
    """Rows as they are.

    Args:
        width: Elements, at least 1.
        dtype: Of the cache and of what is gathered from it.
    """

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        self.width = self.stored_width = width
        self.stored_dtype = dtype

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.to(self.stored_dtype)

    def decode(self, stored: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(stored)


class Fp8Rows:
    """``width - rope`` elements of fp8 (e4m3), the rotary ones in bf16, then a power-of-two scale byte for 64 elements.

    With 448 + 64 elements a record has 448 + 128 + 8 bytes, as in vLLM's cache of DeepSeek-V4: 7 scales (UE8M0, the
    exponent plus 127) and a byte of padding.

    Args:
        width: Elements of a row.
        rope: Rotary elements at its end; the rest must be a multiple of 64.

    Raises:
        LabError: ``lab-shape``.
    """

    stored_dtype = torch.uint8

    def __init__(self, width: int, rope: int) -> None:
        if width <= rope or (width - rope) % FP8_GROUP:
            raise LabError(
                "lab-shape",
                f"a row of fp8 must have a multiple of {FP8_GROUP} elements before the rotary ones, got {width - rope}",
            )
        self.width = width
        self._nope, self._rope = width - rope, rope
        self._groups = self._nope // FP8_GROUP
        scale_bytes = -(-self._groups // _SCALE_BYTES_STEP) * _SCALE_BYTES_STEP
        self._scales_at = self._nope + 2 * rope
        self.stored_width = self._scales_at + scale_bytes

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        groups = rows[:, : self._nope].float().view(-1, self._groups, FP8_GROUP)
        largest = groups.abs().amax(-1).clamp_min(2.0**-100)
        exponent = torch.ceil(torch.log2(largest / FP8_LARGEST))
        scaled = groups * torch.exp2(-exponent).unsqueeze(-1)
        stored = torch.zeros(rows.shape[0], self.stored_width, dtype=torch.uint8, device=rows.device)
        stored[:, : self._nope] = scaled.to(torch.float8_e4m3fn).view(torch.uint8).view(-1, self._nope)
        rotary = rows[:, self._nope :].to(torch.bfloat16).contiguous()
        stored[:, self._nope : self._scales_at] = rotary.view(torch.uint8)
        stored[:, self._scales_at : self._scales_at + self._groups] = (exponent + _EXPONENT_BIAS).to(torch.uint8)
        return stored

    def decode(self, stored: torch.Tensor, out: torch.Tensor) -> None:
        for first in range(0, stored.shape[0], _DECODED_TOGETHER):
            part = slice(first, first + _DECODED_TOGETHER)
            self._decode(stored[part], out[part])

    def _decode(self, stored: torch.Tensor, out: torch.Tensor) -> None:
        # Shifted to where bf16 has them, the bits of e4m3 mean the number times 2^-120, also if it is subnormal. A
        # power of two changes no bit of the fraction, so both products are exact.
        bits = stored[:, : self._nope].view(torch.int8).to(torch.int16)
        bits.bitwise_left_shift_(4).bitwise_and_(_SIGN_AND_MAGNITUDE)
        values = bits.view(torch.bfloat16).mul_(2.0**_BIAS_DIFFERENCE).view(-1, self._groups, FP8_GROUP)
        scale_bytes = stored[:, self._scales_at : self._scales_at + self._groups]
        scale = torch.exp2(scale_bytes.float() - _EXPONENT_BIAS).to(torch.bfloat16).unsqueeze(-1)
        torch.mul(values, scale, out=out[:, : self._nope].view(-1, self._groups, FP8_GROUP))
        out[:, self._nope :] = stored[:, self._nope : self._scales_at].contiguous().view(torch.bfloat16)
