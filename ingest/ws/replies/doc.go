// Package replies is what the protocols without sessions, plain mode and calls, share: frames are numbered from 0, each gets
// exactly one reply, and drops and errors have one form. Results are the protocols' own to code.
package replies
