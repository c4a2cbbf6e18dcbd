// Package tracking gives the boxes of a stream ids: an object keeps the same id from frame to frame.
//
// The algorithm is SORT (A. Bewley et al., "Simple Online and Realtime Tracking", ICIP 2016) on real time: each track
// predicts its box by a Kalman filter of constant velocity, predictions and boxes are assigned to each other by the
// largest sum of overlaps, and tracks begin after hits and end after misses. Times are the frames' times, so dropped
// frames and varying rates need no special case.
//
// As in ByteTrack (Y. Zhang et al., ECCV 2022), a box with a low score may continue a track but not begin a track.
// ByteTrack's second round of assignment is left out: on rendered clips and simulated crowds the second round kept no
// more ids, and lost some in crowds.
//
// Only stage.go, which makes the tracker a stage after runs, knows streams and tensors.
package tracking
