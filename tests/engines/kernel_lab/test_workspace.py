"""The workspace manager: tensors that share a buffer, growth, the lock and the canaries."""

from __future__ import annotations

import pickle
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.workspace import ALIGNMENT, Scratch, WorkspaceManager, round_up

DTYPES = (torch.bfloat16, torch.float32, torch.int32, torch.uint8)
SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)
REQUESTS = st.lists(st.tuples(SHAPES, st.sampled_from(DTYPES)), min_size=1, max_size=4)


@given(REQUESTS, st.sampled_from([0, 1, 4096]))
def test_tensors_of_one_request_are_aligned_and_do_not_overlap(
    requests: list[tuple[tuple[int, ...], torch.dtype]], guard_bytes: int
) -> None:
    manager = WorkspaceManager(guard_bytes=guard_bytes)
    tensors = manager.get_simultaneous(*requests)
    for number, (tensor, (shape, dtype)) in enumerate(zip(tensors, requests, strict=True)):
        assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype)
        assert tensor.numel() == 0 or tensor.data_ptr() % ALIGNMENT == 0
        tensor.fill_(number + 1)
    for number, tensor in enumerate(tensors):
        assert bool((tensor == number + 1).all())
    manager.check_canaries()
    expected = sum(round_up(tensor.numel() * tensor.element_size(), ALIGNMENT) for tensor in tensors)
    assert manager.current_bytes == manager.peak_bytes == expected


def test_the_buffer_grows_to_the_largest_request_and_never_shrinks() -> None:
    manager = WorkspaceManager()
    sizes = []
    for rows in (10, 100, 1, 50):
        manager.get_simultaneous(((rows, 64), torch.float32))
        sizes.append(manager.current_bytes)
    assert sizes == [2560, 25600, 25600, 25600]
    assert manager.peak_bytes == 25600
    manager.reset_peak()
    manager.get_simultaneous(((50, 64), torch.float32))
    assert (manager.peak_bytes, manager.current_bytes) == (12800, 25600)


def test_lanes_are_buffers_of_their_own() -> None:
    manager = WorkspaceManager(lanes=2)
    (first,) = manager.get_simultaneous(((4,), torch.int32), lane=0)
    first.fill_(7)
    (second,) = manager.get_simultaneous(((400,), torch.int32), lane=1)
    second.fill_(9)
    assert first.tolist() == [7] * 4
    assert manager.current_bytes == 256 + 1792
    with pytest.raises(LabError, match="lab-shape: lane must lie between 0 and 1, got 2"):
        manager.get_simultaneous(((4,), torch.int32), lane=2)


def test_growth_after_the_lock_is_an_error_that_names_both_sizes() -> None:
    manager = WorkspaceManager()
    manager.get_simultaneous(((1024, 1024), torch.uint8))
    manager.lock()
    assert manager.is_locked
    manager.get_simultaneous(((1024, 1024), torch.uint8))
    with pytest.raises(LabError) as locked:
        manager.get_simultaneous(((1024, 1024), torch.uint8), ((1,), torch.int32))
    assert locked.value.label == "workspace-locked"
    assert str(locked.value) == (
        "workspace-locked: a request of 1048832 bytes (1.00 MiB) exceeds the locked workspace of 1048576 bytes "
        "(1.00 MiB)"
    )
    manager.unlock()
    manager.get_simultaneous(((2048, 1024), torch.uint8))
    assert manager.current_bytes == 2048 * 1024


FILLED = st.lists(
    st.tuples(st.tuples(st.integers(1, 9), st.integers(1, 40)), st.sampled_from(DTYPES)), min_size=1, max_size=4
)


@pytest.mark.vllm
@settings(max_examples=30)
@given(calls=st.lists(FILLED, min_size=1, max_size=5), unlocked=st.integers(0, 5))
def test_sizes_places_and_the_lock_are_vllms(
    calls: list[list[tuple[tuple[int, ...], torch.dtype]]], unlocked: int
) -> None:
    theirs = pytest.importorskip("vllm.v1.worker.workspace").WorkspaceManager(torch.device("cpu"))
    ours = WorkspaceManager()
    for number, requests in enumerate(calls):
        if number == unlocked:
            theirs.lock()
            ours.lock()
        try:
            # It has no meaning without a GPU, and torch refuses it.
            with patch.object(torch.accelerator, "empty_cache"):
                expected = theirs.get_simultaneous(*requests)
        except AssertionError:
            with pytest.raises(LabError, match="workspace-locked"):
                ours.get_simultaneous(*requests)
            continue
        tensors = ours.get_simultaneous(*requests)
        assert ours.current_bytes == theirs._current_workspaces[0].numel()
        for mine, other in zip(tensors, expected, strict=True):
            assert (mine.shape, mine.dtype, mine.stride()) == (other.shape, other.dtype, other.stride())
            assert mine.data_ptr() - tensors[0].data_ptr() == other.data_ptr() - expected[0].data_ptr()


@pytest.mark.parametrize("offset", [-1, 512])
def test_a_write_beside_the_buffer_is_found(offset: int) -> None:
    manager = WorkspaceManager(guard_bytes=64)
    (tensor,) = manager.get_simultaneous(((512,), torch.uint8))
    manager.check_canaries()
    torch.as_strided(tensor, (1,), (1,), tensor.storage_offset() + offset).fill_(0)
    with pytest.raises(LabError, match="workspace-overrun: bytes beside the buffer of lane 0"):
        manager.check_canaries()


def test_what_does_not_fit_into_memory_is_one_line() -> None:
    with pytest.raises(LabError) as error:
        WorkspaceManager().get_simultaneous(((2**60,), torch.uint8))
    assert error.value.label == "out-of-memory"
    assert "\n" not in str(error.value)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(LabError, match="lanes must be at least 1, got 0"):
        WorkspaceManager(lanes=0)
    with pytest.raises(LabError, match=r"sizes of at least 0, got \(3, -1\)"):
        WorkspaceManager().get_simultaneous(((3, -1), torch.uint8))


def test_an_error_can_be_carried_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(LabError("workspace-locked", "no")))
    assert (error.label, error.detail) == ("workspace-locked", "no")


def test_released_buffers_come_back_with_the_next_request() -> None:
    manager = WorkspaceManager()
    manager.get_simultaneous(((100,), torch.uint8))
    manager.release()
    assert manager.current_bytes == 0
    manager.get_simultaneous(((10,), torch.uint8))
    assert manager.current_bytes == 256


def test_scratch_keeps_the_largest_buffer_of_a_name() -> None:
    scratch = Scratch()
    large = scratch.take("a", (8, 4), torch.float32)
    small = scratch.take("a", (3,), torch.float32)
    assert small.data_ptr() == large.data_ptr()
    assert scratch.take("b", (3,), torch.float32).data_ptr() != large.data_ptr()
    assert scratch.take("a", (3,), torch.int32).data_ptr() != large.data_ptr()
    assert scratch.current_bytes == 128 + 12 + 12
