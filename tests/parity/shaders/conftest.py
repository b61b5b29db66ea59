"""Tests of kernels are watched by the validation layers, each by itself."""

import pytest


@pytest.fixture(autouse=True)
def _watched(quiet: None) -> None:
    """Fail a test whose dispatches the layers complain of."""
