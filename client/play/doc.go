// Package play sends a video or a picture to a model of a running server, in real time,
// and counts the endings of all frames.
//
// It owns the times at which frames are sent, their size, the summary, and the frames that
// wait to be drawn over. Videos are read by internal/video, frames are sent by client, and
// results are drawn by internal/overlay. It must not interpret a model's outputs; OnReply
// and internal/overlay do.
package play
