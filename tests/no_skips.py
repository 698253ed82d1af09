"""For runs that may leave nothing out (`pytest -p tests.no_skips`): a skipped test or file has failed."""

from __future__ import annotations

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return unskipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return unskipped((yield))


def unskipped(report):
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here: {report.longrepr[-1]}"
    return report
