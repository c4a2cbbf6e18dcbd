"""The parts of the client without input and output: what servers, proxies and broken connections may send."""

from __future__ import annotations

import json
import random
import unittest

import millrace
from millrace import _http, _oip, _websocket
from millrace._client_errors import MillraceError, of_status
from millrace._frames import HEADER, Frame
from millrace._policy import Policy
from millrace._session import SessionState
from millrace._streamstate import StreamState


def feed(reading, data: bytes):
    """Drives a reader with data; EOFError is the end of them."""
    at = 0
    value = None
    try:
        while True:
            need = reading.send(value)
            if need == _http.LINE:
                end = data.find(b"\n", at) + 1 or len(data)
            elif need == _http.REST:
                end = len(data)
            else:
                end = at + need
                if end > len(data):
                    raise EOFError
            value, at = data[at:end], end
    except StopIteration as stop:
        return stop.value, at


class TestHTTP(unittest.TestCase):
    """Replies."""

    def test_forms_of_bodies(self):
        for data, want in (
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", b"abc"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: "
                b"x\r\n\r\nnext",
                b"abc",
            ),
            (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabc", b"abc"),
            (b"HTTP/1.1 204\r\nContent-Length: 3\r\n\r\n", b""),
        ):
            reply, _ = feed(_http.read_reply("POST"), data)
            self.assertEqual(bytes(reply.body), want, data)
        self.assertFalse(feed(_http.read_reply("GET"), b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n")[0].keep)
        self.assertFalse(
            feed(_http.read_reply("GET"), b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n")[0].keep
        )

    def test_what_is_no_reply(self):
        for data in (
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300,
        ):
            with self.assertRaises(MillraceError, msg=data[:40]) as caught:
                feed(_http.read_reply("GET"), data)
            self.assertEqual(caught.exception.code, "internal")
        for data in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"):
            with self.assertRaises(EOFError, msg=data):
                feed(_http.read_reply("GET"), data)

    def test_events(self):
        text = b': heartbeat\n\ndata: a\ndata:b\nid: 7\n\nevent: e\r\ndata: {"n":1}\r\n\r\nretry: 5\n\ndata: cut'
        for head, body in (
            (b"content-length: %d" % len(text), text),
            (b"x: y", text),
            (b"transfer-encoding: chunked", b"".join(b"1\r\n%c\r\n" % c for c in text) + b"0\r\n\r\n"),
        ):
            data = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body
            reply, at = feed(_http.read_head(), data)
            events, got = _http.Events("GET", reply), []
            while True:
                event, more = feed(events.next(), data[at:])
                at += more
                if event is None:
                    break
                got.append(event)
            self.assertEqual(got, [("message", "a\nb", "7"), ("e", '{"n":1}', "7")])
            self.assertEqual(got[1].json(), {"n": 1})

    def test_errors_of_others(self):
        for status, body, code, words in (
            (502, b"<html>bad gateway", "unavailable", "the server answered 502"),
            (404, b"no such page", "not_found", "no such page"),
            (422, b'{"detail":[{"loc":["body"]}]}', "invalid_argument", "loc"),
            (418, b"", "invalid_argument", "418"),
            (503, b'{"error":"limits.x: is reached","code":"overloaded"}', "overloaded", "limits.x: is reached"),
        ):
            error = of_status(status, "", {"retry-after": "2"}, body)
            self.assertEqual((error.code, error.status, error.retry_after), (code, status, 2.0))
            self.assertIn(words, str(error))
        self.assertEqual((error.field, error.retryable), ("limits.x", True))


class TestWebSocket(unittest.TestCase):
    """Frames of a server."""

    def read(self, data: bytes):
        return feed(_websocket.Reader(1000).message(), data)[0]

    def test_messages_in_parts(self):
        self.assertEqual(self.read(b"\x81\x02hi"), (1, b"hi"))
        reader = _websocket.Reader(1000)
        data, at, got = b"\x02\x01a\x89\x01p\x00\x01b\x80\x01c\x82\x7e\x00\x03def", 0, []
        for _ in range(3):
            message, more = feed(reader.message(), data[at:])
            at += more
            got.append(message)
        self.assertEqual(got, [(9, b"p"), (2, b"abc"), (2, b"def")])

    def test_violations(self):
        for data in (
            b"\xc1\x00",
            b"\x81\x80abcd",
            b"\x83\x00",
            b"\x80\x00",
            b"\x89\x7e\x00\x80" + b"x" * 128,
            b"\x09\x00",
            b"\x82\x7f" + b"\xff" * 8,
            b"\x88\x01a",
            b"\x01\x01a\x81\x01b",
        ):
            with self.assertRaises(MillraceError, msg=data[:10]):
                self.read(data)
        for data in (b"", b"\x81", b"\x81\x02h"):
            with self.assertRaises(EOFError):
                self.read(data)
        with self.assertRaises(_websocket.Closed) as caught:
            self.read(b"\x88\x05\x03\xe9bye")
        self.assertEqual((caught.exception.code, caught.exception.reason), (1001, "bye"))

    def test_frames_are_masked(self):
        for n in (0, 1, 125, 126, 5000, 70001):
            data = random.Random(n).randbytes(n)
            frame = _websocket.frame(2, data[: n // 2], memoryview(data)[n // 2 :])
            at = 2 if n < 126 else 4 if n < 1 << 16 else 10
            self.assertEqual((frame[0], frame[1] & 0x80), (0x82, 0x80))
            key, payload = frame[at : at + 4], frame[at + 4 :]
            self.assertEqual(bytes(b ^ key[i & 3] for i, b in enumerate(payload)), data)


class TestSession(unittest.TestCase):
    """A session without a server."""

    def open(self, mode: str = "every", codec: str = "auto") -> StreamState:
        self.session = SessionState()
        self.session.ready({"type": "ready", "resume_token": "t", "limits": {}})
        st = StreamState(self.session, "m", "", codec, 0, 0, Policy(mode), "binary", False, {}, False, 64)
        st.sid = self.session.new_sid()
        self.session.streams[st.sid] = st
        self.say("opened", sid=st.sid, credit_limit=100, policy={"mode": mode})
        return st

    def say(self, kind: str, **members):
        return self.session.message(False, json.dumps({"type": kind, **members}).encode())

    def ends(self, st: StreamState) -> list:
        got = [(r.seq, r.reason or (r.type if not r.lost else "lost")) for r in st.replies]
        st.replies.clear()
        return got

    def test_every_frame_ends_once(self):
        st = self.open()
        for _ in range(8):
            st.send(Frame(b"x"))
        self.say("result", sid=1, seq=0, ack=1)
        self.say("result", sid=1, seq=0, ack=1)  # again
        self.say("drop", sid=1, reason="stale", seqs=[[2, 3], [5, 5]], ack=4)
        self.assertEqual(self.ends(st), [(0, "result"), (2, "stale"), (3, "stale"), (5, "stale")])
        self.say(
            "error", sid=1, seq=1, code="internal", message="m", ack=6
        )  # ack: one ending is not kept by the server
        self.assertEqual(self.ends(st), [(1, "error"), (4, "lost")])
        self.say("closed", sid=1, reason="client", totals={})
        self.assertEqual(self.ends(st), [(6, "lost"), (7, "lost")])
        self.assertEqual((st.counts["results"], st.counts["drops"], st.counts["errors"], st.error), (1, 3, 4, None))

    def test_what_is_told_at_attach(self):
        st = self.open("latest", "h264")
        told = []
        st.told = lambda what, value: told.append(value)
        for _ in range(6):
            st.send(Frame(b"x"))
        self.say("result", sid=1, seq=0, ack=1)
        self.say("drop", sid=1, reason="superseded", seqs=[[3, 3]], ack=2)
        self.assertEqual(json.loads(self.session.attach_message()[1][0])["streams"], [{"sid": 1, "last_seq": 0}])
        st.paused, st.closing = True, True
        resumed, messages = self.session.attached(
            {
                "type": "attached",
                "resume_token": "u",
                "streams": [{"sid": 1, "received_count": 5, "received_seq": 4, "credit_limit": 40}],
            },
            {},
        )
        self.assertEqual((resumed, self.session.token, st.limit), (True, "u", 40))
        self.assertEqual([json.loads(parts[0])["type"] for _, parts in messages], ["update", "pause", "close"])
        self.assertEqual(told, [{"keyframe": True}])
        self.say("credit", sid=1, credit_limit=41, ack=5)  # 1, 2 and 4 ended, and the server no longer keeps how
        self.assertEqual(
            self.ends(st), [(0, "result"), (3, "superseded"), (1, "lost"), (2, "lost"), (4, "lost"), (5, "lost")]
        )

    def test_a_session_that_the_server_no_longer_has(self):
        st = self.open()
        st.send(Frame(b"x"))
        resumed, messages = self.session.attached(
            {"type": "error", "code": "not_found", "message": "m"}, {"type": "ready", "resume_token": "n"}
        )
        self.assertEqual(
            (resumed, json.loads(messages[0][1][0])["type"], st.sid, self.ends(st)), (False, "open", 2, [(0, "lost")])
        )
        again = []
        self.session.retry = lambda stream, error: again.append(error.code) or True
        self.say("error", sid=2, code="unavailable", message="is being loaded")
        self.assertEqual((again, st.state), (["unavailable"], "opening"))
        self.say("error", sid=2, code="not_found", message="m")
        self.assertEqual((st.state, st.error.code), ("closed", "not_found"))
        with self.assertRaises(MillraceError):
            self.session.attached({"type": "error", "code": "conflict", "message": "m", "fatal": True}, {})
        with self.assertRaises(MillraceError):
            self.session.attached({"type": "opened"}, {})

    def test_messages_of_every_type(self):
        st = self.open()
        told = []
        st.told = lambda what, value: told.append((what, value))
        self.say("advise", sid=1, fps=5, keyframe=True)
        self.say("stats", sid=1, counts={"results": 1}, waiting=0)
        self.say("error", sid=1, code="conflict", message="refused")
        self.assertEqual([what for what, _ in told], ["advice", "stats", "refused"])
        self.say("goaway", time_left_ms=500)
        self.assertEqual((self.session.going_away, self.session.server_error.code), (0.5, "draining"))
        self.say("of a newer server", x=1)
        self.assertEqual(dict(self.session.unknown), {"of a newer server": 1})
        for kind in ("result", "drop", "credit", "opened", "closed", "advise", "stats"):
            with self.assertRaises(MillraceError, msg=kind):
                self.say(kind)  # without a sid
        self.say("result", sid=9, seq=1)  # of a stream that has ended
        for data in (b"", b"[]", b"{}", b"\xff", b'{"type":"result","sid":1,"seq":0,"outputs":[{"name":"x"}]}'):
            with self.assertRaises(MillraceError, msg=data):
                self.session.message(False, data)

    def test_damaged_results(self):
        """No bytes make the client fail with anything but MillraceError."""
        st = self.open()
        st.send(Frame(b"x"))
        head = HEADER.pack(1, 3, 12, 0, 1, 0, 0, 0, 0, 0, 0)
        text = json.dumps(
            {
                "outputs": [
                    {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
                    {"name": "b", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
                ],
                "parameters": {"ack": 1, "own": 7},
            }
        ).encode()
        good = head + len(text).to_bytes(4, "little") + text + bytes(8) + b"\1\0\0\0a"
        for i in range(len(good)):
            with self.assertRaises(MillraceError, msg=i):
                self.session.message(True, good[:i])
        rng = random.Random(1)
        for _ in range(3000):
            bad = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            try:
                self.session.message(True, bytes(bad))
            except MillraceError:
                pass
        st = self.open()
        st.send(Frame(b"x"))
        self.session.message(True, good)
        result = st.replies[0]
        self.assertEqual(
            (result.outputs["x"].tolist(), result.outputs["b"].tolist(), result.parameters),
            ([0.0, 0.0], [b"a"], {"own": 7}),
        )
        with self.assertRaises(MillraceError):
            _oip.outputs_of([{"name": "x", "datatype": "INT8", "shape": [3], "data": [1, 2]}], b"")
        for datatype, shape, data in (
            ("INT8", [3], b"ab"),
            ("INT16", [1], b"abc"),
            ("BYTES", [2], b"\1\0\0\0a"),
            ("BYTES", [1], b"\2\0\0\0a"),
            ("X", [1], b"a"),
        ):
            with self.assertRaises(MillraceError, msg=datatype):
                _oip.outputs_of(
                    [
                        {
                            "name": "x",
                            "datatype": datatype,
                            "shape": shape,
                            "parameters": {"binary_data_size": len(data)},
                        }
                    ],
                    data,
                )

    def test_credit(self):
        """In `every` a frame needs credit, and the window bounds those at the server; in `latest` only one that does
        not wait.
        """
        st = self.open()
        st.limit = 2
        for want in (True, True, False):
            self.assertEqual(st.may_send(True, True), want)
            if want:
                st.send(Frame(b"x"))
        self.say("credit", sid=1, credit_limit=3)
        self.assertTrue(st.may_send(True, True))
        self.assertFalse(st.may_send(False, True))  # without a connection
        st.policy = Policy("every", window=2)
        self.assertFalse(st.may_send(True, True))
        latest = self.open("latest")
        latest.limit = 0
        self.assertEqual((latest.may_send(True, True), latest.may_send(True, False)), (True, False))


class TestPackage(unittest.TestCase):
    """The names of the package."""

    def test_names(self):
        for name in dir(millrace):
            self.assertEqual(getattr(millrace, name).__name__, name)
        self.assertIs(millrace.MillraceError, MillraceError)
        with self.assertRaises(AttributeError):
            getattr(millrace, "client_")


if __name__ == "__main__":
    unittest.main()
