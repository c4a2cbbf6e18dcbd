package sources

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"millrace/internal/confine"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Kind is one kind of source. Kinds are registered by the init functions of their
// files.
type Kind struct {
	Name     string   // for messages
	Schemes  []string // of the addresses that it opens
	Request  []string // those of them that a request may name
	Examples []string // addresses that together use every setting, for the tests of all kinds
	FPS      bool     // it observes Env.FPS; otherwise the setting fps is refused
	Loop     []string // those of the schemes that observe Env.Loop; for others the setting loop is refused
	// New returns empty settings: a pointer to a struct with tags of package setting,
	// whose fields are keys of a stream that no other kind has.
	New func() Settings
	// Relative returns the address with its relative path, if it has one, resolved
	// against dir; nil for a kind without paths.
	Relative func(address, dir string) string
	// Transport returns the transport of the address's packets, for listings; nil for a
	// kind without one.
	Transport func(s Settings, address string) string
}

// Settings are the settings of one kind of source, for one stream.
type Settings interface {
	// Validate checks what the tags do not, for an address. It returns a *stream.Error
	// about a key. publicOnly says that a request made the stream, which must not use
	// private addresses.
	Validate(address string, publicOnly bool) error
	// Open opens the address and waits until its first frame can be read. Defaults are
	// filled in. The Reader ends when ctx does: then Next returns.
	Open(ctx context.Context, address string, e Env) (Reader, error)
}

// Env is what a source is opened with.
type Env struct {
	FPS    float64 // most frames per second; 0 = all frames of the source; for kinds with FPS
	Loop   bool    // a source with an end starts again; for schemes in Kind.Loop
	Memory *buf.Pool
	// OneThread reports whether a video is decoded by one thread, as for video.Options.
	OneThread func() bool
	// Needs are the sizes that frames are needed in, as for a Resizer.
	Needs     []video.Need
	Hardware  *video.Hardware        // decodes videos where it can; nil = software
	Sandbox   bool                   // confines ffmpeg, as for video.Options
	Programs  *confine.Programs      // confines programs of exec sources; nil = not
	MaxPixels int                    // largest width times height of a video; 0 = no limit
	Allow     func(netip.Addr) error // called with each network address; nil allows all
}

// Reader is an open source. It is for one goroutine.
type Reader interface {
	Info() Info
	// Next waits for a frame, whose CaptureUS is its time on the source's own clock;
	// the caller sets Seq. A frame without a Lease was read and lost, because the byte
	// budget is exhausted. io.EOF is the end, an *Unreadable a frame that cannot be
	// read, after which the source continues. All other errors are failures of the
	// source.
	Next() (stream.Frame, error)
	Close() error
}

// Resizer is a Reader whose frames can have less than the source's size. Frames say
// what they were scaled from.
type Resizer interface {
	// Resize changes the sizes that frames are needed in: they are scaled to the largest
	// of each side, never to more than the source's own size, which they have when there
	// are no needs or one is zero. It may be called by any goroutine, takes effect within
	// a few frames, and loses none.
	Resize(needs []video.Need)
}

// NeedOf returns the size that a model needs of a source's frames. The whole picture is
// needed for a region of it, and to be looked at by people.
func NeedOf(m *stream.Model) video.Need {
	width, height := m.FrameSize()
	return video.Need{Width: width, Height: height, Letterbox: width > 0 && m.Image.Fit == "letterbox"}
}

// Info describes an open source.
type Info struct {
	Width, Height int     // pixels of its frames; 0 when they differ
	PixelAspect   float64 // width of a pixel of its frames by its height, as players show it; 0 = unknown, which means 1
	FPS           float64 // declared by the source; 0 = unknown
	Codec         string  // of its video, by ffmpeg's name; "" = unknown
	Ends          bool    // it has an end and may be read as slowly as the reader wants
	Arrival       bool    // times of its frames are those of their arrival, which vary
	Timed         bool    // Next returns its frames at their times
}

// Unreadable is the error of one frame that cannot be read, of a source that continues.
type Unreadable struct{ Err error }

// Error implements error.
func (e *Unreadable) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Unreadable) Unwrap() error { return e.Err }

var kinds []Kind

// Register adds a kind, from an init function. It panics when an address would be of
// two kinds.
func Register(k Kind) {
	for _, s := range k.Schemes {
		if o := byScheme(s); o != nil {
			panic(fmt.Sprintf("sources: %s and %s both open %s addresses", o.Name, k.Name, s))
		}
	}
	all := setting.Of("", k.New())
	for _, o := range kinds {
		all.Add("", o.New()) // panics when two have one key
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

// Classify returns the scheme and kind of an address, by its form alone. An address
// without a scheme is a file or device. The error never contains the address.
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
		return "", nil, fmt.Errorf("%q is not a known kind of source; want a path or one of %s (a file whose name has a colon is written as ./NAME)", unknown.Scheme, list(Kind.schemes))
	case err != nil:
		return "", nil, err
	}
	return scheme, byScheme(scheme), nil
}

// LocalPath returns the path of an address that is the path of a file, or of a folder; "" for
// other addresses.
func LocalPath(address string) string {
	switch scheme, _, err := Classify(address); {
	case err == nil && scheme == schemeFolder:
		return folderPath(address)
	case err == nil && scheme == video.SchemeFile && !strings.HasPrefix(strings.ToLower(address), "file:"):
		return address
	}
	return ""
}

func (k Kind) schemes() []string { return k.Schemes }
func (k Kind) request() []string { return k.Request }

// RequestSchemes lists the schemes that requests may name, in words.
func RequestSchemes() string { return list(Kind.request) }

// list returns "a, b and c" of all kinds.
func list(of func(Kind) []string) string {
	var all []string
	for _, k := range kinds {
		all = append(all, of(k)...)
	}
	n := len(all) - 1
	return strings.Join(all[:n], ", ") + " and " + all[n]
}

// Open opens an address with the settings of its kind, which are left as they are:
// defaults are filled into a copy.
func Open(ctx context.Context, s Settings, address string, e Env) (Reader, error) {
	return setting.Filled(s).Open(ctx, address, e)
}

// Settle returns the settings for an address: s, or empty ones of the address's kind
// when s is nil. It returns an error if s is of another kind.
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
		return nil, stream.Errorf(stream.InvalidArgument, "source", "is a %s source, but the settings are of another kind (%T)", k.Name, s)
	}
	return s, nil
}
