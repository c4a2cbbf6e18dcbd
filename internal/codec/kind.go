package codec

import "fmt"

// Kind is the encoding of a picture, as told by its first bytes.
type Kind uint8

// The kinds that Decode takes.
const (
	Unknown Kind = iota
	JPEG
	PNG
	WebP
)

// String is the subtype of the kind's media type: "jpeg", "png", "webp".
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

// MediaType is "image/jpeg" and so on; "application/octet-stream" for Unknown.
func (k Kind) MediaType() string {
	if k == Unknown || k > WebP {
		return "application/octet-stream"
	}
	return "image/" + k.String()
}

// KindOf is the kind that a media type names ("image/jpeg", "image/jpg",
// "image/png", "image/webp"; parameters must be cut off before), else Unknown.
// It is what the sender claims: Sniff tells what the bytes are.
func KindOf(mediaType string) Kind {
	switch mediaType {
	case "image/jpeg", "image/jpg":
		return JPEG
	case "image/png":
		return PNG
	case "image/webp":
		return WebP
	}
	return Unknown
}

const pngMagic = "\x89PNG\r\n\x1a\n"

// Sniff tells the kind of a picture by content. Twelve bytes are enough.
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

// names is a small enumeration's table of names, shared by the text methods.
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
