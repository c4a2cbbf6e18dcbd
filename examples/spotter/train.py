"""Trains the network on rendered pictures and keeps the moving average of its weights: OUT/spotter.pt.

Paced by iterations and seeded, so that two runs with the same settings see the same pictures in the same order.
"""
import argparse
import copy
import json
import multiprocessing
import pathlib
import time

import cv2
import numpy as np
import torch

from clips import VISIBLE
from loss import loss, targets
from model import STRIDE, Decoded, Spotter
from score import THRESHOLD, Score, detections

CROP = 160


class Pictures:
    """A folder of dataset.py."""

    def __init__(self, folder):
        self.pictures = np.load(pathlib.Path(folder, "pictures.npy"), mmap_mode="r")
        self.truth = json.loads(pathlib.Path(folder, "truth.json").read_text())

    def crop(self, rng, number):
        """A square of CROP px out of a picture, sometimes scaled and always recoloured, and its truth."""
        picture = self.pictures[number]
        side = CROP if rng.random() < 0.5 else int(CROP * np.exp(rng.uniform(-0.18, 0.18)))
        x0, y0 = int(rng.integers(0, picture.shape[1] - side + 1)), int(rng.integers(0, picture.shape[0] - side + 1))
        cut = picture[y0 : y0 + side, x0 : x0 + side]
        if side != CROP:
            cut = cv2.resize(cut, (CROP, CROP), interpolation=cv2.INTER_AREA if side > CROP else cv2.INTER_LINEAR)
        found = []
        for d in self.truth[number]:
            whole = np.array(d["box"], np.float64)
            box = np.clip(whole - [x0, y0, x0, y0], 0, side)
            seen = (box[2:] - box[:2]).prod() / (whole[2:] - whole[:2]).prod()
            if seen > 0:
                found.append({"digit": d["digit"], "box": box * CROP / side, "visible": d["visible"] * seen})
        return recolour(rng, cut), found


def recolour(rng, picture):
    picture = picture[..., rng.permutation(3)].astype(np.float32) / 255
    if rng.random() < 0.3:
        picture = 1 - picture
    return np.clip((picture - 0.5) * rng.uniform(0.7, 1.2) + 0.5 + rng.uniform(-0.12, 0.12), 0, 1)


def batches(folder, size, count, seed):
    """Yields count batches of tensors: pictures, heat, weight, digit, box."""
    pictures, rng = Pictures(folder), np.random.default_rng(seed)
    cells = CROP // STRIDE
    order = np.empty(0, np.int64)
    for _ in range(count):
        if len(order) < size:
            order = np.concatenate([order, rng.permutation(len(pictures.truth))])
        numbers, order = order[:size], order[size:]
        crops = [pictures.crop(rng, n) for n in numbers]
        maps = zip(*(targets(found, cells, cells) for _, found in crops))
        image = torch.from_numpy(np.stack([p for p, _ in crops])).permute(0, 3, 1, 2)
        yield (image.contiguous(memory_format=torch.channels_last), *(torch.from_numpy(np.stack(m)) for m in maps))


def average(mean, spotter, step):
    """Moves the running mean of the weights a little towards the present ones."""
    keep = min(0.998, (1 + step) / (10 + step))
    with torch.no_grad():
        now = spotter.state_dict()
        for name, value in mean.state_dict().items():
            if value.dtype.is_floating_point:
                value.lerp_(now[name], 1 - keep)
            else:
                value.copy_(now[name])


def validate(spotter, folder, threshold=THRESHOLD):
    """The score on a folder of dataset.py at whole pictures."""
    pictures, score, model = Pictures(folder), Score(), Decoded(spotter).eval()
    for first in range(0, len(pictures.truth), 16):
        image = torch.from_numpy(pictures.pictures[first : first + 16].astype(np.float32) / 255).permute(0, 3, 1, 2)
        with torch.no_grad():
            boxes, scores = (o.numpy() for o in model(image.contiguous(memory_format=torch.channels_last)))
        for i, found in enumerate(pictures.truth[first : first + 16]):
            shown = [d for d in found if d["visible"] >= VISIBLE]
            score.add(
                *detections(boxes[i], scores[i], threshold),
                [d["box"] for d in shown],
                [d["digit"] for d in shown],
                [d["box"] for d in found if d["visible"] < VISIBLE],
            )
    return score


def report(score, threshold):
    print(
        f"validation at {threshold:.2f}: precision {score.precision:.3f}, recall {score.recall:.3f},"
        f" {score.misread} misread",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="out/spotter", help="folder with the folders train and val of dataset.py")
    parser.add_argument("--out", default="out/spotter/spotter.pt", help="the weights to write")
    parser.add_argument("--iterations", type=int, default=3200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=4e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    cv2.setNumThreads(1)
    spotter = Spotter().to(memory_format=torch.channels_last).train()
    mean = copy.deepcopy(spotter).eval()
    optimiser = torch.optim.AdamW(spotter.parameters(), args.rate, weight_decay=0.02)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.rate, args.iterations, pct_start=0.2)
    start, shown = time.time(), np.zeros(3)
    for step, (image, *maps) in enumerate(batches(f"{args.data}/train", args.batch, args.iterations, args.seed), 1):
        total, parts = loss(spotter(image), *maps)
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(spotter.parameters(), 5.0)
        optimiser.step()
        cycle.step()
        average(mean, spotter, step)
        shown += [float(p.detach()) for p in parts]
        if step % 50 == 0:
            print(
                f"{step}/{args.iterations} presence {shown[0] / 50:.3f} digit {shown[1] / 50:.3f} box "
                f"{shown[2] / 50:.3f}"
                f" {time.time() - start:.0f} s",
                flush=True,
            )
            shown[:] = 0
        if step % 400 == 0 or step == args.iterations:
            torch.save(mean.state_dict(), args.out)
            report(validate(mean, f"{args.data}/val"), THRESHOLD)
    # THRESHOLD is chosen from these, never from the test clips.
    for threshold in (0.2, 0.25, 0.3, 0.35, 0.4, 0.5):
        report(validate(mean, f"{args.data}/val", threshold), threshold)


if __name__ == "__main__":
    main()
