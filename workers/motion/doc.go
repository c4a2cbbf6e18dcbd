// Package motion is the worker kind that detects moving objects.
//
// Detector is the algorithm and works without a server: background subtraction with
// a learned background and noise per pixel, and a box for each connected part of the
// foreground. The package owns the background of each stream. It must not know where
// pictures come from or where boxes go.
package motion
