// Package heap sets when Go's garbage collector runs: less often than by itself while the heap is small, and
// more often when it reaches a limit.
package heap

// size is a few times the heap of a server without load.
const size = 16 << 20

// reserve is never read or written, so that it has no resident memory.
var reserve []byte

// Reserve makes the heap larger by bytes that nobody uses. The collector runs when the
// heap has grown by GOGC percent, and with small requests the heap of a server is a few
// megabytes: without the reserve it is collected tens of times a second. As many bytes of
// garbage can become resident in exchange.
func Reserve() {
	if reserve == nil {
		reserve = make([]byte, size)
	}
}
