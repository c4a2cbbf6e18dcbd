// Package spotter has Millrace's own reference model, which finds and reads handwritten digits in 320x240 pictures,
// and a test clip with its ground truth. The folder's README describes the making of the files and the quality of the
// model.
//
// The package owns these files only; other packages run the model and score its results.
package spotter

import _ "embed"

// Model is the ONNX file. Input image, FP32 [batch, 3, 240, 320], RGB, 0 to 1. Outputs boxes, FP32 [batch, 32, 4], x1
// y1 x2 y2 in pixels of the input, and scores, FP32 [batch, 32, 10], the chance of each digit for each box, the best
// box first.
//
//go:embed spotter.onnx
var Model []byte

// Clip is an H.264 video in MP4, 320x240, 30 frames per second, of digits by writers not in the training set.
//
//go:embed clip.mp4
var Clip []byte

// Truth is the ground truth of Clip, in the format of internal/clip/truth: boxes with the digit as their class.
//
//go:embed clip.json
var Truth []byte
