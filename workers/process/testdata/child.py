#!/usr/bin/python3
"""A child for tests: it speaks the protocol of docs/process.md by itself.

What it does is in MODE and in the parameters of requests.
"""

import array
import json
import mmap
import os
import signal
import socket
import struct
import sys
import time

MODE = os.environ.get("MODE", "")
SOCKET = socket.socket(fileno=int(os.environ["MILLRACE_SOCKET"]))
SEGMENTS = {}
CANCELED = set()
STATE = {}


def receive(n):
    """Return n bytes and the descriptor that came with the first, or None."""
    data, fds = bytearray(), None
    while len(data) < n:
        part, ancillary, _, _ = SOCKET.recvmsg(n - len(data), socket.CMSG_SPACE(4))
        if not part:
            sys.exit(0)
        data += part
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i", content[:4])[0]
    return bytes(data), fds


def message():
    head, fd = receive(8)
    text, data = struct.unpack("<II", head)
    return json.loads(receive(text)[0]), receive(data)[0] if data else b"", fd


def send(of, data=b""):
    text = json.dumps(of).encode()
    SOCKET.sendall(struct.pack("<II", len(text), len(data)) + text + data)


def at(place, data):
    """Return the bytes of a place."""
    if "at" in place:
        return data[place["at"]:place["at"] + place["size"]]
    return bytes(SEGMENTS[place["segment"]][place["offset"]:place["offset"] + place["size"]])


def describe():
    tensor = [{"name": "x", "datatype": "FP32", "shape": [4]}]
    if MODE == "changes" and not os.path.exists(os.environ["ONCE"]):
        open(os.environ["ONCE"], "w").close()
        return {"type": "model", "inputs": tensor, "outputs": [dict(tensor[0], name="z")], "max_batch": 8, "batch": True}
    if MODE == "any":
        return {"type": "model", "any": True, "max_batch": 4, "decoupled": True,
                "app": {"style": "millrace", "routes": [{"method": "POST", "path": "/infer", "endpoint": "infer"}], "extra": {"n": 1}}}
    if MODE == "begins":
        return {"type": "model", "inputs": tensor, "outputs": [dict(tensor[0], name="y")], "max_batch": 8, "batch": True, "begins": True}
    if MODE == "pictures":
        return {"type": "model", "max_batch": 4, "image": {}}
    if MODE == "stateful":
        return {"type": "model", "inputs": tensor, "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}],
                "max_batch": 8, "batch": True, "stateful": True}
    if MODE == "wide":  # 300 KB
        tensor = [{"name": "x", "datatype": "FP32", "shape": [76800]}]
    if MODE == "free":
        tensor = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    if MODE == "large":  # 256 KB from 16 bytes
        return {"type": "model", "inputs": tensor, "outputs": [{"name": "y", "datatype": "FP32", "shape": [65536]}], "max_batch": 2, "batch": True}
    return {"type": "model", "inputs": tensor, "outputs": [dict(tensor[0], name="y")], "max_batch": 8, "batch": True}


class Results:
    """Where outputs are written: shared memory as far as they fit, then the bytes after the text."""

    def __init__(self, place):
        self.place, self.used, self.data = place, 64 * (MODE == "begins"), b""

    def put(self, content):
        start = (self.used + 63) // 64 * 64
        if self.place and start + len(content) <= self.place["size"]:
            begin = self.place["offset"] + start
            SEGMENTS[self.place["segment"]][begin:begin + len(content)] = content
            self.used = start + len(content)
            return {"segment": self.place["segment"], "offset": begin, "size": len(content)}
        begin = len(self.data)
        self.data += content
        return {"at": begin, "size": len(content)}


def files():
    """Return what the descriptors are, without those of mapped memory."""
    out = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            link = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:  # with which the folder is listed
            continue
        if "memfd" not in link:
            out.append(link.split(":")[0])
    return out


