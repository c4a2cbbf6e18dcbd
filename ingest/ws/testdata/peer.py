"""A client in ten lines, and what it has to see: python3 peer.py ws://HOST/PATH."""
import asyncio
import json
import sys

from websockets import connect


async def main(url):
    async with connect(url + "?policy=every&window=8") as ws:
        for i in range(20):
            await ws.send(b"frame %d" % i)
        for i in range(20):
            reply = json.loads(await ws.recv())
            assert reply["seq"] == i, reply
            assert reply["outputs"][0]["data"] == ["frame %d" % i], reply
        await ws.send("nonsense")
        assert json.loads(await ws.recv())["error"]["code"] == "invalid_argument"
        await ws.send(bytes([200, 201]))
        assert json.loads(await ws.recv())["error"]["code"] == "unsupported"

    async with connect(url + "?outputs=binary", max_size=None) as ws:
        await ws.send([b"in ", b"three ", b"fragments"])
        reply = await ws.recv()
        size = int.from_bytes(reply[32:36], "little")
        head = json.loads(reply[36:36 + size])
        assert reply[:3] == bytes([1, 3, 12]) and reply[36 + size + 4:] == b"in three fragments", reply
        assert head["outputs"][0]["parameters"]["binary_data_size"] == 22, head
        await (await ws.ping())


asyncio.run(main(sys.argv[1]))
print("ok")
