"""What a start can fail with beyond the errors of clusters."""

from __future__ import annotations

from heronpy.common.errors import HeronError


class ReportedError(HeronError):
    """One with a report, such as the end of a log, that belongs before its sentence."""

    def __init__(self, text: str, report: str) -> None:
        super().__init__(text)
        self.report = report
