"""The network: one small convolutional body of stride 8, heads for place, digit and box, and decoding in the graph.

Input   image   FP32 [B, 3, 240, 320]  RGB, 0..1
Outputs boxes   FP32 [B, 32, 4]        x1 y1 x2 y2 in pixels of the input, the best first
        scores  FP32 [B, 32, 10]       for each box the chance that it is there and shows 0, 1, ... 9

Run it to print the size of the network.
"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

STRIDE = 8
FOUND = 32  # boxes of a picture


def layer(inputs, outputs, stride=1, dilation=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Residual(nn.Module):
    def __init__(self, channels, dilation=1):
        super().__init__()
        self.layer = layer(channels, channels, 1, dilation)

    def forward(self, x):
        return x + self.layer(x)


class Spotter(nn.Module):
    """Maps pictures to the raw maps that training compares: presence and digit logits and side distances in pixels."""

    def __init__(self, narrow=16, middle=32, wide=64):
        super().__init__()
        self.body = nn.Sequential(
            layer(3, narrow, 2),
            layer(narrow, middle, 2),
            Residual(middle),
            layer(middle, wide, 2),
            Residual(wide),
            Residual(wide, 2),
            Residual(wide),
            Residual(wide, 2),
        )
        self.presence, self.digit, self.sides = nn.Conv2d(wide, 1, 1), nn.Conv2d(wide, 10, 1), nn.Conv2d(wide, 4, 1)
        # Nearly no cell holds a digit: starting from there spares the first hundred iterations.
        nn.init.constant_(self.presence.bias, -4.0)
        nn.init.constant_(self.sides.bias, 1.5)

    def forward(self, image):
        x = self.body(image - 0.5)
        return self.presence(x), self.digit(x), F.softplus(self.sides(x)) * STRIDE


def centres(rows, columns):
    """x and y of the middle of every cell, [2, rows, columns], in pixels."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return (torch.stack([x, y]) + 0.5) * STRIDE


def corners(sides):
    """Boxes [B, 4, rows, columns] from the distances left, up, right, down of every cell's middle."""
    place = centres(*sides.shape[-2:]).to(sides)
    return torch.cat([place - sides[:, :2], place + sides[:, 2:]], 1)


class Decoded(nn.Module):
    """A Spotter with its outputs as boxes and scores, for pictures of one size."""

    def __init__(self, spotter, height=240, width=320):
        super().__init__()
        self.spotter = spotter
        self.register_buffer("limit", torch.tensor([width, height, width, height], dtype=torch.float32))
        self.register_buffer("centres", centres(height // STRIDE, width // STRIDE))

    def forward(self, image):
        presence, digit, sides = self.spotter(image)
        presence = torch.sigmoid(presence)
        # Peaks only: digits are higher than wide, and so is the window in which only the best cell stays.
        best = F.max_pool2d(presence, (5, 3), 1, (2, 1))
        peaks = presence * (presence >= best).float()
        chance, cell = peaks.flatten(1).topk(FOUND)
        boxes = torch.cat([self.centres - sides[:, :2], self.centres + sides[:, 2:]], 1).flatten(2)
        boxes = boxes.gather(2, cell.unsqueeze(1).repeat(1, 4, 1)).transpose(1, 2)
        digit = digit.flatten(2).gather(2, cell.unsqueeze(1).repeat(1, 10, 1)).transpose(1, 2)
        scores = chance.unsqueeze(2) * torch.softmax(digit, 2)
        return torch.min(torch.clamp(boxes, min=0), self.limit), scores


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    spotter = Spotter().eval()
    boxes, scores = Decoded(spotter)(torch.zeros(2, 3, 240, 320))
    print(
        f"{sum(p.numel() for p in spotter.parameters())} parameters, boxes {list(boxes.shape)}, scores "
        f"{list(scores.shape)}"
    )


if __name__ == "__main__":
    main()
