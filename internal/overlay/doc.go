// Package overlay draws results of models over their pictures, and writes the pictures as a video.
//
// The package owns the reading of the outputs with conventional names (boxes, scores, classes, labels, ids,
// keypoints, mask, region), the drawing, and the ffmpeg child that encodes. The package must not know streams or
// servers.
package overlay
