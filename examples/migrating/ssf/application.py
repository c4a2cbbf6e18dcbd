"""Statistics of numbers, and pictures: an application in the form of Simple Server Framework.

It needs nothing but Python.
"""

import json
import logging
import struct
import zlib

from ssf.application_interface.application import SSFApplicationInterface
from ssf.application_interface.results import RESULT_APPLICATION_ERROR, RESULT_OK

logger = logging.getLogger()

PALETTE = "palette.json"


def png(width, height, colour):
    """Returns a PNG picture of one colour."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class Pictures(SSFApplicationInterface):
    def __init__(self):
        self.palette = {}

    def build(self):
        with open(PALETTE, "w") as f:
            json.dump({"red": [255, 0, 0], "green": [0, 255, 0], "blue": [0, 0, 255]}, f)
        return RESULT_OK

    def startup(self):
        with open(PALETTE) as f:
            self.palette = json.load(f)
        logger.info("there are %d colours", len(self.palette))
        return RESULT_OK

    def request(self, params, meta):
        return getattr(self, meta["endpoint_id"].lower())(params, meta)

    def statistics(self, params, meta):
        values = params["values"]
        if meta["endpoint_version"] == "2":
            values = [v for v in values if v <= params["limit"]]
        return {
            "mean": sum(values) / max(len(values), 1),
            "range": [min(values, default=0), max(values, default=0)],
            "left_out": len(params["values"]) - len(values),
        }

    def draw(self, params, meta):
        return {
            "picture": png(params["width"], params["height"], self.palette[params["colour"]]),
            "pixels": params["width"] * params["height"],
        }

    def size(self, params, meta):
        with open(params["picture"], "rb") as f:
            width, height = struct.unpack(">II", f.read(24)[16:])
        return {"width": width, "height": height}

    def shutdown(self):
        return RESULT_OK

    def watchdog(self):
        return RESULT_OK if self.palette else RESULT_APPLICATION_ERROR
