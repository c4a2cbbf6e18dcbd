package video

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// ffmpeg reads commands for its filters from standard input, one in 100 ms, between two packets of the source: the
// letter c and the line "FILTER -1 w 640" give the scale filter FILTER another width. Encoder and container continue,
// and the length of a frame tells its size. ffmpeg returns to the size of its command line when it rebuilds its filters,
// which it does when the source changes its size or pixel format.

const (
	// scaleName is the name of the filter that gives frames their size.
	scaleName = "scale@size"
	// A command has had no effect when so many frames and so much time have not brought it: frames of the size before
	// may wait in the pipe and in the decoder.
	commandFrames = 120
	commandTime   = 5 * time.Second
)

// scaleFilter is the filter that makes NV12 frames of BT.601 and limited range, of w by h pixels, from frames of any
// matrix and range. w and h are numbers or ffmpeg's expressions.
func scaleFilter(w, h string) string {
	return scaleName + "=w=" + w + ":h=" + h + ":flags=area:out_color_matrix=bt601:out_range=tv"
}

// size is that of a picture in pixels.
type size struct{ w, h int }

// resizer gives frames another size while ffmpeg runs. Its methods may be called by any goroutine.
type resizer struct {
	format   Format
	commands io.Writer // ffmpeg's standard input; nil when it takes no commands
	grow     func(bytes int)

	mu      sync.Mutex
	full    size // the largest
	first   size // of the command line
	want    size
	sent    size // to which the last commands lead
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

// rebuilt sets the size of frames after ffmpeg has rebuilt its filters, where its command line does not say it. It
// reports whether the length of a frame still tells its size.
func (s *resizer) rebuilt(first size) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = first
	all := s.sizes(s.sent)
	return !s.alike(all[:4]) // the others are too rare
}

// resize asks for frames of another size.
func (s *resizer) resize(to size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = to
	s.send()
}

// send sends the commands that lead to the wanted size, unless earlier commands have had no effect yet.
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
	_, _ = io.WriteString(s.commands, lines.String()) // an ffmpeg that has ended ends the reader too
}

// sizes are those that the next frame may have, the likely ones first. Between two commands it has the new width and the
// old height, and after ffmpeg has rebuilt its filters the first size, or a side of it.
func (s *resizer) sizes(sent size) [6]size {
	return [...]size{s.now, {sent.w, s.now.h}, sent, s.first, {sent.w, s.first.h}, {s.first.w, sent.h}}
}

// distinct returns the size, or one a little wider if the length of a frame would not tell its size.
func (s *resizer) distinct(to size) size {
	for w := to.w; w <= s.full.w; w++ {
		if all := s.sizes(size{w, to.h}); !s.alike(all[:4]) { // the others are too rare for another width
			return size{w, to.h}
		}
	}
	return s.full
}

// alike reports whether frames of two different sizes have the same length.
func (s *resizer) alike(all []size) bool {
	for i, a := range all {
		for _, b := range all[:i] {
			if a != b && s.format.size(a.w, a.h) == s.format.size(b.w, b.h) {
				return true
			}
		}
	}
	return false
}

// frame returns the size of the next frame by its length. ok is false when it is none of those that were asked for. err
// says, once, that ffmpeg does not scale as wanted.
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
		err = fmt.Errorf("ffmpeg does not scale to %d x %d pixels while it runs: its pictures have %d x %d", s.sent.w, s.sent.h, s.now.w, s.now.h)
	}
	s.send()
	return s.now, true, err
}
