"""The world that all hostile inputs are made from."""

from collections.abc import Iterator
from random import Random

import pytest
from inputs import GENERATORS
from oracle import judge
from worlds import World, a_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(tmp_path_factory.mktemp("hostile")) as world:
        judge(*GENERATORS["experiments"](world, Random(0)))  # the first one imports torch and transformers
        yield world
