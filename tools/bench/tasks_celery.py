"""The task of the rows beside Celery, and the clients: tasks_celery.py celery|ADDRESS CLIENTS SECONDS.

Prints the tasks a second, and the median time of a task in milliseconds.
"""

import http.client
import json
import os
import statistics
import sys
import threading
import time

if "BROKER" in os.environ:
    from celery import Celery

    app = Celery("tasks_celery", broker=os.environ["BROKER"] + "/0", backend=os.environ["BROKER"] + "/1")
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, broker_pool_limit=None)

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


def main():
    where, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    took, failed = [], []
    end = time.monotonic() + seconds

    def client():
        try:
            one = of_celery() if where == "celery" else of_millrace(where)
            while time.monotonic() < end:
                began = time.monotonic()
                one()
                took.append(time.monotonic() - began)
        except BaseException as e:
            failed.append(e)
            raise

    began = time.monotonic()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        sys.exit("%d clients failed: %r" % (len(failed), failed[0]))
    print(len(took) / (time.monotonic() - began), 1000 * statistics.median(took))


if __name__ == "__main__":
    main()
