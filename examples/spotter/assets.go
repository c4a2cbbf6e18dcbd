// Package spotter holds Millrace's own reference model, which finds and reads handwritten digits in 320x240 pictures, and
// a clip with its truth to try it on. The folder's README tells how they were made and what the model can do.
//
// It owns these files and nothing else: running the model and scoring its answers is for others.
package spotter

import _ "embed"

// Model is the ONNX file. Input image, FP32 [batch, 3, 240, 320], RGB, 0 to 1. Outputs boxes, FP32 [batch, 32, 4], x1 y1 x2 y2
// in pixels of the input, and scores, FP32 [batch, 32, 10], the chance of each digit for each box, the best box first.
//
//go:embed spotter.onnx
var Model []byte

// Clip is an H.264 video in MP4, 320x240, 30 frames a second, of digits whose writers the model has never seen.
//
//go:embed clip.mp4
var Clip []byte

// Truth is what is in Clip, as internal/clip/truth reads it: boxes with the digit as their class.
//
//go:embed clip.json
var Truth []byte
