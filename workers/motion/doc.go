// Package motion finds what moves in a stream of pictures: the kind "motion".
//
// Detector is the algorithm alone and works without a server. It learns a
// background per pixel, keeps what differs from it, and returns a box for each
// connected part. The package owns the background of each stream. It must not
// know how pictures come or where boxes go.
package motion
