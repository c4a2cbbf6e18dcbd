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

// Kind is one kind of source. The init functions of the kinds' files register the kinds.
type Kind struct {
	Name     string   // for messages
	Schemes  []string // of the addresses of this kind
	Request  []string // schemes allowed for requests
	Examples []string // addresses that together use every setting, for the tests common to all kinds
	FPS      bool     // observes Env.FPS; otherwise the setting fps is refused
	Loop     []string // schemes that observe Env.Loop; for other schemes the setting loop is refused
	// New returns empty settings: a pointer to a struct with tags of package setting. The fields are keys of a
	// stream, not shared with another kind.
	New func() Settings
	// Relative returns the address with a relative path resolved against dir; nil for a kind without paths.
	Relative func(address, dir string) string
	// Transport returns the transport of the address's packets, for listings; nil for a kind without packets.
	Transport func(s Settings, address string) string
}

// Settings are the settings of a kind of source for one stream.
type Settings interface {
	// Validate makes the checks beyond the tags, for an address. An error is a *stream.Error about a key. publicOnly
	// says that a request made the stream and private addresses are forbidden.
	Validate(address string, publicOnly bool) error
	// Open opens the address and waits until the first frame can be read. Defaults are filled in. The end of ctx ends
	// the Reader: then Next returns.
	Open(ctx context.Context, address string, e Env) (Reader, error)
}

// Env is the environment of an opening of a source.
type Env struct {
	FPS    float64 // most frames per second; 0 = all frames of the source; for kinds with FPS
	Loop   bool    // a source with an end starts again; for schemes in Kind.Loop
	Memory *buf.Pool
	// OneThread reports whether one thread decodes a video, as in video.Options.
	OneThread func() bool
	// Needs are the frame sizes needed, as for a Resizer.
	Needs     []video.TargetSize
	Hardware  *video.Hardware        // hardware decoding of videos where possible; nil = software
	Sandbox   bool                   // confines ffmpeg, as for video.Options
	Upload    bool                   // the file comes from a client, as for video.Options
	Programs  *confine.Programs      // confines programs of exec sources; nil = not
	Packets   func(video.Fragment)   // as for video.Options; nil = not wanted
	MaxPixels int                    // largest width times height of a video; 0 = no limit
	Allow     func(netip.Addr) error // called with each network address; nil allows all
}

// Reader is an open source, for use by one goroutine.
type Reader interface {
	Info() Info
	// Next waits for a frame. CaptureUS is the frame's time on the source's own clock; the caller sets Seq. A frame
	// without a Lease was read and lost, because the byte budget is exhausted. io.EOF is the end. An *Unreadable is
	// the error of an unreadable frame; the source continues. All other errors are failures of the source.
	Next() (stream.Frame, error)
	Close() error
}

// Resizer is a Reader with frames scaled down from the source's size. Frames contain the original size.
type Resizer interface {
	// Resize changes the needed sizes: frames are scaled to the largest width and height, but never above the
	// source's own size. Without needs, or with a zero need, frames have the source's own size. Any goroutine may
	// call Resize; the change takes effect within a few frames, and no frame is lost.
	Resize(needs []video.TargetSize)
}

// Skipper is a Reader that does not decode all pictures of a video.
type Skipper interface {
	// Skipped returns the number of pictures that became no frame, so far, as for video.Reader.
	Skipped() uint64
}

// NeedOf returns the frame size needed by a model. The whole picture is needed for a region of the picture, and for
// viewing by people.
func NeedOf(m *stream.Model) video.TargetSize {
	width, height := m.FrameSize()
	return video.TargetSize{Width: width, Height: height, Letterbox: width > 0 && m.Image.Fit == "letterbox"}
}

// Info describes an open source.
type Info struct {
	Width, Height int     // pixels per frame; 0 = varying
	PixelAspect   float64 // width of a pixel by its height, as players show the pixel; 0 = unknown, treated as 1
	FPS           float64 // declared by the source; 0 = unknown
	Frames        int64   // number of frames by the declared length and rate; 0 = unknown
	Codec         string  // of its video, by ffmpeg's name; "" = unknown
	Ends          bool    // the source has an end and may be read as slowly as the reader wants
	Arrival       bool    // frames have the times of their arrival, with jitter
	Timed         bool    // Next returns frames at their times
}

// Unreadable is the error of a single unreadable frame; the source continues.
type Unreadable struct{ Err error }

// Error implements error.
func (e *Unreadable) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Unreadable) Unwrap() error { return e.Err }

var kinds []Kind

// Register adds a kind, from an init function. Register panics when an address would be of two kinds.
func Register(k Kind) {
	for _, s := range k.Schemes {
		if o := byScheme(s); o != nil {
			panic(fmt.Sprintf("sources: %s and %s both open %s addresses", o.Name, k.Name, s))
		}
	}
	all := setting.TableOf("", k.New())
	for _, o := range kinds {
		all.Add("", o.New()) // panics when two kinds have the same key
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

// Classify returns the scheme and kind of an address, by its form alone. An address without a scheme is a file or
// device. An error never contains the address.
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
		return "", nil, fmt.Errorf("%q is not a known kind of source; want a path or one of %s (a file whose name "+
			"has a colon is written as ./NAME)", unknown.Scheme, list(Kind.schemes))
	case err != nil:
		return "", nil, err
	}
	return scheme, byScheme(scheme), nil
}

// LocalPath returns the path of an address of a file or folder; "" for other addresses.
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

// RequestSchemes lists the schemes allowed for requests, in words.
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

// Open opens an address with the settings of its kind. The settings stay unchanged: defaults are filled into a copy.
func Open(ctx context.Context, s Settings, address string, e Env) (Reader, error) {
	return setting.Filled(s).Open(ctx, address, e)
}

// Settle returns the settings for an address: s, or empty settings of the address's kind when s is nil. Settle
// returns an error if s is of another kind.
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
		return nil, stream.Errorf(stream.InvalidArgument, "source",
			"is a %s source, but the settings are of another kind (%T)", k.Name, s)
	}
	return s, nil
}
