"""Writes colour.onnx: the mean of the red, green and blue of a picture, as three scores."""

import sys

import onnx
from onnx import TensorProto, helper

mean = helper.make_node("ReduceMean", ["image"], ["scores"], axes=[2, 3], keepdims=0)
graph = helper.make_graph(
    [mean],
    "colour",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 16, 16])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, sys.argv[1])