def do(what, batch):
    """Misbehave as a parameter of a request asks for."""
    if what and what.startswith(("hang", "sleep", "wait", "part")):
        print("begins", what, flush=True)
    if what and what.startswith("wait"):  # for a file
        while not os.path.exists(what.partition(":")[2]):
            time.sleep(0.005)
        if what.startswith("wait and"):
            time.sleep(0.1)  # in which the next batch comes
    if what == "exit":
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(3)
    elif what and what.startswith("wait and exit:"):
        os._exit(3)
    elif what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "abort if 13":  # input that ends the program
        for t in batch.get("inputs", []):
            if struct.unpack("<f", at(t, b"")[:4])[0] == 13:
                os.abort()
        for i in range(len(batch["requests"])):
            if "inputs" in batch and struct.unpack_from("<f", at(batch["inputs"][0], b""), 16 * i)[0] == 13:
                os.abort()
    elif what == "once":  # hangs in the first process only
        if not os.path.exists(os.environ["ONCE"]):
            open(os.environ["ONCE"], "w").close()
            time.sleep(1000)
    elif what == "half":  # of a result
        text = json.dumps({"type": "result", "id": batch["id"], "requests": []}).encode()
        SOCKET.sendall((struct.pack("<II", len(text), 1000) + text + b"half")[:8 + int(os.environ["HALF"])])
        os._exit(5)
    elif what == "bytes":  # that are not strings
        rows = len(batch["requests"])
        send({"type": "result", "id": batch["id"], "requests": [
            {"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1], "at": 0, "size": 8}]} for r in batch["requests"]]}, b"\xff\xff\xff\xffabcd")
        return True
    elif what == "grow":
        STATE["memory"] = b"x" * (200 << 20)
    elif what in ("kill", "terminate"):
        os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGTERM)
    elif what == "status 143":
        os._exit(143)
    elif what == "hang":
        time.sleep(1000)
    elif what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    elif what == "close":
        SOCKET.close()
        time.sleep(1000)
    elif what == "fork":
        if os.fork() == 0:
            os.setsid()
            time.sleep(3)
            os._exit(0)
        os._exit(4)
    elif what == "print":
        for i in range(20):
            print("garbage", i)
        sys.stdout.flush()
    elif what == "gigabyte":
        text = json.dumps({"type": "result", "id": batch["id"], "requests": []}).encode()
        SOCKET.sendall(struct.pack("<II", len(text), 1 << 30) + text)
        time.sleep(1000)
    elif what in ("part and count", "part and sleep"):
        send({"type": "part", "id": batch["id"], "request": 0, "outputs": [{"name": "i", "datatype": "INT64", "shape": [1], "at": 0, "size": 8}]}, bytes(8))
        if what == "part and sleep":
            time.sleep(1000)
        send({"type": "result", "id": batch["id"], "requests": []})
        return True
    elif what == "count":
        send({"type": "result", "id": batch["id"], "requests": []})
        return True
    elif what == "type":
        send({"type": "result", "id": batch["id"], "outputs": [{"name": "y", "datatype": "FP32", "shape": "many", "at": 0, "size": 4}]})
        return True
    elif what == "size" or what and what.startswith("wait and size:"):
        rows = sum(r["rows"] for r in batch["requests"])
        send({"type": "result", "id": batch["id"],
              "outputs": [{"name": "y", "datatype": "FP32", "shape": [rows, 4], "at": 0, "size": 4}]}, b"1234")
        return True
    elif what == "place":
        rows = sum(r["rows"] for r in batch["requests"])
        send({"type": "result", "id": batch["id"],
              "outputs": [{"name": "y", "datatype": "FP32", "shape": [rows, 4], "segment": 1 << 40, "offset": 1 << 50, "size": 16 * rows}]})
        return True
    elif what in ("same", "beside"):  # the place of an input, and the row after it
        rows, x = sum(r["rows"] for r in batch["requests"]), batch["inputs"][0]
        send({"type": "result", "id": batch["id"], "outputs": [{"name": "y", "datatype": "FP32", "shape": [rows, 4], "segment": x["segment"],
              "offset": x["offset"] + 16 * (what == "beside"), "size": 16 * rows}]})
        return True
    elif what == "whole":  # the place of the input
        x = batch["inputs"][0]
        send({"type": "result", "id": batch["id"], "outputs": [dict(x, name="y")]})
        return True
    elif what in ("unasked", "failed"):
        send({"type": {"unasked": "ready"}.get(what, what)})
        time.sleep(1000)
    elif what == "id":
        send({"type": "result", "id": batch["id"] + 7, "requests": []})
        return True
    elif what == "garbage":
        SOCKET.sendall(b"Traceback (most recent call last):\n")
        time.sleep(1000)
    elif what == "json":
        SOCKET.sendall(struct.pack("<II", 5, 0) + b"{nop}")
        time.sleep(1000)
    elif what and what.startswith("decode "):
        send(dict({"type": "decode", "id": batch["id"], "request": 0}, **json.loads(what.partition(" ")[2])), b"no picture")
        time.sleep(1000)
    elif what == "begun":
        send({"type": "begun", "id": batch["id"]})
    elif what == "member":
        send({"type": "result", "id": batch["id"], "requests": [{"answer": 1}]})
        return True
    elif what == "until canceled":
        while True:
            m = message()[0]
            if m["type"] == "cancel":
                print("canceled", m["request"], flush=True)
                break
    elif what and what.startswith("sleep:"):
        time.sleep(float(what[6:]))
    return False


def begin(batch, what):
    """Say that the batch has begun, or end before or after it."""
    if what == "end before it" and not os.path.exists(os.environ["ONCE"]):
        open(os.environ["ONCE"], "w").close()
        os._exit(3)
    number = batch["id"] + (what == "wrong id")
    place = batch.get("results")
    if place and what != "wrong id":
        SEGMENTS[place["segment"]][place["offset"]:place["offset"] + 8] = struct.pack("<Q", number)
    else:
        send({"type": "begun", "id": number})
    if what == "end after it":
        os._exit(3)


def run(batch, data):
    requests = batch["requests"]
    if MODE == "begins":
        begin(batch, requests[0].get("parameters", {}).get("do"))
    for k, r in enumerate(requests):
        if do(r.get("parameters", {}).get("do"), batch):
            return
    results, spans = Results(batch.get("results")), []
    if MODE in ("", "free", "wide", "large", "changes", "begins") and "inputs" in batch:  # dense: the identity
        out, x = {"name": "y", "datatype": "FP32", "shape": batch["inputs"][0]["shape"]}, at(batch["inputs"][0], data)
        if MODE == "large":
            out["shape"] = [out["shape"][0], 65536]
            x = b"".join(x[i:i + 4] * 65536 for i in range(0, len(x), 16))
        out.update(results.put(x))
        answer = {"outputs": [out]}
        failing = [r.get("parameters", {}).get("fail") for r in requests]
        if any(failing):
            answer["requests"] = [{"error": {"code": "invalid_argument", "message": f, "traceback": "where"}} if f else {} for f in failing]
        send(dict(answer, type="result", id=batch["id"]), results.data)
        return
    if MODE == "stateful":
        answers = []
        for r in requests:
            if r.get("new"):
                STATE[r["stream"]] = 0
            STATE[r["stream"]] += 1
            out = {"name": "y", "datatype": "INT64", "shape": [1, 1]}
            out.update(results.put(struct.pack("<q", STATE[r["stream"]])))
            answers.append({"outputs": [out]})
        send({"type": "result", "id": batch["id"], "requests": answers}, results.data)
        return
    answers = []
    for k, r in enumerate(requests):
        if "call" in r:
            body = json.dumps(r["call"]).encode() + at(r["payload"], data)
            out = {"name": "body", "datatype": "BYTES", "shape": [1]}
            out.update(results.put(struct.pack("<I", len(body)) + body))
            answers.append({"outputs": [out], "reply": {"status": 201, "content_type": "text/x", "header": {"x-a": "b"}}})
            continue
        if r.get("parameters", {}).get("report"):
            text = json.dumps({"env": dict(os.environ), "cores": sorted(os.sched_getaffinity(0)), "dir": os.getcwd(), "pid": os.getpid(),
                               "files": files(), "request": r}).encode()
            answers.append({"outputs": [dict({"name": "report", "datatype": "BYTES", "shape": [1]}, **results.put(struct.pack("<I", len(text)) + text))]})
            continue
        if r.get("parameters", {}).get("side"):  # of the picture in the payload, which the server decodes
            side = r["parameters"]["side"]
            send({"type": "decode", "id": batch["id"], "request": k, "width": side, "height": side, "color": "GRAY"}, at(r["payload"], data))
            while (said := message())[0]["type"] != "decoded":
                SEGMENTS[said[0]["id"]] = None
            pixels = dict({"name": "pixels", "datatype": "UINT8"}, shape=said[0].get("shape"), **results.put(said[1]))
            answers.append({"outputs": [pixels]} if "error" not in said[0] else {"error": said[0]["error"]})
            continue
        parts = r.get("parameters", {}).get("parts", 0)
        for i in range(parts):
            send({"type": "part", "id": batch["id"], "request": k,
                  "outputs": [{"name": "i", "datatype": "INT64", "shape": [1], "at": 0, "size": 8}]}, struct.pack("<q", i))
        if parts:
            answers.append({})
            continue
        outputs = []
        for t in r.get("inputs", []):
            out = {"name": t["name"], "datatype": t["datatype"], "shape": t["shape"]}
            out.update(results.put(at(t, data)))
            outputs.append(out)
        if "payload" in r:
            payload = at(r["payload"], data)
            out = {"name": "payload", "datatype": "BYTES", "shape": [1]}
            out.update(results.put(struct.pack("<I", len(payload)) + payload))
            outputs.append(out)
        answers.append({"outputs": outputs, "parameters": {"n": len(requests), "codec": r.get("codec", "")}})
    send({"type": "result", "id": batch["id"], "requests": answers,
          "spans": [{"name": "work", "start_us": 0, "end_us": 5, "request": 0}], "memory": 1}, results.data)


def main():
    if MODE == "mute":
        time.sleep(1000)
    if MODE == "speaks garbage":
        SOCKET.sendall(b"Hello, world! This is not the protocol.\n")
        time.sleep(1000)
    if MODE == "exits":
        sys.exit("no reason")
    while True:
        m, data, fd = message()
        kind = m["type"]
        if kind == "hello":
            if MODE == "raises" or MODE == "refuses later" and os.path.exists(os.environ["ONCE"]):
                send({"type": "failed", "message": "ModuleNotFoundError: No module named 'nothing'",
                      "traceback": "Traceback (most recent call last):\n  File \"service.py\", line 3"})
                if MODE == "refuses later":
                    os._exit(1)
                continue
            send(describe())
        elif kind == "setup":
            if MODE == "slow setup":
                time.sleep(1000)
            send({"type": "log", "level": "info", "message": "set up"})
            send({"type": "ready"})
        elif kind == "segment":
            SEGMENTS[m["id"]] = mmap.mmap(fd, m["size"], mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if m["writable"] else 0))
            os.close(fd)
        elif kind == "drop_segment":
            del SEGMENTS[m["id"]]
        elif kind == "batch":
            run(m, data)
        elif kind == "cancel":
            CANCELED.add((m["id"], m["request"]))
            print("canceled", m["request"])
            sys.stdout.flush()
        elif kind == "release":
            for s in m["streams"]:
                del STATE[s]
                print("released", s)
            sys.stdout.flush()
        elif kind == "check":
            send({"type": "checked", "ok": not os.path.exists(os.environ.get("UNHEALTHY", "/nonexistent")), "message": "unhealthy"})
        elif kind == "close":
            if MODE == "slow close":
                print("closing", flush=True)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(1000)
            sys.exit(0)


main()
