// Package tracking gives the boxes of a stream's successive frames ids that stay
// with what they show.
//
// It is SORT (A. Bewley et al., "Simple Online and Realtime Tracking", ICIP 2016)
// on real time: each track predicts its box by a Kalman filter of constant
// velocity, predictions and boxes are assigned to each other by the largest sum
// of overlaps, and tracks begin and end by hits and silence. Times are the
// frames', so dropped frames and uneven rates are no special case.
//
// That a box of a low score may continue a track and not begin one is from
// ByteTrack (Y. Zhang et al., ECCV 2022). Its second round of assignment is left
// out: on rendered clips and crowds with made-up scores it saved no id, and cost
// some where things crowd.
//
// Only stage.go, which makes it a stage after runs, knows streams and tensors.
package tracking
