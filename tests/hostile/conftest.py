"""The world that all hostile inputs are made from."""

from collections.abc import Iterator

import pytest
from worlds import World, a_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(tmp_path_factory.mktemp("hostile")) as world:
        yield world
