"""The address of a cluster is looked at before anything else."""

import pytest

from glue_bench.errors import UserError
from glue_bench.sweep.options import RunOptions


@pytest.mark.parametrize("address", ["auto", "head:6379", "10.0.0.1:1", "[::1]:65535"])
def test_addresses(address):
    assert RunOptions(address=address).side_by_side


@pytest.mark.parametrize(
    "address",
    ["", "head", "localhost:99999", "head:0", ":6379", "head:", "head:6379x", "ray://head:10001", "h:" + "1" * 9999],
)
def test_what_is_no_address(address):
    with pytest.raises(UserError, match=r"^--address is `auto` or HOST:PORT with a port from 1 to 65535, not '"):
        RunOptions(address=address)
