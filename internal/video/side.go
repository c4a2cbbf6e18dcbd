package video

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// sideOutput is an output of ffmpeg beside the frames, through a pipe that is read until ffmpeg's end: without a reader
// ffmpeg would block.
type sideOutput struct {
	what    string // the content, for messages
	in      *lazyPipe
	out     *os.File // ffmpeg's end; closed after its start
	started bool
	done    chan struct{}
}

func newSideOutput(what string) (*sideOutput, error) {
	in, out, err := newLazyPipe()
	if err != nil {
		return nil, fmt.Errorf("video: %w", err)
	}
	return &sideOutput{what: what, in: in, out: out, done: make(chan struct{})}, nil
}

// start calls read in a goroutine.
func (s *sideOutput) start(read func(*bufio.Reader) error, log func(string)) {
	_ = s.out.Close()
	s.started = true
	go func() {
		defer close(s.done)
		defer s.in.Close()
		if err := read(bufio.NewReaderSize(s.in, 64<<10)); err != nil && err != io.EOF &&
			!errors.Is(err, os.ErrDeadlineExceeded) && log != nil {
			log("ffmpeg's " + s.what + " cannot be read: " + err.Error())
		}
	}()
}

// close waits until everything has been read; ffmpeg has ended.
func (s *sideOutput) close() {
	if !s.started {
		_, _ = s.in.Close(), s.out.Close()
		return
	}
	s.in.hurry(time.Now().Add(stopGrace)) // a descendant of ffmpeg may have the pipe
	<-s.done
}
