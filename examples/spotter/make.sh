#!/bin/sh
# Repeats all of it: renders the pictures, trains, exports spotter.onnx, renders the clips and writes the report.
set -eu

usage() {
	cat <<END
usage: examples/spotter/make.sh [--out FOLDER]

Renders, trains, exports and evaluates the reference model; about half an hour on two cores.
Work files go to FOLDER (default out/spotter, 3 GB), the table of the results to FOLDER/report.md.
The model and the clip of this folder are replaced: spotter.onnx, clip.mp4, clip.json.

It needs ffmpeg and, for PYTHON (default /usr/bin/python3), what Debian calls
python3-torch python3-sklearn python3-numpy python3-opencv python3-onnx.
END
}

out=out/spotter
while [ $# -gt 0 ]; do
	case $1 in
	--out) out=${2:?--out: name a folder}; shift 2 ;;
	--help | -h) usage; exit ;;
	*) usage >&2; exit 2 ;;
	esac
done
cd "$(dirname "$0")/../.."
here=examples/spotter
python=${PYTHON:-/usr/bin/python3}
# Two programs that wait for a core by spinning stand in each other's way.
export OMP_WAIT_POLICY=passive

"$python" $here/dataset.py --split train --out "$out/train"
"$python" $here/dataset.py --split val --pictures 400 --seed 7 --out "$out/val"
"$python" $here/train.py --data "$out" --out "$out/spotter.pt"
"$python" $here/export.py --weights "$out/spotter.pt" --out $here/spotter.onnx
"$python" $here/clips.py --out "$out/test"
"$python" $here/evaluate.py "$out/test" --weights "$out/spotter.pt" --report "$out/report.md"
"$python" $here/clips.py --out "$out/demo" --seed 2 --clips 7 --frames 330
cp "$out/demo/clip-06.mp4" $here/clip.mp4
cp "$out/demo/clip-06.json" $here/clip.json
"$python" $here/evaluate.py $here/clip.mp4 --weights "$out/spotter.pt"
