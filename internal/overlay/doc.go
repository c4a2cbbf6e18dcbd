// Package overlay draws what models answer over the pictures that they were
// asked about, and writes the pictures as a video.
//
// It owns the reading of the outputs that Millrace's models name alike (boxes,
// scores, classes, labels, keypoints, mask, region), the drawing, and the ffmpeg
// child that encodes. It must not know streams, frames on their way or servers.
package overlay
