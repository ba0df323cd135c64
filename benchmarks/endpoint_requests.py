"""What a request costs our endpoint: CPU milliseconds of its whole process, client apart.

    python benchmarks/endpoint_requests.py [--requests 600]

Each request is a chat of 500 to 900 tokens, of other words each, that is answered by one token of a
scripted engine, with log-probabilities: HTTP, JSON, chat template, tokenising, recording and
extraction are counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace

from trinity.common.models.model import ModelWrapper
from trinity.common.ports import RunKey
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over, script_chat_format

CLIENT = """
WORDS = 200, 360  # about 500 to 900 tokens of the script's tokenizer
import http.client, json, random, sys
host, key, count, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
connection = http.client.HTTPConnection(host)
for number in range(count):
    drawn = random.Random(f"{first} {number}")
    words = "go to the kitchen and open a door north of it where you see two warm chairs".split()
    text = f"{first} {number} " + " ".join(drawn.choices(words, k=drawn.randint(*WORDS)))
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}],
            "max_tokens": 1, "logprobs": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Authorization": "Bearer " + key})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
"""
PER_RUN = 50


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=600)
    num_requests = parser.parse_args().requests
    room, engine = EndpointHost(), ScriptedEngine("", repeat=True)
    settings = replace(model_over(engine).settings, enable_history=False)
    spent, num_tokens = 0.0, 0
    for run in range(1 + num_requests // PER_RUN):  # the first warms up
        key = RunKey(run=run)
        model = ModelWrapper(engine, script_chat_format(), settings, key=key, endpoints=room)
        endpoint = model.endpoint()
        host = endpoint.base_url.split("/")[2]
        began = time.process_time()
        arguments = [host, endpoint.key, str(PER_RUN), str(run)]
        subprocess.run([sys.executable, "-c", CLIENT, *arguments], check=True)
        experiences = model.extract_experience_from_history()
        model.end_run()
        assert len(experiences) == PER_RUN
        num_tokens = sum(one.prompt_length for one in experiences) // PER_RUN
        if run:
            spent += time.process_time() - began
    room.close()
    each_ms = 1000 * spent / (num_requests // PER_RUN * PER_RUN)
    print(json.dumps({"cpu_ms_per_request": round(each_ms, 2), "prompt_tokens": num_tokens}))


if __name__ == "__main__":
    main()
