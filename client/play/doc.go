// Package play sends a video or a picture to a model of a running server, at the
// pace of its own clock, and accounts for every frame.
//
// It owns the pace, the size in which frames are sent, the summary, and the
// frames that wait to be drawn over. Reading videos is internal/video's, the wire
// is the client's, drawing is overlay's. It must not know what a model answers:
// that is OnReply's business, and overlay's.
package play
