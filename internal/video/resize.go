package video

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// ffmpeg reads commands for its filters from standard input, one command per 100 ms, between two packets of the
// source: the letter c and the line "FILTER -1 w 640" set the width of the scale filter FILTER. Encoder and container
// continue, and the length of a frame determines the frame's size. When the source changes its size or pixel format,
// ffmpeg rebuilds its filters and returns to the size of its command line.

const (
	// scaleName is the name of the filter that sets the size of frames.
	scaleName = "scale@size"
	// A command counts as lost when this number of frames and this time have passed without effect: frames of the old
	// size may wait in the pipe and in the decoder.
	commandFrames = 120
	commandTime   = 5 * time.Second
)

// scaleFilter is the filter that makes NV12 frames of w by h pixels and limited range from frames of any range. The
// matrix stays: see matrix, toBT601. w and h are numbers or ffmpeg expressions.
func scaleFilter(w, h string) string {
	return scaleName + "=w=" + w + ":h=" + h + ":flags=area:out_range=tv"
}

// toBT601 are options of the filter scale for frames in BT.601. They cost a path through RGB for other matrices.
const toBT601 = "out_color_matrix=bt601:out_range=tv"

// size is a picture's size in pixels.
type size struct{ w, h int }

// resizer changes the size of frames while ffmpeg runs. Its methods may be called by any goroutine.
type resizer struct {
	format   Format
	commands io.Writer // ffmpeg's standard input; nil when ffmpeg takes no commands
	grow     func(bytes int)

	mu      sync.Mutex
	full    size // the largest
	first   size // of the command line
	want    size
	sent    size // target of the last commands
	now     size // of the newest frame
	waiting bool // sent has not been reached
	since   time.Time
	frames  int  // since then
	again   bool // the commands were sent a second time
	failed  bool
}

// start sets the sizes of a new ffmpeg.
func (s *resizer) start(full, first size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full, s.first, s.want, s.sent, s.now = full, first, first, first, first
}

// rebuilt sets the size of frames after ffmpeg has rebuilt its filters, if the command line does not set the size.
// The result is whether the length of a frame still determines its size.
func (s *resizer) rebuilt(first size) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = first
	all := s.sizes(s.sent)
	return !s.sameLength(all[:4]) // the remaining sizes are too rare
}

// resize asks for frames of another size.
func (s *resizer) resize(to size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = to
	s.send()
}

// send sends the commands for the wanted size, unless earlier commands are still pending.
func (s *resizer) send() {
	if s.waiting || s.failed || s.commands == nil || s.want == s.sent && s.now == s.sent {
		return
	}
	s.want = s.distinct(s.want)
	s.sent = s.want
	if s.now == s.sent {
		return
	}
	s.again = false
	s.write()
}

func (s *resizer) write() {
	if s.grow != nil {
		s.grow(s.format.size(max(s.sent.w, s.now.w), max(s.sent.h, s.now.h)))
	}
	var lines strings.Builder
	if s.sent.w != s.now.w {
		fmt.Fprintf(&lines, "c%s -1 w %d\n", scaleName, s.sent.w)
	}
	if s.sent.h != s.now.h {
		fmt.Fprintf(&lines, "c%s -1 h %d\n", scaleName, s.sent.h)
	}
	s.waiting, s.since, s.frames = true, time.Now(), 0
	_, _ = io.WriteString(s.commands, lines.String()) // the end of ffmpeg ends the reader too
}

// sizes are the possible sizes of the next frame, the likely sizes first. Between the commands for width and height,
// a frame has the new width and the old height; after ffmpeg has rebuilt its filters, the first size, or a side of
// the first size.
func (s *resizer) sizes(sent size) [6]size {
	return [...]size{s.now, {sent.w, s.now.h}, sent, s.first, {sent.w, s.first.h}, {s.first.w, sent.h}}
}

// distinct returns the size, or a slightly wider size if the length of a frame would not determine its size.
func (s *resizer) distinct(to size) size {
	for w := to.w; w <= s.full.w; w++ {
		if all := s.sizes(size{w, to.h}); !s.sameLength(all[:4]) { // the remaining sizes are too rare for another width
			return size{w, to.h}
		}
	}
	return s.full
}

// sameLength reports whether frames of two different sizes have the same length.
func (s *resizer) sameLength(all []size) bool {
	for i, a := range all {
		for _, b := range all[:i] {
			if a != b && s.format.size(a.w, a.h) == s.format.size(b.w, b.h) {
				return true
			}
		}
	}
	return false
}

// frame returns the size of the next frame, from its length. ok is false when no requested size fits. err reports,
// once, that ffmpeg does not scale as requested.
func (s *resizer) frame(bytes int) (now size, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sizes(s.sent) {
		if s.format.size(c.w, c.h) == bytes {
			s.now, ok = c, true
			break
		}
	}
	if !ok {
		return size{}, false, nil
	}
	switch {
	case s.now == s.sent:
		s.waiting = false
	case !s.waiting:
	case s.frames < commandFrames || time.Since(s.since) < commandTime:
		s.frames++
	case !s.again:
		s.again = true
		s.write()
	default:
		s.waiting, s.failed = false, true
		err = fmt.Errorf("ffmpeg does not scale to %d x %d pixels while it runs: its pictures have %d x %d", s.sent.w,
			s.sent.h, s.now.w, s.now.h)
	}
	s.send()
	return s.now, true, err
}
