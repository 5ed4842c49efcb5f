"""Packed products equal plain ones, whatever the number of rows."""

import pytest
import torch

from engine.model.projection import PackedProjection, PlainProjection, can_pack, projection

needs_packing = pytest.mark.skipif(
    not can_pack(torch.zeros(1, 1)), reason="this torch has no packed products"
)


@needs_packing
@pytest.mark.parametrize("num_rows", [1, 2, 16, 17, 300])
def test_a_packed_product_is_the_plain_one(num_rows):
    draw = torch.Generator().manual_seed(num_rows)
    weight = torch.randn(96, 160, generator=draw)
    rows = torch.randn(num_rows, 96, generator=draw)
    residual = torch.randn(num_rows, 160, generator=draw)

    plain, packed = PlainProjection(weight), PackedProjection(weight)

    assert (packed(rows) - plain(rows)).abs().max() < 1e-4
    added = packed.add_to(residual.clone(), rows)
    assert (added - plain.add_to(residual.clone(), rows)).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_than_fp32_are_multiplied_plainly(dtype):
    weight = torch.randn(8, 4).to(dtype)

    product = projection(weight)

    assert isinstance(product, PlainProjection)
    assert product(torch.ones(3, 8, dtype=dtype)).dtype == dtype
