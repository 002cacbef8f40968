"""Blocks cover a vector once, in order, and give every run of entries its own scale."""

import pytest
import torch

from gossamer.compress import blocks
from gossamer.compress.blocks import BLOCK, by_bucket, by_tensor
from gossamer.compress.layout import Layout

SIZES = {
    "one": (1,),
    "empty tensors": (0, 5, 0, 0, 7, 0),
    "many small": tuple(range(40)),
    "longer than a block": (3, 2 * BLOCK + 5, 9, BLOCK, BLOCK - 1, 2),
}


def layout_of(sizes):
    return Layout(tuple(f"t{i}" for i in range(len(sizes))), tuple((size,) for size in sizes))


def scales_of_entries(found, size, scales):
    """Return the scale that the blocks give every entry."""
    ones = torch.ones(size, dtype=torch.float64)
    for block in found:
        block.multiply(block.of(ones), scales)
    return ones


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("bucket", [None, 1, 3, 512, 10 * BLOCK])
def test_every_entry_gets_its_own_scale(name, bucket):
    layout = layout_of(SIZES[name])
    if bucket is None:
        found, lengths = by_tensor(layout), list(layout.sizes)
    else:
        found = by_bucket(layout, bucket)
        lengths = [min(bucket, size - start) for size in layout.sizes for start in range(0, size, bucket)]
    scales = torch.arange(1, len(lengths) + 1, dtype=torch.float64)
    expected = scales.repeat_interleave(torch.tensor(lengths))
    assert torch.equal(scales_of_entries(found, layout.size, scales), expected)


def test_a_block_is_no_longer_than_it_should_be():
    for found in (by_tensor(layout_of(SIZES["longer than a block"])), by_bucket(layout_of((10**6,)), 512)):
        assert all(block.stop - block.start <= blocks.BLOCK for block in found)
        assert [block.start for block in found[1:]] == [block.stop for block in found[:-1]]


def test_division_undoes_multiplication_by_powers_of_two():
    layout = layout_of((700, 30))
    values, scales = torch.randn(730), torch.tensor([4.0, 0.5, 8.0])
    (block,) = by_bucket(layout, 512)
    assert torch.equal(block.divide(block.multiply(values.clone(), scales), scales), values)
