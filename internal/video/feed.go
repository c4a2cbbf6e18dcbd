package video

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// feedTick is the time base of a feed's times: 1/1000000 s.
const feedTick = 1000000

// content is the kind of a source by its first bytes; for the kinds but timed, ffmpeg would have to invent the times.
type content string

const (
	timed      content = ""     // any other: the container has times, or ffmpeg reports the failure
	motionJPEG content = "jpeg" // multipart parts, or consecutive pictures
	rawH264    content = "h264" // without a container, as are the following; named as ffmpeg names the format
	rawHEVC    content = "hevc"
)

// sniffBytes is how many bytes contentOf needs.
const sniffBytes = 16

// contentOf returns the kind of a source that begins with b.
func contentOf(b []byte) content {
	text := bytes.TrimLeft(b, "\r\n \t")
	switch {
	case bytes.HasPrefix(b, []byte{0xFF, 0xD8, 0xFF}), bytes.HasPrefix(text, []byte("--")), len(text) >= 8 &&
		bytes.EqualFold(text[:8], []byte("content-")):
		return motionJPEG
	}
	return elementary(b)
}

// elementary recognises the first unit of an H.264 or H.265 stream: a parameter set, a delimiter, SEI or a key
// picture. MPEG-1, MPEG-2 and MPEG-4 have other start codes; these formats declare their rates.
func elementary(b []byte) content {
	b = bytes.TrimLeft(b, "\x00")
	if len(b) < 3 || b[0] != 1 || b[1]&0x80 != 0 {
		return timed
	}
	switch reference, kind := b[1]&0x60 != 0, b[1]&0x1F; {
	case reference && (kind == 5 || kind == 7 || kind == 8), !reference && (kind == 6 || kind == 9):
		return rawH264
	}
	switch b[1] {
	case 32 << 1, 33 << 1, 34 << 1, 35 << 1, 39 << 1:
		return rawHEVC
	}
	return timed
}

// feed passes a source read by this process to ffmpeg on descriptor 3: motion JPEG as single pictures with arrival
// times, anything else unchanged.
type feed struct {
	content content
	file    *os.File // ffmpeg's end; closed after the start of ffmpeg

	cancel context.CancelFunc
	done   chan struct{}
	err    error // why the source ended, valid after done; nil for a normal end
}

// pictureSource returns JPEG pictures one by one; io.EOF is the end. Its methods are for one goroutine.
type pictureSource interface {
	next() (picture []byte, of size, at time.Time, err error)
}

// newFeed copies from in until the end of in. The end of the feed closes in.
func newFeed(ctx context.Context, is content, in io.ReadCloser, most int) (*feed, error) {
	if is == motionJPEG {
		return startFeed(ctx, is, in, func(to io.Writer) error {
			return copyPictures(to, &jpegReader{r: in, max: most, clock: time.Now})
		})
	}
	return startFeed(ctx, is, in, func(to io.Writer) error {
		_, err := io.Copy(to, in)
		return err
	})
}

// startFeed starts copy, the function that copies from in to ffmpeg.
func startFeed(ctx context.Context, is content, in io.Closer, copy func(io.Writer) error) (*feed, error) {
	out, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("video: %w", err)
	}
	f := &feed{content: is, file: out, done: make(chan struct{})}
	ctx, f.cancel = context.WithCancel(ctx)
	closeAll := sync.OnceFunc(func() {
		_ = in.Close()
		_ = to.Close()
	})
	context.AfterFunc(ctx, closeAll)
	go func() {
		defer close(f.done)
		defer closeAll()
		f.err = copy(to)
	}()
	return f, nil
}

// copyPictures writes pictures as IVF, with their arrival times counted from the first picture.
func copyPictures(to io.Writer, from pictureSource) error {
	j, _ := from.(*jpegReader)
	var begun time.Time
	var out []byte
	last := int64(-1)
	for {
		picture, of, at, err := from.next()
		switch {
		case j != nil && (err == io.EOF && j.found == 0 || errors.Is(err, errNoPicture)):
			return &noPictures{begin: string(j.begin)}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		out = out[:0]
		if begun.IsZero() {
			begun = at
			out = appendIVFHeader(out, "MJPG", of.w, of.h, feedTick)
		}
		last = max(at.Sub(begun).Microseconds(), last+1)
		out = append(out, make([]byte, 12)...)
		putIVFFrame(out[len(out)-12:], len(picture), uint64(last))
		if _, err := to.Write(append(out, picture...)); err != nil {
			return nil // ffmpeg has ended, and says why
		}
	}
}

// noPictures is the error of motion JPEG without a picture.
type noPictures struct{ begin string }

// Error implements error.
func (e *noPictures) Error() string {
	if e.begin == "" {
		return "it is empty"
	}
	return fmt.Sprintf("no JPEG picture was found in it; it begins with %.60q", e.begin)
}

// reason returns why the source of the feed ended, or nil where ffmpeg knows better. ffmpeg has ended.
func (f *feed) reason(src source, progress string) error {
	if f == nil {
		return nil
	}
	f.cancel()
	<-f.done
	var none *noPictures
	switch {
	case f.err == nil, errors.Is(f.err, os.ErrClosed), errors.Is(f.err, context.Canceled),
		errors.Is(f.err, http.ErrBodyReadAfterClose):
		return nil
	case errors.As(f.err, &none):
		return src.fail(NotVideo, src.red.text(none.Error()), f.err)
	}
	var own *Error
	if errors.As(f.err, &own) {
		return own
	}
	return src.fail(EndedEarly, "after "+progress+": "+src.red.text(f.err.Error()), f.err)
}

// started closes ffmpeg's end of the pipe in this process.
func (f *feed) started() {
	if f != nil {
		_ = f.file.Close()
	}
}

func (f *feed) close() {
	if f != nil {
		f.started()
		f.cancel()
		<-f.done
	}
}

// sniffed is a stream with its first bytes already read.
type sniffed struct {
	*bufio.Reader
	io.Closer
}

// sniff returns the kind of a stream, and the stream from its beginning.
func sniff(in io.ReadCloser) (content, sniffed) {
	s := sniffed{bufio.NewReaderSize(in, 64<<10), in}
	b, _ := s.Peek(sniffBytes)
	return contentOf(b), s
}
