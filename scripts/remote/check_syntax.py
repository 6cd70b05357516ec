"""Checks that a Python file can be compiled by this node's Python: check_syntax.py FILE"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as source:
    try:
        compile(source.read(), sys.argv[1], "exec")
    except SyntaxError as error:
        print(f"{sys.argv[1]}, line {error.lineno}: {error.msg} (Python {sys.version.split()[0]})", file=sys.stderr)
        sys.exit(1)
print(json.dumps({"changed": False, "python": sys.version.split()[0]}))
