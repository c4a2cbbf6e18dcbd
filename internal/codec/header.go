package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The errors of a bad picture. Errors of Header and Decode wrap one of these; other
// errors are mistakes of the caller (target, length of dst).
var (
	ErrUnknown     = errors.New("not a JPEG, PNG or WebP picture")
	ErrTruncated   = errors.New("picture is truncated")
	ErrCorrupt     = errors.New("picture is corrupt")
	ErrUnsupported = errors.New("picture uses an unsupported feature")
	ErrTooLarge    = errors.New("picture is too large")
)

// DefaultMaxPixels is the limit of the zero Limits.
const DefaultMaxPixels = 64 << 20

// Limits bounds what a header may claim.
type Limits struct {
	MaxPixels int // width times height; 0 is DefaultMaxPixels
}

func (l Limits) maxPixels() int {
	if l.MaxPixels <= 0 {
		return DefaultMaxPixels
	}
	return l.MaxPixels
}

// Info is what a picture's header contains.
type Info struct {
	Kind          Kind
	Width, Height int // as stored, before rotation
	Orientation   int // EXIF, 1 to 8; 1 when there is none

	animated bool // a WebP of several frames, of which the first is decoded

	// For a JPEG only.
	components   int
	progressive  bool
	sparseChroma bool // the chroma has a quarter of the columns or rows: 4:1:1, 4:1:0
}

// Upright is the size after the orientation is applied.
func (i Info) Upright() (w, h int) {
	if i.Orientation >= 5 {
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

// Header reads the header under the default limits; see Limits.Header.
func Header(b []byte) (Info, error) { return Limits{}.Header(b) }

// Header reads kind, size and orientation without decoding pixels. It allocates memory
// only for an error. It refuses a size over the limit, and a size for which there are too
// few bytes. Safe for concurrent use.
func (l Limits) Header(b []byte) (Info, error) {
	info := Info{Kind: Sniff(b), Orientation: 1}
	var err error
	minBytes := 0 // the fewest bytes that can hold such a picture
	switch info.Kind {
	case JPEG:
		minBytes, err = jpegHeader(b, &info)
	case PNG:
		minBytes, err = pngHeader(b, &info)
	case WebP:
		err = webpHeader(b, &info)
	default:
		err = unknownError(b)
	}
	if err != nil {
		return Info{Kind: info.Kind}, err
	}
	if info.Width <= 0 || info.Height <= 0 {
		return Info{Kind: info.Kind}, fmt.Errorf("codec: %v header: %w: size %dx%d has no pixels", info.Kind, ErrCorrupt, info.Width, info.Height)
	}
	if err := l.check(info.Width, info.Height); err != nil {
		return Info{Kind: info.Kind}, err
	}
	if len(b) < minBytes {
		return Info{Kind: info.Kind}, fmt.Errorf("codec: %v header: %w: claims %dx%d, which %d bytes cannot hold", info.Kind, ErrTruncated, info.Width, info.Height, len(b))
	}
	return info, nil
}

func (l Limits) check(w, h int) error {
	// Sides are below 2^31, so the product of two fits 64 bits.
	if p := uint64(w) * uint64(h); p > uint64(l.maxPixels()) {
		return fmt.Errorf("codec: %w: %dx%d is %d pixels, over the limit max_pixels=%d: raise max_pixels or send it smaller", ErrTooLarge, w, h, p, l.maxPixels())
	}
	return nil
}

func truncatedHeader(k Kind) error { return fmt.Errorf("codec: %v header: %w", k, ErrTruncated) }

// pngHeader reads IHDR, and eXIf, which may precede or follow the pixels.
func pngHeader(b []byte, info *Info) (minBytes int, err error) {
	const ihdrEnd = 8 + 8 + 13 + 4
	if len(b) < ihdrEnd {
		return 0, truncatedHeader(PNG)
	}
	if binary.BigEndian.Uint32(b[8:]) != 13 || string(b[12:16]) != "IHDR" {
		return 0, fmt.Errorf("codec: png header: %w: it does not start with IHDR", ErrCorrupt)
	}
	w, h := binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])
	if w > 1<<31-1 || h > 1<<31-1 {
		return 0, fmt.Errorf("codec: png header: %w: size %dx%d", ErrCorrupt, w, h)
	}
	info.Width, info.Height = int(w), int(h)
	for rest := b[ihdrEnd:]; len(rest) >= 12; {
		n := uint64(binary.BigEndian.Uint32(rest))
		name := string(rest[4:8])
		if n > uint64(len(rest)-12) {
			break
		}
		if name == "eXIf" {
			info.Orientation = exifOrientation(rest[8 : 8+n])
			break
		}
		rest = rest[12+n:]
	}
	// Deflate expands by at most 1,032, and a pixel takes at least a bit.
	if bits := uint64(w) * uint64(h); bits/(8*1032) < 1<<31 {
		minBytes = int(bits / (8 * 1032))
	}
	return minBytes, nil
}

// webpHeader reads the RIFF chunks up to the one with the size, and, where a flag
// announces EXIF, up to that, which follows the pixels.
func webpHeader(b []byte, info *Info) error {
	extended := false
	for rest := b[12:]; len(rest) >= 8; {
		n := uint64(binary.LittleEndian.Uint32(rest[4:]))
		body := rest[8:]
		have := min(n, uint64(len(body)))
		name, chunk := string(rest[:4]), body[:have]
		switch name {
		case "VP8X":
			if extended { // the library uses the first
				return fmt.Errorf("codec: webp header: %w: two VP8X chunks", ErrCorrupt)
			}
			if len(chunk) < 10 {
				return truncatedHeader(WebP)
			}
			info.animated = chunk[0]&(1<<1) != 0
			info.Width, info.Height = 1+u24(chunk[4:]), 1+u24(chunk[7:])
			extended = true
			if chunk[0]&(1<<3) == 0 {
				return nil
			}
		case "VP8 ":
			if extended {
				break
			}
			if len(chunk) < 10 {
				return truncatedHeader(WebP)
			}
			if chunk[0]&1 != 0 || string(chunk[3:6]) != "\x9d\x01\x2a" {
				return fmt.Errorf("codec: webp header: %w: no VP8 key frame", ErrCorrupt)
			}
			info.Width = int(binary.LittleEndian.Uint16(chunk[6:]) & 0x3fff)
			info.Height = int(binary.LittleEndian.Uint16(chunk[8:]) & 0x3fff)
			return nil
		case "VP8L":
			if extended {
				break
			}
			if len(chunk) < 5 {
				return truncatedHeader(WebP)
			}
			if chunk[0] != 0x2f {
				return fmt.Errorf("codec: webp header: %w: no VP8L signature", ErrCorrupt)
			}
			v := binary.LittleEndian.Uint32(chunk[1:])
			info.Width, info.Height = 1+int(v&0x3fff), 1+int(v>>14&0x3fff)
			return nil
		case "EXIF":
			if len(chunk) > 6 && string(chunk[:6]) == "Exif\x00\x00" {
				chunk = chunk[6:] // some writers keep the prefix of JPEG
			}
			info.Orientation = exifOrientation(chunk)
			if extended {
				return nil
			}
		}
		n += n & 1 // chunks are padded to even lengths
		if n >= uint64(len(body)) {
			break
		}
		rest = body[n:]
	}
	if extended {
		return nil
	}
	return truncatedHeader(WebP)
}

func u24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
