// Package replies is what the protocols without sessions, plain mode and calls, share:
// frames are numbered from 0, each gets exactly one reply, and drops and errors have
// the same form. Each protocol encodes its own results.
package replies
