package codec

import (
	"fmt"
	"strings"
)

// Kind is the encoding of a picture, by its first bytes.
type Kind uint8

// The kinds accepted by Decode.
const (
	Unknown Kind = iota
	JPEG
	PNG
	WebP
)

// String returns the subtype of the kind's media type: "jpeg", "png", "webp".
func (k Kind) String() string {
	switch k {
	case JPEG:
		return "jpeg"
	case PNG:
		return "png"
	case WebP:
		return "webp"
	}
	return "unknown"
}

const pngMagic = "\x89PNG\r\n\x1a\n"

// Sniff returns the kind of a picture by its first twelve bytes.
func Sniff(b []byte) Kind {
	switch {
	case len(b) >= 3 && b[0] == 0xff && b[1] == 0xd8 && b[2] == 0xff:
		return JPEG
	case len(b) >= 8 && string(b[:8]) == pngMagic:
		return PNG
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return WebP
	}
	return Unknown
}

// otherFormats are formats sent by mistake, recognised by the bytes at an offset.
var otherFormats = [...]struct {
	at          int
	magic, name string
}{
	{0, "GIF8", "a GIF"}, {0, "BM", "a BMP"}, {0, "II*\x00", "a TIFF"}, {0, "MM\x00*", "a TIFF"},
	{4, "ftyphei", "a HEIC"}, {4, "ftyphev", "a HEIC"}, {4, "ftypmif1", "a HEIC"}, {4, "ftypavi", "an AVIF"},
	{0, "\xff\x0a", "a JPEG XL"}, {4, "JXL \r\n", "a JPEG XL"}, {4, "jP  \r\n", "a JPEG 2000"},
	{0, "%PDF", "a PDF"}, {0, "<svg", "an SVG"}, {0, "<?xml", "XML"},
	{4, "ftyp", "a video"}, {0, "\x1aE\xdf\xa3", "a video"},
}

// unknownError is the error for bytes of no known kind.
func unknownError(b []byte) error {
	what := fmt.Sprintf("%d bytes", len(b))
	for _, o := range otherFormats {
		if len(b) > o.at && strings.HasPrefix(string(b[o.at:min(len(b), o.at+8)]), o.magic) {
			what = o.name
			break
		}
	}
	return fmt.Errorf("codec: %w (%s): send one of those, or raw pixels", ErrUnknown, what)
}

// names are the names of an enumeration's values, for its text methods.
type names []string

func (n names) name(i uint8) string {
	if int(i) < len(n) {
		return n[i]
	}
	return fmt.Sprintf("%d", i)
}

func (n names) parse(what string, text []byte) (uint8, error) {
	for i, s := range n {
		if string(text) == s {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q is unknown: use one of %v", what, text, []string(n))
}
