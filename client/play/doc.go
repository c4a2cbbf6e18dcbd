// Package play sends a video or a picture to a model of a running server, in real time, and counts the endings of all
// frames.
//
// Package play owns the sending times of frames, their size, the summary, and the frames waiting for the overlay.
// Package internal/video reads videos, package client sends frames, and package internal/overlay draws results.
// Package play must not interpret a model's outputs; OnReply and internal/overlay do.
package play
