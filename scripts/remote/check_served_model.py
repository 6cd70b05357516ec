"""Checks that the server names the model: check_served_model.py CONTAINER PORT MODEL"""

import json
import sys

from containers import fail
from server_api import Api

container, port, model = sys.argv[1:]
models = Api(container, port).models()
if models is None:
    fail(f"/v1/models on port {port} does not answer: docker logs {container}")
if model not in models:
    fail(f"/v1/models names {', '.join(models) or 'no model'}, not {model}")
print(json.dumps({"changed": False, "models": models}))
