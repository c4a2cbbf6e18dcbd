"""Counts what a detector gets right: IoU of at least 0.5 and the right digit."""
import numpy as np

MIN_IOU = 0.5
THRESHOLD = 0.3  # least score of a detection, chosen on the validation writers


def iou(a, b):
    """IoU of boxes [N, 4] with boxes [M, 4], as [N, M]."""
    a, b = np.asarray(a, np.float64).reshape(-1, 1, 4), np.asarray(b, np.float64).reshape(1, -1, 4)
    size = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None)
    shared = size.prod(-1)
    return shared / ((a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - shared + 1e-9)


def detections(boxes, scores, threshold=THRESHOLD):
    """Boxes and digits of one picture's outputs [32, 4] and [32, 10], without boxes that repeat a better one."""
    best, digit = scores.max(1), scores.argmax(1)
    kept = []
    for i in np.argsort(-best, kind="stable"):
        if best[i] < threshold:
            break
        if not kept or iou(boxes[i], boxes[kept]).max() <= 0.5:
            kept.append(i)
    return boxes[kept], digit[kept]


class Score:
    """Hits, false detections and misses over any number of pictures."""

    def __init__(self):
        self.hits = self.false = self.missed = self.misread = 0

    def add(self, boxes, found, truth, truth_digits, ignored):
        """One picture. A detection mostly inside an ignored box counts neither way, unless it is a hit."""
        overlap = iou(boxes, truth)
        same = np.asarray(found).reshape(-1, 1) == np.asarray(truth_digits).reshape(1, -1)
        pairs = np.argwhere((overlap >= MIN_IOU) & same)
        taken, hit = set(), set()
        for i, j in sorted(pairs.tolist(), key=lambda p: -overlap[p[0], p[1]]):
            if i not in taken and j not in hit:
                taken.add(i)
                hit.add(j)
        self.hits += len(hit)
        self.missed += len(truth) - len(hit)
        for i, box in enumerate(boxes):
            if i not in taken and not mostly_inside(box, ignored):
                self.false += 1
                self.misread += bool(len(truth) and overlap[i].max() >= MIN_IOU)

    def __iadd__(self, other):
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def precision(self):
        return self.hits / max(1, self.hits + self.false)

    @property
    def recall(self):
        return self.hits / max(1, self.hits + self.missed)


def mostly_inside(box, ignored):
    area = max(1e-9, (box[2] - box[0]) * (box[3] - box[1]))
    for other in ignored:
        wide, high = min(box[2], other[2]) - max(box[0], other[0]), min(box[3], other[3]) - max(box[1], other[1])
        if wide > 0 and high > 0 and wide * high >= area / 2:
            return True
    return False
