"""An RTSP server of GStreamer's, for tests: rtsp.py [udp] [USER PASSWORD].

It serves a moving picture of 160x120 pixels at /live, over UDP only if so asked, and
a tone without a picture at /sound. It prints its port. It ends with its standard input.
"""
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

Gst.init(None)
loop = GLib.MainLoop()
server = GstRtspServer.RTSPServer(address="127.0.0.1", service="0")
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    "( videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width=160,height=120,framerate=15/1"
    " ! jpegenc ! rtpjpegpay name=pay0 pt=26 )"
)
factory.set_shared(True)
sound = GstRtspServer.RTSPMediaFactory()
sound.set_launch("( audiotestsrc is-live=true ! alawenc ! rtppcmapay name=pay0 pt=8 )")
access = sys.argv[1:]
if access[:1] == ["udp"]:
    factory.set_protocols(GstRtsp.RTSPLowerTrans.UDP)
    del access[0]
if access:
    user, password = access
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "user")
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    server.set_auth(auth)
    role = Gst.Structure.new_empty("user")
    role.set_value("media.factory.access", True)
    role.set_value("media.factory.construct", True)
    factory.add_role_from_structure(role)
server.get_mount_points().add_factory("/live", factory)
server.get_mount_points().add_factory("/sound", sound)
server.attach(None)
print(server.get_bound_port(), flush=True)

GLib.io_add_watch(sys.stdin, GLib.IO_HUP, lambda *_: loop.quit())
loop.run()
