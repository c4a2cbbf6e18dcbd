package clips

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream/buf"
)

// Env is the surroundings of a Recorder.
type Env struct {
	Store  *Store
	Stream string
	Memory *buf.Pool
	Start  func(write func()) bool // starts a goroutine that writes a clip; false = the stream has ended
	Ready  func(*Clip)             // called with each clip that has ended, from the writing goroutine
	Log    *slog.Logger

	all *total // bytes of the packets of all client streams; nil = not the stream of a client
}

// most is the most bytes of all clips of the kind of the stream.
func (e *Env) most() int64 {
	if e.all != nil {
		return e.Store.o.ClientBytes
	}
	return e.Store.o.MaxBytes
}

// Packets are kept for late more than Settings.Before, and for lateLeast in all: a rule may be certain of an event only
// some time after the event.
const late, lateLeast = time.Second, 2 * time.Second

// maxLag is how far the results of a live source may be behind its packets: events that come later have a shorter clip.
// A video with an end is read as fast as possible, and its packets may be minutes ahead of or behind its results.
const maxLag, maxLagOfVideo = 10 * time.Second, 5 * time.Minute

// maxPending bounds the events that wait for the packets of their frames.
const maxPending = 256

// never is a time before and after all times of packets.
const never = time.Duration(1) << 62

// maxGap is the longest time between two packets of a clip. After a longer time, the source's clock was set.
const maxGap = 20 * time.Second

// maxKeyGap is how long a clip beyond Settings.Length waits for a key frame to go on in another clip.
const maxKeyGap = time.Minute

// Recorder makes the clips of one stream. All methods may be called concurrently, and return at once. A nil Recorder
// makes no clips.
//
// Packets and results of a frame come in any order. An event waits for the packets up to its frame; a clip ends when
// its last packet and the results up to its end have come, because a further event would lengthen the clip.
type Recorder struct {
	env Env

	mu       sync.Mutex
	set      Settings // filled
	models   []string
	ring     ring
	opening  uint64
	header   *video.MP4Header // of the packets in the ring; nil = none yet
	last     entry            // newest packet, without data
	lag      time.Duration    // maxLag of the source
	results  time.Duration    // time of the newest result; -never = none
	pending  []pending
	clip     *recording    // being recorded, or nil
	until    time.Duration // end of clip
	given    int64         // ticks of the last packet in clip
	begun    time.Time     // of the newest clip
	closed   bool
	unpacked bool // it was logged that the source has no packets
}

// pending is an event that waits for packets.
type pending struct {
	Incident
	picture *Picture // nil = none, or that of the event before
}

// NewRecorder returns a recorder without clips until Set.
func NewRecorder(env Env) *Recorder {
	return &Recorder{env: env, lag: maxLag, results: -never, ring: ring{memory: env.Memory,
		most: env.Store.o.Memory, all: env.all}}
}

// Set changes the settings, which must be valid, and the models of the stream. A clip is of the same models from its
// first to its last packet: who may see a clip depends on the models.
func (r *Recorder) Set(s Settings, models []string) {
	if r == nil {
		return
	}
	s = *setting.Filled(&s)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.Enabled() || !slices.Equal(models, r.models) {
		r.forget(CutChanged)
	} else if r.set.always() != s.always() {
		r.end(CutChanged)
	}
	r.set, r.models = s, models
}

// Enabled reports whether the recorder has use for packets.
func (r *Recorder) Enabled() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set.Enabled() && !r.closed
}

// Opened tells whether the source is a video with an end.
func (r *Recorder) Opened(ends bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lag = maxLag; ends {
		r.lag = maxLagOfVideo
	}
}

// forget ends the clip, and drops all packets. mu is held.
func (r *Recorder) forget(cut Cut) {
	r.events(true)
	r.give()
	r.end(cut)
	r.ring.clear()
	r.header, r.last, r.results = nil, entry{}, -never
}

// Packet takes the next packet.
func (r *Recorder) Packet(p sources.Fragment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.set.Enabled() || p.Opening < r.opening {
		return
	}
	opened := p.Opening != r.opening
	r.opening = p.Opening
	switch step := p.DTS - r.last.dts; {
	case r.header == nil:
	case p.Header != r.header && !opened:
		r.forget(CutFormat)
	case p.Header != r.header && p.Header.Codec == r.header.Codec:
		r.forget(CutReconnected)
	case p.Header != r.header:
		r.forget(CutCodec)
	case step < 0 || step > maxGap:
		r.forget(CutClock)
	}
	r.header = p.Header
	keep := p.DTS
	if !r.set.always() {
		keep = min(p.DTS, max(r.results, p.DTS-r.lag)) - max(*r.set.Before+late, lateLeast)
	}
	e, ok := r.ring.add(&p, keep)
	if !ok {
		r.end(CutMemory)
		return
	}
	r.last = entry{pts: max(e.pts, r.last.pts), dts: e.dts, length: e.length}
	if r.clip == nil && r.set.always() && p.Key {
		r.until = never
		r.begin(len(r.ring.packets) - 1)
	}
	r.step()
}

// step brings the clip up to date with the packets and results. mu is held.
func (r *Recorder) step() {
	r.events(false)
	r.give()
	if r.clip != nil && r.last.dts > r.until && (r.results > r.until || r.last.dts > r.until+r.lag) {
		r.end("")
	}
}

