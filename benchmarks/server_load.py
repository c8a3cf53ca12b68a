"""Many clients at once: ``python benchmarks/server_load.py`` loads ``zenith-ae serve`` for five minutes.

64 clients send small pictures to /denoise, /encode and /decode as fast as they are answered. Each answer
is checked: it is the same picture or the same latents as the first one to that request. Printed are
requests per second, what failed, and the server's resident memory along the way, which must not grow.
``--url`` loads a server that runs already (its memory is not seen then).
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np
from PIL import Image


@dataclass
class Load:
    """What a run gave.

    Attributes
    ----------
    answers : count of each (path, status).
    wrong : a line for each answer that was not what it should be.
    memory : (seconds since the start, bytes resident), if the server's process is known.
    """

    seconds: float = 0.0
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def done(self) -> int:
        return sum(count for (_, status), count in self.answers.items() if status == 200)

    def memory_at(self, share: float) -> int:
        """Resident bytes at this share of the run; 0 where unknown."""
        near = min(self.memory, key=lambda entry: abs(entry[0] - share * self.seconds), default=(0.0, 0))
        return near[1]


def requests(side: int) -> list[tuple[str, bytes]]:
    """(path, body) of what the clients send; bodies of /decode are made by the server first."""
    rng = np.random.default_rng(0)
    found = []
    for height, width in ((side, side), (side * 3 // 4, side), (side // 2 + 3, side // 2 - 3)):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(60, 200, (height, width, 3), np.uint8)).save(buffer, "PNG")
        found += [("/denoise", buffer.getvalue()), ("/encode?model=zenith-taef2-nano", buffer.getvalue())]
    return found


def run(
    host: str,
    port: int,
    clients: int,
    seconds: float,
    side: int = 64,
    pid: int | None = None,
    paths: tuple[str, ...] = ("/denoise", "/encode", "/decode"),
) -> Load:
    """Load a server; every client is a thread with a connection of its own."""
    load, lock, stop = Load(), threading.Lock(), threading.Event()
    todo = [(path, body) for path, body in requests(side) if path.startswith(paths)]
    first: dict[int, bytes] = {}
    for number, (path, body) in enumerate(list(todo)):
        status, answer = post(http.client.HTTPConnection(host, port, timeout=300), path, body)
        if status != 200:
            raise SystemExit(f"{path}: status {status}: {answer[:200]!r}")
        first[number] = answer
        if path.startswith("/encode"):
            todo.append(("/decode", answer))
    start = time.monotonic()

    def client(number: int) -> None:
        turn = number
        connection = http.client.HTTPConnection(host, port, timeout=300)
        while not stop.is_set():
            turn = (turn + 1) % len(todo)
            path, body = todo[turn]
            try:
                status, answer = post(connection, path, body)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                with lock:
                    load.answers[path, 0] += 1
                    load.wrong.append(f"{path}: {type(error).__name__}: {error}")
                continue
            with lock:
                load.answers[path, status] += 1
                if status == 200 and first.setdefault(turn, answer) != answer:
                    load.wrong.append(f"{path}: another answer than before")
                elif status not in (200, 503):
                    load.wrong.append(f"{path}: status {status}: {answer[:200]!r}")
            if status == 503:
                stop.wait(0.05)  # as a client with manners would, only less patient
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while (passed := time.monotonic() - start) < seconds:
        if pid is not None:
            load.memory.append((passed, resident(pid)))
        time.sleep(min(1.0, max(seconds - passed, 0.01)))
    stop.set()
    for thread in threads:
        thread.join()
    load.seconds = time.monotonic() - start
    if pid is not None:
        load.memory.append((load.seconds, resident(pid)))
    return load


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body)
    response = connection.getresponse()
    return response.status, response.read()


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 where the system does not tell (Linux does)."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def server(*options: str) -> tuple[subprocess.Popen[str], str, int]:
    """A ``zenith-ae serve`` on a free port: (process, host, port), once it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "zenith_ae", "serve", "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    if "http://" not in line:
        raise SystemExit(f"no server: {line}{process.stderr.read()}")
    where = urlsplit(line.split()[1])
    return process, str(where.hostname), int(where.port or 80)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--side", type=int, default=64, help="pixels of the largest picture's side")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*", help="of zenith-ae serve, after --")
    arguments = parser.parse_args()
    process = None
    if arguments.url:
        where = urlsplit(arguments.url)
        host, port = str(where.hostname), int(where.port or 80)
    else:
        process, host, port = server("--queue", str(arguments.clients), *arguments.options)
    try:
        load = run(
            host, port, arguments.clients, arguments.seconds, arguments.side, process.pid if process else None
        )
    finally:
        if process:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    found = {
        "clients": arguments.clients,
        "seconds": round(load.seconds, 1),
        "requests": load.done,
        "requests_per_second": round(load.done / load.seconds, 1),
        "turned_away": sum(n for (_, status), n in load.answers.items() if status == 503),
        "failures": len(load.wrong),
        "memory_mib": [round(load.memory_at(share) / 2**20) for share in (0.1, 0.5, 1.0)],
    }
    if arguments.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key.replace('_', ' '):<20} {value}")
        print("\n".join(load.wrong[:10]))
    return 1 if load.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
