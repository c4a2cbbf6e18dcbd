"""An H.264 camera behind GStreamer's RTSP server: camera.py CLIP [udp] [sprop].

CLIP is an MP4 file that begins with a key frame, and is sent again and again in
real time. As with a camera's encoder, time passes also while nobody reads: who
connects gets what is sent from then on, which begins between two key frames. sprop
puts the parameter sets into the session's description, in addition to those in front
of each key frame. It prints its port and the Unix time in microseconds of the
clip's first frame, and a line for each client that connects on standard error. It
ends with its standard input.
"""
import subprocess
import sys
import threading
import time

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

clip, options = sys.argv[1], sys.argv[2:]
packets = subprocess.run(
    [
        "ffprobe",
        "-loglevel",
        "error",
        "-select_streams",
        "v",
        "-show_entries",
        "packet=pts_time,dts_time",
        "-of",
        "csv=p=0",
        "file:" + clip,
    ],
    check=True,
    capture_output=True,
    text=True,
).stdout.split()
times = [[float(t) for t in p.strip(",").split(",")] for p in packets]  # presentation, decoding
stream = subprocess.run(
    [
        "ffmpeg",
        "-nostdin",
        "-loglevel",
        "error",
        "-i",
        "file:" + clip,
        "-c",
        "copy",
        "-bsf:v",
        "h264_mp4toannexb,h264_metadata=aud=insert",
        "-f",
        "h264",
        "pipe:1",
    ],
    check=True,
    capture_output=True,
).stdout
delimiter = b"\0\0\0\1\x09"
units = [delimiter + u for u in stream.split(delimiter)[1:]]
assert len(units) == len(times), (len(units), len(times))
shift = times[0][1]  # decoding begins at 0
times = [(p - shift, d - shift) for p, d in times]
length = times[-1][1] + (times[-1][1] - times[0][1]) / (len(times) - 1)
lead = units[0][: units[0].index(b"\0\0\1\x65")]  # what stands in front of the first key picture: the parameter sets

Gst.init(None)
loop = GLib.MainLoop()
begun = time.time()


def feed(src, media_begun):
    """Push what is due from now on."""
    rounds, n = divmod(time.time() - begun, length)
    n = next((i for i, (_, d) in enumerate(times) if d >= n), 0)
    first = "sprop" in options
    while True:
        base = begun + rounds * length
        pts, dts = base + times[n][0], base + times[n][1]
        if (wait := dts - time.time()) > 0:
            time.sleep(wait)
        buffer = Gst.Buffer.new_wrapped(lead + units[n] if first else units[n])
        first = False
        buffer.pts, buffer.dts = (max(int((t - media_begun) * Gst.SECOND), 0) for t in (pts, dts))
        if src.emit("push-buffer", buffer) != Gst.FlowReturn.OK:
            return
        n += 1
        if n == len(units):
            rounds, n = rounds + 1, 0


def configure(_, media):
    src = media.get_element().get_by_name_recurse_up("src")
    threading.Thread(target=feed, args=(src, time.time()), daemon=True).start()


server = GstRtspServer.RTSPServer(address="127.0.0.1", service="0")
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    "( appsrc name=src is-live=true format=time max-bytes=0 caps=video/x-h264,stream-format=byte-stream,alignment=au"
    " ! rtph264pay name=pay0 pt=96 config-interval=-1 )"
)
factory.set_shared(True)
if "udp" in options:
    factory.set_protocols(GstRtsp.RTSPLowerTrans.UDP)
factory.connect("media-configure", configure)
server.connect("client-connected", lambda *_: print("connected", file=sys.stderr, flush=True))
server.get_mount_points().add_factory("/live", factory)
server.attach(None)
print(server.get_bound_port(), int((begun + times[0][0]) * 1e6), flush=True)

GLib.io_add_watch(sys.stdin, GLib.IO_HUP, lambda *_: loop.quit())
loop.run()
