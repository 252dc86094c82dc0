"""`--long` runs the tests that are marked so, too."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run what takes longer, too")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs with --long only")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    left = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)
