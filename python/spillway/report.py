"""What a session did, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

from ._renamed import ReportValues


class Report:
    """str() gives the text, to_dict() the values; docs/python.md names the most useful ones."""

    def __init__(self, text: str, json_text: str) -> None:
        self._text = text
        self._json = json_text

    def to_dict(self) -> dict[str, Any]:
        """The values by key. Keys that were renamed are found by their old name as well, with a DeprecationWarning."""
        values: ReportValues = json.loads(self._json, object_hook=ReportValues)
        return values

    def to_json(self) -> str:
        return self._json

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        values = self.to_dict()
        return f"<spillway.Report of {values['steps']} steps on {values['device']}>"
