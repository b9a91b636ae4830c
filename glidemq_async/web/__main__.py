"""Writes the OpenAPI document: `python -m glidemq_async.web docs/openapi.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from glidemq_async.web.api import openapi

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(openapi(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
