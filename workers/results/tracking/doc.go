// Package tracking gives the boxes of a stream ids: an object keeps the same id from frame to frame.
//
// The kind iou is SORT (A. Bewley et al., "Simple Online and Realtime Tracking", ICIP 2016) on real time: each track
// predicts its box by a Kalman filter of constant velocity, predictions and boxes are assigned to each other by the
// largest sum of overlaps, and tracks begin after hits and end after misses. Times are the frames' times, so dropped
// frames and varying rates need no special case. A box with a low score may continue a track but not begin a track.
//
// The kind bytetrack (Y. Zhang et al., "ByteTrack: Multi-Object Tracking by Associating Every Detection Box", ECCV
// 2022) assigns the boxes with a high score first, and the other boxes to the tracks left over. Four additions keep
// more ids on simulated walkers: the process noise follows the errors of the predictions, boxes with a low score count
// less, a lost track has a margin, and boxes left over are compared with the last boxes of tracks (J. Cao et al.,
// "Observation-Centric SORT", CVPR 2023). The looks of objects are not compared: after a long occlusion an object has
// a new id.
//
// With Config.Camera tracks move with the scene: camera.go estimates the motion between small pictures of the frames.
//
// Only stage.go, which makes the tracker a stage after runs, knows streams and tensors.
package tracking
