"""Calls a server with grpcio: peer.py ADDRESS FOLDER, where FOLDER has the messages for Python."""
import struct
import sys

sys.path.insert(0, sys.argv[2])
import grpc
import grpc_service_pb2 as pb

channel = grpc.insecure_channel(sys.argv[1])
SERVICE = "/inference.GRPCInferenceService/"


def call(method, request, **options):
    reply = getattr(pb, method + "Response").FromString
    return channel.unary_unary(SERVICE + method, type(request).SerializeToString, reply)(request, timeout=30, **options)


def request(data, model="identity", **fields):
    r = pb.ModelInferRequest(model_name=model, raw_input_contents=[data], **fields)
    r.inputs.add(name="x", datatype="UINT8", shape=[len(data)])
    return r


def status(what, *args, **options):
    try:
        what(*args, **options)
    except grpc.RpcError as e:
        return e.code().name, e.details()
    return "OK", ""


def stream(requests, **options):
    method = channel.stream_stream(SERVICE + "ModelStreamInfer", pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
    return method(iter(requests), timeout=30, **options)


assert call("ServerLive", pb.ServerLiveRequest()).live
assert call("ServerReady", pb.ServerReadyRequest()).ready
assert call("ServerMetadata", pb.ServerMetadataRequest()).name == "millrace"
assert call("ModelReady", pb.ModelReadyRequest(name="identity")).ready
assert not call("ModelReady", pb.ModelReadyRequest(name="nobody")).ready
assert call("ModelMetadata", pb.ModelMetadataRequest(name="repeat")).inputs[0].datatype == "INT32"
assert status(call, "ModelMetadata", pb.ModelMetadataRequest(name="nobody"))[0] == "NOT_FOUND"
assert {m.name for m in call("RepositoryIndex", pb.RepositoryIndexRequest(ready=True)).models} >= {"identity", "repeat"}

for n in 0, 1, 5000, 300000:
    data = bytes(i * 7 & 255 for i in range(n))
    for compression in grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate:
        out = call("ModelInfer", request(data, id="a"), compression=compression)
        assert out.raw_output_contents[0] == data and out.id == "a" and out.outputs[0].shape == [n]

typed = pb.ModelInferRequest(model_name="identity")
for datatype, field, values, form in (
    ("BOOL", "bool_contents", [True, False], "??"), ("INT8", "int_contents", [-128, 127], "bb"), ("INT64", "int64_contents", [-1, 1 << 62], "qq"),
    ("UINT16", "uint_contents", [0, 65535], "HH"), ("UINT64", "uint64_contents", [0, 2**64 - 1], "QQ"), ("FP32", "fp32_contents", [1.5, -2], "ff"), ("FP64", "fp64_contents", [1.5, -2], "dd"),
):
    x = typed.inputs.add(name=datatype, datatype=datatype, shape=[2])
    getattr(x.contents, field).extend(values)
typed.inputs.add(name="BYTES", datatype="BYTES", shape=[2]).contents.bytes_contents.extend([b"ab", b""])
out = call("ModelInfer", typed)
assert out.raw_output_contents[1] == struct.pack("bb", -128, 127) and out.raw_output_contents[5] == struct.pack("<ff", 1.5, -2)
assert out.raw_output_contents[7] == b"\2\0\0\0ab\0\0\0\0"

code, text = status(call, "ModelInfer", request(b"ab", "nobody"))
assert code == "NOT_FOUND" and "nobody" in text, text
bad = request(b"ab")
bad.inputs[0].shape[0] = 3
code, text = status(call, "ModelInfer", bad)
assert code == "INVALID_ARGUMENT" and "inputs[0].data" in text, text

answers = list(stream(request(b"%d" % i, "nobody" if i == 2 else "identity", id=str(i)) for i in range(5)))
assert [a.infer_response.id for a in answers] == list("01234"), answers
assert [bool(a.error_message) for a in answers] == [False, False, True, False, False]
many = pb.ModelInferRequest(model_name="repeat", raw_input_contents=[struct.pack("<iii", 4, 5, 6), bytes(12), bytes(4)])
for name, datatype, n in ("IN", "INT32", 3), ("DELAY", "UINT32", 3), ("WAIT", "UINT32", 1):
    many.inputs.add(name=name, datatype=datatype, shape=[n])
answers = list(stream([many]))
assert [struct.unpack("<i", a.infer_response.raw_output_contents[0])[0] for a in answers] == [4, 5, 6], answers
answers = stream([request(b"x", "nobody")], metadata=[("triton_grpc_error", "true")])
assert status(list, answers)[0] == "NOT_FOUND"

for method in "ModelStatistics", "TraceSetting", "LogSettings":
    call(method, getattr(pb, method + "Request")())
assert status(call, "ModelConfig", pb.ModelConfigRequest())[0] == "NOT_FOUND"
stats = call("ModelStatistics", pb.ModelStatisticsRequest(name="identity")).model_stats
assert len(stats) == 1 and stats[0].inference_stats.success.count > 0 and stats[0].version == "1", stats
assert status(call, "CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="x"))[0] == "UNIMPLEMENTED"
assert not call("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()).regions
print("done")
