// Package plain has the protocols without sessions: plain mode, and the calls at /models/infer.
//
// In plain mode a connection is one stream, each binary message is a frame, and each frame gets one reply. A text
// message is a frame for a model with tensor inputs; for other models a text message makes the server pull a video.
//
// A call is a text message in the form of the Open Inference Protocol. The call's input is the address of a video;
// each frame of the video gets a reply in the same form.
//
// In both protocols a sink numbers the frames of a stream from 0, each frame gets exactly one reply, and drops and
// errors have the same form; each protocol encodes its own results. A puller reads one video at a time for a
// connection, and a bounded number in all: the frames of the video feed another stream.
//
// Package plain must not know millrace.v1.
package plain
