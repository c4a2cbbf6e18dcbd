"""The task of the rows beside Celery, and the clients: tasks_celery.py celery|ADDRESS CLIENTS SECONDS.

Prints the tasks a second, and the median time of a task in milliseconds.
"""

import http.client
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time

if "BROKER" in os.environ:
    from celery import Celery

    app = Celery("tasks_celery", broker=os.environ["BROKER"] + "/0", backend=os.environ["BROKER"] + "/1")
    app.conf.update(task_acks_late=True, broker_pool_limit=None)

    @app.task(name="nothing")
    def nothing(n):
        return n


class Nothing:
    """The same task as a service."""

    def infer(self, n: int) -> int:
        return n


def of_celery():
    def one():
        assert nothing.delay(7).get(timeout=60) == 7

    return one


def of_millrace(address):
    connection = http.client.HTTPConnection(address, timeout=60)

    def call(method, path, body=None):
        connection.request(method, "/v2/tasks" + path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status // 100 == 2, (answer.status, text)
        return json.loads(text)

    request = json.dumps({"inputs": [{"name": "n", "datatype": "INT64", "shape": [1], "data": [7]}]})

    def one():
        task = call("POST", "?model=nothing", request)
        task = call("GET", "/%s?wait=60s" % task["id"])
        assert task["state"] == "finished", task
        answer = call("GET", "/%s/result" % task["id"])
        assert answer["outputs"][0]["data"] == [7], answer

    return one


def client(where, seconds, begin, answers):
    """Runs tasks for some seconds, and sends the time of each, or what has failed."""
    took = []
    try:
        one = of_celery() if where == "celery" else of_millrace(where)
        begin.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            one()
            took.append(time.monotonic() - began)
        answers.put((took, ""))
    except BaseException as e:
        begin.abort()
        answers.put((took, repr(e)))


def main():
    where, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    # A process for each client: threads of one process that wait for results of Celery delay each other by a second.
    fork = multiprocessing.get_context("fork")
    begin, answers = fork.Barrier(clients + 1), fork.Queue()
    all = [fork.Process(target=client, args=(where, seconds, begin, answers)) for _ in range(clients)]
    for p in all:
        p.start()
    try:
        begin.wait()
    except threading.BrokenBarrierError:
        pass  # a client has failed
    began = time.monotonic()
    ended = [answers.get() for _ in all]
    took = [t for times, _ in ended for t in times]
    spent = time.monotonic() - began
    for p in all:
        p.join()
    failed = [why for _, why in ended if why]
    if failed:
        sys.exit("%d clients failed: %s" % (len(failed), failed[0]))
    print(len(took) / spent, 1000 * statistics.median(took))


if __name__ == "__main__":
    main()
