"""Runs trained weights over clips and prints precision and recall, one line a clip and all of them pooled.

A hit needs an IoU of at least 0.5 and the right digit; see score.py. With --report the table goes to a file as well.
"""
import argparse
import json
import pathlib

import numpy as np
import torch

import clips
from export import load
from score import THRESHOLD, Score, detections


def score_clip(model, path, threshold):
    """The score of one clip against the truth beside it."""
    told, score = json.loads(path.with_suffix(".json").read_text()), Score()
    pictures = clips.decode(path)
    if len(pictures) != len(told["frames"]):
        raise SystemExit(f"{path}: {len(pictures)} frames, but its truth has {len(told['frames'])}; render it again")
    for first in range(0, len(pictures), 15):
        image = torch.from_numpy(pictures[first : first + 15].astype(np.float32) / 255).permute(0, 3, 1, 2)
        with torch.no_grad():
            boxes, scores = (o.numpy() for o in model(image))
        for i, frame in enumerate(told["frames"][first : first + 15]):
            objects = frame["objects"]
            score.add(
                *detections(boxes[i], scores[i], threshold),
                [o["box"] for o in objects],
                [o["class"] for o in objects],
                frame.get("ignore", []),
            )
    return score


def row(name, score):
    return (
        f"| {name} | {score.hits + score.missed} | {score.hits} | {score.false} | {score.missed} "
        f"| {score.precision:.3f} | {score.recall:.3f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=pathlib.Path, help="clips, or folders of them")
    parser.add_argument("--weights", default="out/spotter/spotter.pt")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, help="least score of a detection")
    parser.add_argument("--report", type=pathlib.Path, help="file for the table")
    args = parser.parse_args()
    model, pooled = load(args.weights), Score()
    lines = ["| clip | digits | hits | false | missed | precision | recall |", "|---|---|---|---|---|---|---|"]
    for path in args.clips:
        for clip in sorted(path.glob("*.mp4")) if path.is_dir() else [path]:
            score = score_clip(model, clip, args.threshold)
            pooled += score
            lines.append(row(clip.stem, score))
    lines.append(row("**pooled**", pooled))
    table = "\n".join(lines) + "\n"
    print(table + f"{pooled.misread} of the false detections lie on a digit but misread it")
    if args.report:
        args.report.write_text(table)


if __name__ == "__main__":
    main()
