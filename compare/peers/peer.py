"""Locks of Python libraries, measured like the others: jobs as lines of JSON on stdin, answers on stdout."""

import json
import sys
import threading
import time

import redis

TTL_S = 30
now = time.monotonic_ns


def say(value):
    print(json.dumps(value), flush=True)


def gate():
    say({"ready": True})
    if sys.stdin.readline().strip() != "go":
        raise SystemExit("expected go")


def maker(subject, port):
    """A function that makes a lock of a name, with `acquire` and `release`."""
    client = redis.Redis(port=port, max_connections=2000)
    if subject == "redis-py":
        return lambda name: client.lock(name, timeout=TTL_S, sleep=0.005, thread_local=False)
    if subject == "python-redis-lock":
        import redis_lock

        return lambda name: redis_lock.Lock(client, name, expire=TTL_S)
    raise ValueError(f"there is no subject {subject!r}")


def percentile(values, share):
    values = sorted(values)
    return values[round((len(values) - 1) * share)]


def pair(job):
    """One thread: acquire and release, again and again."""
    make = maker(job["subject"], job["ports"][0])
    name = job["name"] + "/0"

    def once():
        lock = make(name)
        lock.acquire()
        lock.release()

    for _ in range(100):
        once()
    gate()
    times, cpu, begun = [], time.process_time_ns(), now()
    until = begun + job["millis"] * 1_000_000
    last = begun
    while last < until:
        once()
        ended = now()
        times.append(ended - last)
        last = ended
    used, wall, count = time.process_time_ns() - cpu, now() - begun, len(times)
    return {
        "n": count,
        "per_s": count / (wall / 1e9),
        "p50_us": percentile(times, 0.5) / 1e3,
        "p99_us": percentile(times, 0.99) / 1e3,
        "client_us": used / 1e3 / count,
        "cpu_s": used / 1e9,
        "wall_s": wall / 1e9,
    }


def contend(job):
    """A thread for each waiter, all on one name."""
    make = maker(job["subject"], job["ports"][0])
    warm = make("compare/warm-up")
    if warm.acquire(blocking=False):
        warm.release()
    gate()
    cpu, begun = time.process_time_ns(), now()
    until = begun + job["millis"] * 1_000_000
    events = []

    def turns(waiter):
        mine = []
        while True:
            asked = now()
            if asked >= until:
                break
            lock = make(job["name"])
            lock.acquire()
            got = now()
            gave = now()
            lock.release()
            mine.append((waiter, asked, got, gave, 0))
        events.extend(mine)

    threads = [threading.Thread(target=turns, args=(waiter,), daemon=True) for waiter in range(job["workers"])]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + job["millis"] / 1e3 + 10
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    return {"events": events, "begun": begun, "until": until, "cpu_s": (time.process_time_ns() - cpu) / 1e9}


JOBS = {"pair": pair, "contend": contend}

for line in iter(sys.stdin.readline, ""):
    job = json.loads(line)
    try:
        say(JOBS[job["what"]](job))
    except Exception as error:  # noqa: BLE001: told to whoever conducts
        say({"error": f"{type(error).__name__}: {error}"})
