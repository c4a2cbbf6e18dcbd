"""Writes trained weights as ONNX: input image, outputs boxes and scores as model.py describes, any batch size."""
import argparse
import os

import onnx
import torch

from model import Decoded, Spotter

LARGEST = 1 << 20  # bytes of the file, at most


def load(weights):
    """The decoding model with trained weights, ready to run."""
    spotter = Spotter()
    spotter.load_state_dict(torch.load(weights, map_location="cpu"))
    return Decoded(spotter).eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="out/spotter/spotter.pt")
    parser.add_argument("--out", default="examples/spotter/spotter.onnx")
    parser.add_argument("--opset", type=int, default=13)
    args = parser.parse_args()
    torch.onnx.export(
        load(args.weights),
        torch.rand(2, 3, 240, 320),
        args.out,
        opset_version=args.opset,
        input_names=["image"],
        output_names=["boxes", "scores"],
        dynamic_axes={name: {0: "batch"} for name in ("image", "boxes", "scores")},
    )
    model = onnx.load(args.out)
    # The exporter forgets some sizes behind a symbolic batch; they are known.
    for output, last in zip(model.graph.output, (4, 10)):
        for dim, size in zip(output.type.tensor_type.shape.dim[1:], (32, last)):
            dim.dim_value = size
    model.doc_string = "Finds and reads handwritten digits in 320x240 pictures, RGB, 0..1."
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, args.out)
    size = os.path.getsize(args.out)
    if size > LARGEST:
        raise SystemExit(f"{args.out} has {size} bytes; at most {LARGEST}: use a smaller network in model.py")
    print(f"{args.out}: {size} bytes, opset {args.opset}, {len(model.graph.node)} nodes")


if __name__ == "__main__":
    main()
