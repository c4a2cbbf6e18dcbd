"""What training minimises: a focal loss on presence, cross-entropy on the digit, generalised IoU on the box."""
import numpy as np
import torch
import torch.nn.functional as F

from clips import VISIBLE
from model import STRIDE, corners

NEAR = 0.1  # heat from which a cell learns the digit and the box


def targets(found, rows, columns):
    """Maps of one picture: heat and weight [rows, columns], digit [rows, columns] (-1: none), box [4, rows, columns].

    Heat is 1 in the cell of a digit's middle and falls around it; the weight is 0 where a digit is too little visible
    to say that it is there or not.
    """
    heat, weight = np.zeros((rows, columns), np.float32), np.ones((rows, columns), np.float32)
    digit, box = np.full((rows, columns), -1, np.int64), np.zeros((4, rows, columns), np.float32)
    y, x = np.mgrid[0:rows, 0:columns]
    for d in found:
        x1, y1, x2, y2 = d["box"]
        if d["visible"] < VISIBLE:
            weight[int(y1 // STRIDE) : int(np.ceil(y2 / STRIDE)), int(x1 // STRIDE) : int(np.ceil(x2 / STRIDE))] = 0
    for d in found:
        if d["visible"] < VISIBLE:
            continue
        x1, y1, x2, y2 = d["box"]
        column, row = min(int((x1 + x2) / 2 // STRIDE), columns - 1), min(int((y1 + y2) / 2 // STRIDE), rows - 1)
        wide, high = 0.5 + 0.06 * (x2 - x1) / STRIDE, 0.5 + 0.06 * (y2 - y1) / STRIDE
        spot = np.exp(-(((x - column) / wide) ** 2) / 2 - ((y - row) / high) ** 2 / 2).astype(np.float32)
        mine = (spot > heat) & (spot > NEAR)
        heat = np.maximum(heat, spot)
        digit[mine], box[:, mine] = d["digit"], np.float32([x1, y1, x2, y2])[:, None]
        weight[spot > NEAR] = 1
    return heat, weight, digit, box


def presence_loss(logits, heat, weight):
    """CenterNet's form of the focal loss (Zhou et al., Objects as Points, eq. 1), a mean over the digits."""
    chance = torch.sigmoid(logits).clamp(1e-5, 1 - 1e-5)
    there = (heat == 1).float()
    right = there * (1 - chance) ** 2 * torch.log(chance)
    wrong = (1 - there) * (1 - heat) ** 4 * chance**2 * torch.log(1 - chance)
    return -((right + wrong) * weight).sum() / there.sum().clamp(min=1)


def box_loss(a, b):
    """1 - GIoU (Rezatofighi et al. 2019) of boxes [N, 4]."""
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    both = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - shared
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    return 1 - shared / both + (hull - both) / hull


def loss(outputs, heat, weight, digit, box):
    """The sum of the three and each of them, for maps with a leading batch dimension."""
    presence, digits, sides = outputs
    where = presence_loss(presence[:, 0], heat, weight)
    near = (digit >= 0) & (heat >= NEAR)
    share = heat[near] / heat[near].sum().clamp(min=1e-6)
    if not near.any():
        return where, (where, where * 0, where * 0)
    which = F.cross_entropy(digits.permute(0, 2, 3, 1)[near], digit[near], label_smoothing=0.05, reduction="none")
    boxes = box_loss(corners(sides).permute(0, 2, 3, 1)[near], box.permute(0, 2, 3, 1)[near])
    which, boxes = (which * share).sum(), (boxes * share).sum()
    return where + which + 2 * boxes, (where, which, boxes)
