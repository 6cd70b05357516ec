"""Known causes of failures, found by what a log says. The table is signatures.json, beside this file.

Run by itself it explains the log on stdin.
"""

import json
import re
import sys

from files import text_of

# Characters of a matching line that are shown: some lines hold all the engine's arguments.
SHOWN = 300

# ASCII, so that \w and \d mean what they mean in the tests' JavaScript.
TABLE = [(row, re.compile(row["pattern"], re.ASCII)) for row in json.loads(text_of("signatures.json"))]


def filled(text, groups):
    """The text with {0}, {1}… replaced by what the pattern caught."""
    return re.sub(r"\{(\d)\}", lambda place: groups[int(place[1])] or "?", text)


def line_of(log, match):
    """The line, or the lines, that a match lies in, as one."""
    start = max(log.rfind("\n", 0, match.start()), log.rfind("\r", 0, match.start())) + 1
    end = re.compile(r"[^\r\n]*").match(log, match.end()).end()
    if end - start > SHOWN:
        start = match.start()
    return " ".join(log[start:end].split())[:SHOWN]


def explain(log):
    """What is known of the errors in a log: (code, cause, cure, matching line), the root cause first, three at most.
    Nothing is told twice: not of a place that an earlier row has told of, nor by an error that only reports others."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log or "")
    found = []
    for row, pattern in TABLE:
        match = pattern.search(text)
        if match and not any(other.start() <= match.start() < other.end() for _, other in found):
            found.append((row, match))
    causes = [each for each in found if not each[0].get("consequence")]
    return [
        (row["code"], filled(row["cause"], match.groups()), filled(row["cure"], match.groups()), line_of(text, match))
        for row, match in (causes or found)[:3]
    ]


def render(found):
    """What `explain` found, for people, each with an empty line after it."""
    return "".join(f"cause: {cause} ({code})\n  seen: {line}\n  mend: {cure}\n\n" for code, cause, cure, line in found)


if __name__ == "__main__":
    print(render(explain(sys.stdin.buffer.read().decode("utf-8", "replace"))), end="")
