package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/setting"
	"millrace/stream/rules"
)

// endGrace is how long delivery continues after the server or the stream was told to
// end.
const endGrace = 2 * time.Second

// Kind is one kind of sink. The init function in a kind's file registers the kind.
type Kind struct {
	// Name is the key under sinks that turns the sink on. Statistics and metrics name the sink by Name.
	Name string
	// Exclusive says that no two streams may have the same value of the key Name, and that no other sink may have
	// this value as a path.
	Exclusive bool
	// Remote says that the value of the key Name is the address of another host, which a request may have to name by
	// a public address.
	Remote bool
	// New returns empty settings: a pointer to a struct with tags of package setting, whose fields are keys under
	// sinks. A request may set the sink if the field called Name allows requests.
	New func() Settings
}

// Settings are the settings of one kind of sink for one stream.
type Settings interface {
	// Enabled reports whether the stream has the sink.
	Enabled() bool
	// Validate makes the checks that tags cannot express. Errors are *stream.Error about a key such as "sinks.file".
	// Validate is also called for a disabled sink.
	Validate() error
	// Open returns the sink. The sink does nothing until its methods are called. Defaults are filled in.
	Open(Env) Sink
}

// Env is a sink's view of its stream and of the server.
type Env struct {
	Stream    string                 // name of the stream
	Allow     func(netip.Addr) error // called with each network address; nil allows all
	Requested bool                   // a request made the sink: the file is in Files
	Files     *Files                 // nil = requests may name no file
	Keeps     bool                   // the caller keeps lines that are not delivered: see Sink
	Settled   func()                 // called after each change of Stats.Sent or Stats.Lost; nil = not called
	Log       *slog.Logger

	// Counts returns the counts of the stream's rules; all is false while further models may have counts. nil = none.
	Counts func() (list []ModelCounts, all bool)
	// Picture returns the newest clip with a picture, or "", and a function that reads the picture; nil = none.
	Picture func() (clip string, jpeg func() ([]byte, error))
	// Removed reports, when the sink ends, that the stream or the sink was removed; nil = was not removed.
	Removed func() bool
}

// MaxPicture is the most bytes of a picture of Env.Picture. Sinks refuse a larger picture.
const MaxPicture = 4 << 20

// ModelCounts are the counts of a stream's rules, of the tracks of one model.
type ModelCounts struct {
	Model string `json:"model"`
	rules.Counts
}

// Sink takes the results of one stream. One goroutine calls Write and Close, another goroutine calls Run, and any
// goroutine may call Stats. With Env.Keeps, which only sinks of events have to follow, each line is sent or lost after
// the lines before, no line is lost because a receiver is away, and the lines that are left at the end are not lost.
type Sink interface {
	// Write takes one line of JSON without a line feed. Write must not change the line, and does not wait for a
	// receiver.
	Write(line []byte)
	// Close marks the end of writing.
	Close()
	// Run delivers until Close has been called and all written lines are delivered or counted as lost. When ctx ends,
	// Run has two more seconds.
	Run(ctx context.Context)
	// Stats reads the counters.
	Stats() Stats
}

// Stats are the counters of a sink. Counters only increase.
type Stats struct {
	Sent    uint64 `json:"sent"`            // results delivered
	Retries uint64 `json:"retries"`         // attempts to deliver after the first
	Lost    uint64 `json:"lost"`            // results that were not delivered
	Waiting uint64 `json:"waiting"`         // results that are neither sent nor lost; counted by the owner of the sink
	Error   string `json:"error,omitempty"` // the present failure; "" for none
}

// counters are the source of Stats; any goroutine may change the counters.
type counters struct {
	sent, retries, lost atomic.Uint64
	failure             atomic.Pointer[string]
	settled             func() // nil = not called
}

// settle counts results that are delivered or lost.
func (c *counters) settle(sent, lost uint64) {
	c.sent.Add(sent)
	c.lost.Add(lost)
	if c.settled != nil {
		c.settled()
	}
}

// Stats implements Sink.
func (c *counters) Stats() Stats {
	s := Stats{Sent: c.sent.Load(), Retries: c.retries.Load(), Lost: c.lost.Load()}
	if text := c.failure.Load(); text != nil {
		s.Error = *text
	}
	return s
}

// fail keeps a failure until called with nil.
func (c *counters) fail(err error) {
	if err == nil {
		c.failure.Store(nil)
		return
	}
	text := err.Error()
	c.failure.Store(&text)
}

var kinds []Kind

// Register adds a kind, from an init function.
func Register(k Kind) {
	if slices.ContainsFunc(kinds, func(o Kind) bool { return o.Name == k.Name }) {
		panic(fmt.Sprintf("sinks: %s is registered twice", k.Name))
	}
	all := setting.TableOf("", k.New())
	for _, o := range kinds {
		all.Add("", o.New()) // panics when two kinds have one key
	}
	kinds = append(kinds, k)
	slices.SortFunc(kinds, func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}

// Kinds lists the kinds by name.
func Kinds() []Kind { return slices.Clone(kinds) }

// Open makes a sink with the settings of its kind. Defaults are filled into a copy; s stays unchanged.
func Open(s Settings, e Env) Sink { return setting.Filled(s).Open(e) }

// Words of the settings of the content of messages.
const (
	sendResults = "results"
	sendEvents  = "events"
)

// SendsEvents reports whether a sink gets only the events of lines and zones, and clips, each as a line, in place of
// results.
func SendsEvents(s Settings) bool {
	k, ok := s.(interface{ sendsEvents() bool })
	return ok && k.sendsEvents()
}

// Announces returns where a sink of a stream announces the stream to others, or "".
func Announces(s Settings, stream string) string {
	if k, ok := s.(interface{ announces(stream string) string }); ok {
		return k.announces(stream)
	}
	return ""
}

// MaySendEvents reports whether a kind has the choice of SendsEvents.
func MaySendEvents(k Kind) bool {
	_, ok := k.New().(interface{ sendsEvents() bool })
	return ok
}

// KindOf returns the kind of the given settings.
func KindOf(s Settings) Kind {
	for _, k := range kinds {
		if fmt.Sprintf("%T", k.New()) == fmt.Sprintf("%T", s) {
			return k
		}
	}
	panic(fmt.Sprintf("sinks: %T is not of a registered kind", s))
}

// afterGrace returns a context that ends two seconds after ctx, or with stop.
func afterGrace(ctx context.Context) (last context.Context, stop func()) {
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() { time.AfterFunc(endGrace, cancel) })
	return last, func() { release(); cancel() }
}
