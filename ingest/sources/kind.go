package sources

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Kind is one kind of source. Kinds are registered by the init functions of their
// files.
type Kind struct {
	Name    string   // in the list of settings
	Schemes []string // of the addresses that it opens
	Request []string // of them those that a request may name
	// New returns empty settings: a pointer to a struct with tags of package setting,
	// whose fields are keys of a stream that no other kind has.
	New func() Settings
	// Relative returns the address with its relative path, if it has one, starting
	// from dir; nil for a kind without paths.
	Relative func(address, dir string) string
}

// Settings are those of one kind of source, for one stream.
type Settings interface {
	// Validate says what is wrong with them for an address beyond what the tags say, as
	// *stream.Error about a key. publicOnly says that a request made the stream, which private addresses
	// are closed to.
	Validate(address string, publicOnly bool) error
	// Open opens the address and waits until its first frame can be read. ctx governs
	// the life of the Reader.
	Open(ctx context.Context, address string, e Env) (Reader, error)
}

// Env is what a source is opened with.
type Env struct {
	FPS    float64 // frames given a second, at most; 0 = as the source has them
	Loop   bool    // a source with an end starts over
	Memory *buf.Pool
	Allow  func(netip.Addr) error // asked about each address of the network; nil allows all
}

// Reader is an open source. It is for one goroutine.
type Reader interface {
	Info() Info
	// Next waits for a frame, whose CaptureUS is its time on the source's own clock;
	// its Seq is for the caller to set. A frame without a Lease was read and lost,
	// because the byte budget is exhausted. io.EOF is the end, an *Unreadable a frame
	// that cannot be read; the source goes on behind it. All other errors are its
	// failure.
	Next() (stream.Frame, error)
	Close() error
}

// Info describes an open source.
type Info struct {
	Width, Height int     // pixels of its frames; 0 = they differ
	FPS           float64 // as the source says; 0 = unknown
	Codec         string  // of its video, as ffmpeg calls it; "" = unknown
	Ends          bool    // it has an end, and waits for its reader
	Timed         bool    // its frames are given at their times, whoever reads
}

// Unreadable is one frame that cannot be read, of a source that goes on.
type Unreadable struct{ Err error }

// Error implements error.
func (e *Unreadable) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Unreadable) Unwrap() error { return e.Err }

var kinds []Kind

// Register adds a kind, from an init function.
func Register(k Kind) {
	for _, s := range k.Schemes {
		if o := byScheme(s); o != nil {
			panic(fmt.Sprintf("sources: %s and %s both open %s addresses", o.Name, k.Name, s))
		}
	}
	kinds = append(kinds, k)
	slices.SortFunc(kinds, func(a, b Kind) int { return strings.Compare(b.Name, a.Name) })
}

// Kinds lists the kinds.
func Kinds() []Kind { return slices.Clone(kinds) }

func byScheme(scheme string) *Kind {
	for i := range kinds {
		if slices.Contains(kinds[i].Schemes, scheme) {
			return &kinds[i]
		}
	}
	return nil
}

// Classify says of what scheme and kind an address is, by its form alone. What has
// no scheme is a file or device. The error never repeats the address.
func Classify(address string) (scheme string, k *Kind, err error) {
	if word, _, ok := strings.Cut(address, ":"); ok {
		if k = byScheme(strings.ToLower(word)); k != nil {
			return strings.ToLower(word), k, nil
		}
	}
	scheme, err = video.ClassifyURL(address)
	var unknown *video.UnknownSchemeError
	switch {
	case errors.As(err, &unknown):
		return "", nil, fmt.Errorf("%q is no known kind of source; want a path or one of %s (a file whose name has a colon is written as ./NAME)", unknown.Scheme, list(Kind.schemes))
	case err != nil:
		return "", nil, err
	}
	return scheme, byScheme(scheme), nil
}

func (k Kind) schemes() []string { return k.Schemes }
func (k Kind) request() []string { return k.Request }

// list is "a, b and c" of all kinds.
func list(of func(Kind) []string) string {
	var all []string
	for _, k := range kinds {
		all = append(all, of(k)...)
	}
	n := len(all) - 1
	return strings.Join(all[:n], ", ") + " and " + all[n]
}

// Settle returns the settings for an address: s, or empty ones of the address's
// kind for nil. It is an error if s is of another kind.
func Settle(address string, s Settings) (Settings, error) {
	_, k, err := Classify(address)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "%w", err)
	}
	own := k.New()
	if s == nil {
		return own, nil
	}
	if fmt.Sprintf("%T", own) != fmt.Sprintf("%T", s) {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "is a %s source, and has settings of another kind (%T)", k.Name, s)
	}
	return s, nil
}
