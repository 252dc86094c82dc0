import resource

import pytest
from world import World


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="10,000 half-open handshakes, and every byte that is cut")


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("authorities"))


@pytest.fixture(scope="session", autouse=True)
def files():
    """As many open files as the system allows; the servers take it over."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def pytest_terminal_summary(terminalreporter):
    """What was measured."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
