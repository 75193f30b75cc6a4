"""What the tests of pages get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.show.inspection.browser import Browser, find_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; a test without one is skipped."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on the PATH: the page is not tested (apt install chromium, or set TFMINI_CHROMIUM)")
    started = Browser(path, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
