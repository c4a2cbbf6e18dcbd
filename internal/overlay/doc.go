// Package overlay draws results of models over their pictures, and writes the
// pictures as a video.
//
// It owns the reading of the outputs with conventional names (boxes, scores,
// classes, labels, ids, keypoints, mask, region), the drawing, and the ffmpeg child
// that encodes. It must not know streams or servers.
package overlay
