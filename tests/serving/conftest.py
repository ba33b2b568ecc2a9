"""Machines that tests of random deployments choose from, drawn before the first of these tests."""

import pytest

from tests.serving.drawn import listed_machines


@pytest.fixture(scope="session")
def machine_list():
    """Draw the list of machines: a random test cannot, as one test of Hypothesis may not run another."""
    listed_machines()
