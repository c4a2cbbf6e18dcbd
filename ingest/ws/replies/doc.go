// Package replies is the common part of the protocols without sessions, plain mode and calls: frames are numbered
// from 0, each frame gets exactly one reply, and drops and errors have the same form. Each protocol encodes its own
// results.
package replies
