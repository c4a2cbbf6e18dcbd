package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The errors of a bad picture. Errors of Header and Decode wrap one of these; all other errors are mistakes of the
// caller (target, length of dst).
var (
	ErrUnknown     = errors.New("not a JPEG, PNG or WebP picture")
	ErrTruncated   = errors.New("picture is truncated")
	ErrCorrupt     = errors.New("picture is corrupt")
	ErrUnsupported = errors.New("picture uses an unsupported feature")
	ErrTooLarge    = errors.New("picture is too large")
	ErrSlow        = errors.New("decoding the picture takes too long")
)

// DefaultMaxPixels is the limit of the zero Limits.
const DefaultMaxPixels = 64 << 20

// freePixels is the number of pixels (4096x2048) up to which a picture may have any number of pixels per byte.
// Encoders write a black frame of this size in 400 bytes (WebP, lossless) or 1 KB (PNG, a bit a pixel), and decoding
// takes 75 ms at most.
const freePixels = 8 << 20

// Limits bounds the claims and costs of pictures. Errors name the settings of the server; the names are the same in
// limits.
type Limits struct {
	MaxPixels int // width times height; 0 is DefaultMaxPixels
	// MaxDecoded bounds the decoded pixels: all pixels of a PNG or WebP, and the pixels of a JPEG at its scale of
	// decoding; 0 = no bound.
	MaxDecoded int
	// MaxPerByte bounds the pixels for each byte of a picture of more than 8 Mi pixels, see
	// TooFewBytes; 0 is no bound.
	MaxPerByte int
	// MaxTime bounds the time of decoding; 0 is no bound. image/jpeg and the
	// libraries of WebP are interrupted only between pieces of the picture.
	MaxTime time.Duration
}

func (l Limits) maxPixels() int {
	if l.MaxPixels <= 0 {
		return DefaultMaxPixels
	}
	return l.MaxPixels
}

// Info is the information in a picture's header.
type Info struct {
	Kind          Kind
	Width, Height int // as stored, before rotation
	Orientation   int // EXIF, 1 to 8; 1 if absent

	animated bool // a WebP of several frames; only the first is decoded

	// For a JPEG only.
	components   int
	progressive  bool
	scans        int  // of a progressive picture, including false markers in the coded data
	jpegMemory   int  // upper bound of allocations of the build's JPEG library
	sparseChroma bool // the chroma has a quarter of the columns or rows: 4:1:1, 4:1:0

	// For a PNG only.
	pngDepth, pngColor int
	interlaced         bool

	webpLossless bool // the colours or the alpha channel
	webpMemory   int  // upper bound of the library's allocations for a WebP
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

// Header reads kind, size and orientation without decoding pixels. Header allocates memory only for an error, and
// refuses a size over the limit, and a size too large for the number of bytes. Safe for concurrent use.
func (l Limits) Header(b []byte) (Info, error) {
	info := Info{Kind: Sniff(b), Orientation: 1}
	var err error
	minBytes := 0 // the least bytes for a picture of this size
	switch info.Kind {
	case JPEG:
		minBytes, err = jpegHeader(b, &info)
	case PNG:
		minBytes, err = pngHeader(b, &info)
	case WebP:
		if err = webpHeader(b, &info); err == nil {
			info.webpMemory = webpMemory(b, &info)
		}
	default:
		err = unknownError(b)
	}
	if err != nil {
		return Info{Kind: info.Kind}, err
	}
	if info.Width <= 0 || info.Height <= 0 {
		return Info{Kind: info.Kind}, fmt.Errorf("codec: %v header: %w: size %dx%d has no pixels", info.Kind,
			ErrCorrupt, info.Width, info.Height)
	}
	if err := l.check(info.Width, info.Height); err != nil {
		return Info{Kind: info.Kind}, err
	}
	if l.TooFewBytes(info.Width, info.Height, len(b)) {
		return Info{Kind: info.Kind}, fmt.Errorf("codec: %w: %dx%d in %d bytes is %d pixels a byte, over "+
			"limits.max_pixels_per_byte=%d: raise it, or send the picture smaller", ErrTooLarge, info.Width,
			info.Height, len(b), info.Width*info.Height/len(b), l.MaxPerByte)
	}
	if len(b) < minBytes {
		return Info{Kind: info.Kind}, fmt.Errorf("codec: %v header: %w: claims %dx%d, which %d bytes cannot hold",
			info.Kind, ErrTruncated, info.Width, info.Height, len(b))
	}
	return info, nil
}

// TooFewBytes reports whether a picture, or key frame of a video, of w by h pixels in n bytes has more pixels per
// byte than MaxPerByte allows.
func (l Limits) TooFewBytes(w, h, n int) bool {
	p := uint64(w) * uint64(h)
	return l.MaxPerByte > 0 && p > freePixels && p > uint64(l.MaxPerByte)*uint64(n)
}

func (l Limits) check(w, h int) error {
	// Sides are below 2^31, so the product of two fits 64 bits.
	if p := uint64(w) * uint64(h); p > uint64(l.maxPixels()) {
		return fmt.Errorf("codec: %w: %dx%d is %d pixels, over limits.max_pixels=%d: raise it, or send the picture "+
			"smaller", ErrTooLarge, w, h, p, l.maxPixels())
	}
	return nil
}

func truncatedHeader(k Kind) error { return fmt.Errorf("codec: %v header: %w", k, ErrTruncated) }

// pngHeader reads IHDR, and eXIf, before or after the pixels.
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
	if err := pngFormat(b[16:29], info); err != nil {
		return 0, err
	}
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

// webpHeader reads the RIFF chunks up to the chunk with the size, and, where a flag announces EXIF, up to the EXIF
// chunk after the pixels.
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

// webpMemory sets info.webpLossless and returns an upper bound of the library's memory: for a lossy picture 1.5 bytes
// a pixel and rows; for a lossless picture 4 bytes a pixel and 4 for colours; the same again for an alpha channel
// coded like a lossless picture.
func webpMemory(b []byte, info *Info) int {
	pixels := ((info.Width + 15) &^ 15) * ((info.Height + 15) &^ 15)
	n := 0
	if info.animated {
		n = 4*pixels + len(b) // the canvas, and the frame's bytes in a container
	}
	for rest := b[12:]; len(rest) >= 8; {
		size := uint64(binary.LittleEndian.Uint32(rest[4:]))
		switch string(rest[:4]) {
		case "VP8 ":
			return n + 2*pixels + int(min(size, uint64(len(b)))) + 64<<10
		case "VP8L":
			info.webpLossless = true
			return n + 10*pixels + 64<<10
		case "ALPH":
			info.webpLossless = len(rest) > 8 && rest[8]&3 != 0
			n += 11 * pixels
		case "ANMF":
			return n + 13*pixels + 64<<10
		}
		if size += size & 1; size >= uint64(len(rest)-8) {
			break
		}
		rest = rest[8+size:]
	}
	return n + 13*pixels + 64<<10
}

func u24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
