package video

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// maxBetween bounds the bytes before the first picture, and between two pictures: part headers, sound, padding.
	maxBetween = 4 << 20
	// maxBegin bounds the bytes kept from before the first picture.
	maxBegin = 1 << 10
)

// errNoPicture is the end of a search for a JPEG picture over maxBetween bytes.
var errNoPicture = errors.New("no JPEG picture was found")

// jpegReader finds the pictures in motion JPEG: multipart parts, or consecutive pictures. The reader relies on the
// markers of the pictures and ignores the bytes between two pictures, because many cameras send wrong or no
// boundaries, lengths and types of parts.
type jpegReader struct {
	r     io.Reader
	max   int // bytes of a picture
	clock func() time.Time
	at    time.Time // when the last bytes arrived
	buf   []byte    // data read, from the last picture on
	used  int       // bytes of the last picture, at the beginning of buf
	begin []byte    // the first bytes before the first picture
	found int       // pictures so far
}

// next returns the next picture, valid until the next call, its size, and the time of arrival of its last bytes. A
// picture without an end marker ends where the next picture begins, or at the end of the stream. io.EOF is the end.
func (j *jpegReader) next() (picture []byte, of size, at time.Time, err error) {
	j.buf = j.buf[:copy(j.buf, j.buf[j.used:])]
	for j.used = 0; ; {
		if err := j.find(); err != nil {
			return nil, size{}, time.Time{}, err
		}
		n, of, err := j.picture()
		switch {
		case err != nil:
			return nil, size{}, time.Time{}, err
		case n > 0 && of != (size{}):
			j.used, j.found = n, j.found+1
			return j.buf[:n], of, j.at, nil
		}
		j.drop(2) // a false start marker
	}
}

// drop removes bytes from the beginning of buf.
func (j *jpegReader) drop(n int) {
	if j.found == 0 && len(j.begin) < maxBegin {
		j.begin = append(j.begin, j.buf[:min(n, maxBegin-len(j.begin))]...)
	}
	j.buf = j.buf[:copy(j.buf, j.buf[n:])]
}

// fill reads until buf has n bytes.
func (j *jpegReader) fill(n int) error {
	for len(j.buf) < n {
		if n > j.max {
			return fmt.Errorf("a JPEG picture of more than %d bytes", j.max)
		}
		if cap(j.buf)-len(j.buf) < 4<<10 {
			j.buf = append(make([]byte, 0, max(64<<10, 2*cap(j.buf))), j.buf...)
		}
		got, err := j.r.Read(j.buf[len(j.buf):cap(j.buf)])
		if got > 0 {
			j.buf, j.at = j.buf[:len(j.buf)+got], j.clock()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// find drops the bytes before the next start marker.
func (j *jpegReader) find() error {
	for dropped := 0; dropped <= maxBetween; {
		err := j.fill(3)
		if i := bytes.Index(j.buf, []byte{0xFF, 0xD8, 0xFF}); i >= 0 {
			j.drop(i)
			return nil
		}
		n := max(len(j.buf)-2, 0)
		if err != nil {
			n = len(j.buf)
		}
		dropped += n
		if j.drop(n); err != nil {
			return err
		}
	}
	return errNoPicture
}

// picture returns the length and size of the picture at the beginning of buf; zero for something else than a picture.
func (j *jpegReader) picture() (n int, of size, err error) {
	scanned := false
	for n = 2; ; {
		if err := j.fill(n + 2); err != nil {
			return j.cut(n, of, scanned, err)
		}
		if j.buf[n] != 0xFF {
			if !scanned {
				return 0, size{}, nil
			}
			n++ // of a scan
			if i := bytes.IndexByte(j.buf[n:], 0xFF); i >= 0 {
				n += i
			} else {
				n = len(j.buf)
			}
			continue
		}
		switch marker := j.buf[n+1]; {
		case marker == 0xFF: // padding
			n++
		case marker == 0xD9:
			if !scanned {
				return 0, size{}, nil
			}
			return n + 2, of, nil
		case marker == 0xD8: // the next picture
			return j.cut(n, of, scanned, nil)
		case marker <= 0x01 || marker >= 0xD0 && marker <= 0xD7: // without a length
			n += 2
		default:
			if err := j.fill(n + 10); err != nil {
				return j.cut(n, of, scanned, err)
			}
			b := j.buf[n:]
			if isFrameHeader(marker) {
				of = size{int(b[7])<<8 | int(b[8]), int(b[5])<<8 | int(b[6])}
			}
			scanned = scanned || marker == 0xDA
			n += 2 + (int(b[2])<<8 | int(b[3]))
		}
	}
}

// isFrameHeader reports whether a marker is a start of frame, the segment with the picture's size.
func isFrameHeader(marker byte) bool {
	return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC
}

// cut ends a picture of n bytes without an end marker. Decoders need no end marker.
func (j *jpegReader) cut(n int, of size, scanned bool, err error) (int, size, error) {
	if err == nil || err == io.EOF && scanned {
		if !scanned {
			return 0, size{}, nil
		}
		return min(n, len(j.buf)), of, nil
	}
	return 0, size{}, err
}