// give gives the clip its further packets from the ring. mu is held.
func (r *Recorder) give() {
	if r.clip == nil {
		return
	}
	from := len(r.ring.packets)
	for from > 0 && r.ring.packets[from-1].ticks > r.given {
		from--
	}
	for i := from; i < len(r.ring.packets) && r.ring.packets[i].dts <= r.until; i++ {
		e := r.ring.packets[i]
		length, most := e.dts-r.clip.first.dts, r.env.most()/4
		if length > r.set.Length+maxKeyGap || r.clip.bytes > 2*most { // the source has too few key frames
			r.end(CutLong)
			return
		}
		if e.key && (length >= r.set.Length || r.clip.bytes > most) {
			r.end("")
			if !r.begin(i) {
				return
			}
		}
		if r.given = e.ticks; !r.clip.add(e) {
			r.end(CutSlow)
			return
		}
	}
}

// Lost ends a clip whose source has failed or ended.
func (r *Recorder) Lost(cut Cut) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(cut)
}

// Close ends the present clip. The recorder makes no clips any more.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(CutStopped)
	r.closed = true
}

// end ends the present clip, if any. mu is held.
func (r *Recorder) end(cut Cut) {
	if r.clip != nil {
		r.clip.end(cut)
		r.clip = nil
	}
}

// clientPause is the least time between the begins of two clips of a client stream, whose times and events the client
// chooses.
const clientPause = time.Second

// begin begins a clip with the packets of the ring from a place on. mu is held.
func (r *Recorder) begin(from int) bool {
	now := r.env.Store.o.Now()
	if r.env.all != nil && !r.begun.IsZero() && now.Sub(r.begun) < clientPause {
		return false
	}
	first := r.ring.packets[from]
	age := r.last.dts - first.dts + r.last.length
	c := newRecording(r.env, r.header, first, r.models, now.Add(-age))
	for _, e := range r.ring.text {
		if e.pts >= first.pts {
			c.add(e)
		}
	}
	if !r.env.Start(c.write) {
		c.discard()
		return false
	}
	r.clip, r.given, r.begun = c, first.ticks-1, now
	return true
}

// Result takes the time of a frame whose result from a model has come, after Events, and the objects of the frame: the
// end of a line of JSON, behind the time and a comma, or nil. Result and Events ignore models that Set has not named.
func (r *Recorder) Result(model string, at time.Duration, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.set.Enabled() || !slices.Contains(r.models, model) || at > r.last.pts+r.lag/2 {
		return // far ahead of the packets is a result of before the source's clock was set back
	}
	r.results = max(r.results, at)
	if line != nil {
		if e, ok := r.ring.addText(line, at); ok && r.clip != nil {
			r.clip.add(e)
		}
	}
	r.step()
}

// Incident is an event for clips.
type Incident struct {
	Text     json.RawMessage // kept
	ID, Type string
	At       time.Duration // of the frame
}

// Picture draws the frame of events: as sent, and with its objects. Release is called once.
type Picture struct {
	Draw    func() (plain, drawn []byte, err error)
	Release func()
}

// Events takes the events of a frame by a model, and the frame's picture, which may be nil. Events of a type
// of the settings make or lengthen a clip.
func (r *Recorder) Events(model string, list []Incident, p *Picture) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.models, model) {
		list = nil
	}
	for _, e := range list {
		if r.closed || !r.set.always() && !slices.Contains(r.set.On, e.Type) {
			continue
		}
		if len(r.pending) == maxPending {
			r.missing()
			continue
		}
		r.pending = append(r.pending, pending{e, p})
		p = nil
	}
	if p != nil {
		p.Release()
	}
	r.step()
}

// events handles the events whose packets have come, or all. mu is held.
func (r *Recorder) events(all bool) {
	n := 0
	for ; n < len(r.pending); n++ {
		p := &r.pending[n]
		switch {
		case len(r.ring.packets) == 0:
			r.missing()
		case p.At > r.last.pts+max(maxGap, r.lag/2) || p.At < r.ring.packets[0].dts-maxGap:
			p.At = r.last.pts // of the source's clock before it was set, or of a frame without a time
			fallthrough
		case p.At <= r.last.pts || all:
			r.happened(p)
		default:
			r.pending = slices.Delete(r.pending, 0, n)
			return
		}
		if p.picture != nil {
			p.picture.Release()
		}
	}
	r.pending = slices.Delete(r.pending, 0, n)
}

// happened begins or lengthens a clip for an event. mu is held.
func (r *Recorder) happened(p *pending) {
	from := p.At - *r.set.Before
	if from > r.until { // of another clip
		r.give()
		r.end("")
	}
	if r.clip == nil {
		if r.until = p.At + *r.set.After; !r.begin(r.ring.from(from)) {
			r.env.Store.missed.Add(1)
			return
		}
		r.clip.short = r.clip.first.pts > from
	}
	if r.until = max(r.until, max(p.At, r.clip.first.pts)+*r.set.After); r.set.always() {
		r.until = never
	}
	p.picture = r.clip.event(p.Incident, p.picture)
}

// missing logs once that events make no clips. mu is held.
func (r *Recorder) missing() {
	r.env.Store.missed.Add(1)
	if !r.unpacked {
		r.unpacked = true
		r.env.Log.Warn("an event has no clip: the source gives no compressed video, its codec has no place in MP4, or "+
			"it has just been opened", "stream", r.env.Stream)
	}
}
