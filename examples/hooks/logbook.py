#!/usr/bin/env python3
"""Writes a line about a run into an electronic logbook, by HTTP POST to FANIN_LOGBOOK."""

import json
import os
import sys
import urllib.request

about = json.load(sys.stdin)
events = about.get("events", {})
text = (f"Run {about['run']} ({about['kind']}) {about['moment']}: {about.get('reason', '')}. {events.get('built', 0)} events, "
        f"{events.get('incomplete', 0)} incomplete. {about['comment']}")
entry = json.dumps({"subject": f"Run {about['run']}", "author": about["asked_by"], "text": text}).encode()
request = urllib.request.Request(os.environ["FANIN_LOGBOOK"], entry, {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=10) as answer:
    print(answer.status, answer.reason)
