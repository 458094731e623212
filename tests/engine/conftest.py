"""An engine of the fakes, and the thread that steps it."""

import pytest

from edgeinfer.engine.driver import Driver
from tests.engine.fakes import make_engine


@pytest.fixture
def engine():
    return make_engine(n_pages=64)


@pytest.fixture
def driver(engine):
    driver = Driver(engine)
    yield driver
    if engine.executable.gate is not None:
        engine.executable.gate.set()
    driver.close()
