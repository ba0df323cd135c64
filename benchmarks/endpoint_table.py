"""The endpoint beside vLLM's own server and LiteLLM's proxy: CPU and latency of a request.

    python benchmarks/endpoint_table.py [--vllm PYTHON] [--litellm PROGRAM] [--requests 100]

Same model, same chats of 500 to 900 tokens (words and length by number), one new token,
log-probabilities on. All servers are up at the same time and are asked in turns; a number is the
median of the rounds. CPU is that of the
server's processes, the client apart. PYTHON is the interpreter of an environment with vLLM
(docs/how-to/use-vllm.md), PROGRAM is ``litellm`` of one with ``litellm[proxy]``; without them their
rows are absent. LiteLLM answers by itself (``mock_response``), our first row by a scripted engine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from endpoint_peers import LiteLLM, Ours, Peer, VLLMServer
from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 3
WAYS = {  # what is asked: fields of the body, connections
    "one after the other": ({}, 1),
    "streamed": ({"stream": True}, 1),
    "32 at once": ({}, 32),
}
RUNS, TURNS = 256, 8


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--litellm", metavar="PROGRAM")
    parser.add_argument("--requests", type=int, default=96)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = make_tiny_model(
            Path(name, "model"), vocab=1024, hidden=128, layers=2, max_positions=8192
        )
        peers = [stack.enter_context(peer) for peer in chosen(options, folder)]
        print("| server | asked | CPU ms, front | CPU ms, all | ms, median | ms, 95 % |")
        print("|---|---|---|---|---|---|")
        for way, (fields, connections) in WAYS.items():
            for line in compared(peers, way, fields, connections, options.requests):
                print(line, flush=True)
        for line in many_runs(peers[0]):
            print(line)


def chosen(options: argparse.Namespace, folder: Path) -> Iterator[Peer]:
    """Give the servers that can be started here."""
    yield Ours("ours, scripted engine", folder, python=sys.executable, engine="scripted")
    if options.vllm:
        yield Ours("ours, vLLM in its process", folder, python=options.vllm, engine="vllm")
        yield VLLMServer("vLLM's server", folder, python=options.vllm)
    if options.litellm:
        yield LiteLLM("LiteLLM's proxy, mock reply", folder, program=options.litellm)


def compared(
    peers: list[Peer], way: str, fields: dict[str, object], connections: int, requests: int
) -> list[str]:
    """Return a line for each server."""
    rows: dict[str, list[tuple[float, ...]]] = {peer.name: [] for peer in peers}
    for number in range(ROUNDS + 1):
        for peer in peers:
            each = -(-requests // connections)
            found = peer.load(
                runs=connections, conversations=each, turns=1, fields=ONE_TOKEN | fields
            )
            if number:  # the first warms up
                rows[peer.name].append(found.row)
    lines = []
    for name, found_rows in rows.items():
        medians = [statistics.median(column) for column in zip(*found_rows, strict=True)]
        lines.append(f"| {name} | {way} | " + " | ".join(f"{one:.2f}" for one in medians) + " |")
    return lines


ONE_TOKEN = {"max_tokens": 1, "logprobs": True, "temperature": 1.0}
REPLY = {"max_tokens": 64, "temperature": 1.0}


def many_runs(ours: Peer) -> Iterator[str]:
    """Give what many runs at once cost beside one, and what recording costs."""
    assert isinstance(ours, Ours)
    one, held_kb = [], []
    for _ in range(ROUNDS + 1):
        talk = ours.load(runs=1, conversations=8, turns=TURNS, fields=REPLY)
        one.append(talk.cpu_ms)
        held_kb.append(ours.closed["held_kb"])
    alone = statistics.median(one[1:])
    many = ours.load(runs=RUNS, conversations=1, turns=TURNS, fields=REPLY)
    yield ""
    yield (
        f"{RUNS} runs of {TURNS} turns at once: {len(many.failed)} errors, "
        f"{sum(ours.closed['recorded'])} of {RUNS * TURNS} exchanges recorded, "
        f"{ours.closed['foreign']} of another run; {many.cpu_ms:.2f} CPU ms a request, "
        f"{many.cpu_ms / alone:.2f} x of one run ({alone:.2f}); "
        f"{(ours.closed['held_kb'] - held_kb[-1]) / RUNS:.0f} kB more memory a run, connections "
        f"included; making an experience of an exchange: {ours.closed['extracted_ms']:.3f} CPU ms"
    )
    yield from recording(ours)


def recording(ours: Ours) -> Iterator[str]:
    """Give what recording an exchange costs, extraction included: with it and without, in turns."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(4 * ROUNDS):
        for records, found_ms in spent.items():
            found = ours.load(runs=1, conversations=64, turns=1, fields=ONE_TOKEN, records=records)
            found_ms.append(found.cpu_ms)
    pairs = list(zip(*spent.values(), strict=True))
    differences = sorted(with_it - without for with_it, without in pairs)
    low, high = differences[len(pairs) // 4], differences[-len(pairs) // 4]
    yield (
        f"recording, extraction included: {statistics.median(differences):.2f} CPU ms an exchange "
        f"(half of {len(pairs)} pairs between {low:.2f} and {high:.2f}; "
        f"{statistics.median(spent[True]):.2f} with it)"
    )


if __name__ == "__main__":
    main()
