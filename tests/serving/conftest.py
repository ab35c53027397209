"""A server of a tiny model, for the tests that leave it as it is."""

import pytest
import served


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    return served.save_run(tmp_path_factory.mktemp("served") / "run")


@pytest.fixture(scope="session")
def server(run_folder):
    server = served.Server(run_folder, "--body_mb", 1, "--megapixels", 0.02)
    yield server
    server.process.kill()
    server.process.communicate()
