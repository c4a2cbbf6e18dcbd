package video

import (
	"bufio"
	"fmt"
	"sync/atomic"
)

// Decode selects the pictures of a source that ffmpeg decodes. The decoders of ffmpeg for AV1 and VP9 decode all.
type Decode string

// The values of Decode.
const (
	DecodeAll       Decode = "all"
	DecodeReference Decode = "reference" // pictures needed by other pictures: no B-frames at the lowest layer
	DecodeKey       Decode = "key"       // pictures that need no other picture
)

// skipFrame returns ffmpeg's name for the skipped pictures; "" = none.
func (d Decode) skipFrame() string {
	switch d {
	case DecodeReference:
		return "noref"
	case DecodeKey:
		return "nokey"
	}
	return ""
}

// pictureCount counts the pictures of a source before decoding: ffmpeg writes a line for each.
type pictureCount struct {
	*sideOutput
	n       atomic.Uint64
	skipped uint64 // see Reader.Skipped
	over    bool   // all pictures have been counted
}

// pictureArgs make ffmpeg write a line for each picture from the first key picture on.
func pictureArgs(descriptor int) []string {
	return []string{"-map", "0:V:0", "-an", "-sn", "-dn", "-map_metadata", "-1", "-c", "copy", "-flush_packets",
		"1", "-f", "framecrc", fmt.Sprintf("pipe:%d", descriptor)}
}

func newPictureCount() (*pictureCount, error) {
	s, err := newSideOutput("list of pictures")
	if err != nil {
		return nil, err
	}
	return &pictureCount{sideOutput: s}, nil
}

// read counts the lines of ffmpeg's framecrc: lines with a # are headers.
func (p *pictureCount) read(r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line[0] != '#' {
			p.n.Add(1)
		}
	}
}

// maxInside is the most pictures between the demultiplexer and Next: up to 16 wait for their turn in presentation
// order, up to 16 threads of a decoder have a picture each, and the rest is in filters and pipes.
const maxInside = 40

// Skipped returns how many pictures of the source, from the first key picture on, became no frame because of
// Options.Decode, Options.FPS or damage; 0 with DecodeAll. The newest pictures, which may become frames, are not
// counted before the end of ffmpeg. Skipped never falls. Only the goroutine of Next may call Skipped.
func (r *Reader) Skipped() uint64 {
	p := r.pictures
	if p == nil {
		return 0
	}
	n := p.n.Load()
	gone := uint64(r.index)
	if !p.over {
		gone += maxInside
	}
	if n > gone {
		p.skipped = max(p.skipped, n-gone)
	}
	return p.skipped
}
