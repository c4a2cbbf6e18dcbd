"""A client of millrace.v1 in Python, from the published text: two streams over one connection, then a resumed one."""
import asyncio
import json
import struct
import sys

import websockets


def frame(sid, seq, payload):
    return struct.pack("<BBBBIQqHHHH", 1, 1, 0, 0, sid, seq, 1000 + seq, 0, 0, 0, 0) + payload


async def until(ws, kind, **fields):
    while True:
        m = await ws.recv()
        if isinstance(m, bytes):
            version, k, codec, _, sid, seq, capture, *_ = struct.unpack("<BBBBIQqHHHH", m[:32])
            head = m[36:36 + struct.unpack("<I", m[32:36])[0]]
            m = {"type": "result", "sid": sid, "seq": seq, "capture_us": capture, **json.loads(head), "binary": m[36 + len(head):]}
        else:
            m = json.loads(m)
        if m["type"] == kind and all(m.get(k) == v for k, v in fields.items()):
            return m
        assert m["type"] in ("result", "stats", "advise", "credit"), m


async def main(url):
    async with websockets.connect(url, subprotocols=["millrace.v1"]) as ws:
        assert ws.subprotocol == "millrace.v1"
        ready = await until(ws, "ready")
        await ws.send(json.dumps({"type": "open", "sid": 1, "model": "echo", "policy": {"mode": "every", "window": 4}}))
        opened = await until(ws, "opened", sid=1)
        assert opened["credit_limit"] == 4, opened
        await ws.send(json.dumps({"type": "open", "sid": 2, "model": "echo", "outputs": "binary"}))
        await until(ws, "opened", sid=2)
        for seq in range(4):
            await ws.send(frame(1, seq, b"frame"))
        for seq in range(4):
            r = await until(ws, "result", sid=1, seq=seq)
            assert r["capture_us"] == 1000 + seq and r["ack"] == seq + 1, r
        await ws.send(frame(2, 9, b"in binary"))
        r = await until(ws, "result", sid=2, seq=9)
        assert r["binary"].endswith(b"in binary") and r["parameters"]["ack"] == 1, r
        ws.transport.abort()  # the network goes
    async with websockets.connect(url, subprotocols=["millrace.v1"]) as ws:
        await until(ws, "ready")
        await ws.send(json.dumps({"type": "attach", "token": ready["resume_token"], "streams": [{"sid": 1, "last_seq": 2}, {"sid": 2, "last_seq": 9}]}))
        a = await until(ws, "attached")
        assert a["session"] == ready["session"] and len(a["streams"]) == 2, a
        await until(ws, "result", sid=1, seq=3)  # sent again
        await ws.send(json.dumps({"type": "close", "sid": 1}))
        closed = await until(ws, "closed", sid=1)
        assert closed["totals"]["results"] == 4, closed
    print("ok")


asyncio.run(main(sys.argv[1]))
