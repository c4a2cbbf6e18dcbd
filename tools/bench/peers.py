"""What people write instead of a server, for pictures and an ONNX file: FastAPI and the ONNX reader of OpenCV."""

import os

import cv2
import numpy
from fastapi import FastAPI, Request

net = cv2.dnn.readNetFromONNX(os.environ["MODEL"])
app = FastAPI()


@app.post("/infer")
async def infer(request: Request):
    picture = cv2.imdecode(numpy.frombuffer(await request.body(), numpy.uint8), cv2.IMREAD_COLOR)
    net.setInput(cv2.dnn.blobFromImage(picture, 1 / 255, swapRB=True))
    return {"scores": net.forward()[0].tolist()}
