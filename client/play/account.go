package play

import (
	"math"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/histogram"
	"millrace/stream"
)

// Summary is what came of it. Frames is the sum of results, drops, errors and
// lost ones.
type Summary struct {
	Source  string                `json:"source"`
	Model   string                `json:"model"`
	Width   int                   `json:"width,omitempty"` // of the frames as sent, and the video's rate
	Height  int                   `json:"height,omitempty"`
	Rate    float64               `json:"source_fps,omitempty"`
	Seconds float64               `json:"seconds"`
	Frames  int                   `json:"frames"`
	Results int                   `json:"results"`
	Drops   map[stream.Reason]int `json:"drops"`
	Errors  map[stream.Code]int   `json:"errors"`
	Lost    int                   `json:"lost"` // with a connection, or the stream ended before they did
	FPS     float64               `json:"fps"`  // results a second
	P50     float64               `json:"p50_ms"`
	P99     float64               `json:"p99_ms"` // from sending a frame to its result
	Batch   float64               `json:"mean_batch"`
	Message string                `json:"error,omitempty"` // the last error of a frame
	Overlay string                `json:"overlay,omitempty"`
	Picture string                `json:"picture,omitempty"` // files that were written
}

// Dropped is the number of dropped frames.
func (s *Summary) Dropped() (n int) {
	for _, k := range s.Drops {
		n += k
	}
	return n
}

// Failed is the number of frames that ended with an error.
func (s *Summary) Failed() (n int) {
	for _, k := range s.Errors {
		n += k
	}
	return n
}

// Progress is the reading after a second: totals, but for FPS and P50, which are
// of that second.
type Progress struct {
	Elapsed         time.Duration
	Frames, Results int
	Drops, Errors   int
	FPS             float64 // results
	P50             time.Duration
	Down            bool // the connection was lost; another is being tried, and sending waits for it
}

// account counts the frames. It is safe for concurrent use.
type account struct {
	mu         sync.Mutex
	s          Summary
	begin, fin time.Time
	ages       histogram.Durations
	second     histogram.Durations // since the last Progress
	last       time.Time
	before     int // results at that time
	batches    int
	down       bool
}

func newAccount(source, model string) *account {
	return &account{s: Summary{Source: source, Model: model, Drops: map[stream.Reason]int{}, Errors: map[stream.Code]int{}}}
}

func (a *account) video(w, h int, fps float64) { a.s.Width, a.s.Height, a.s.Rate = w, h, fps }

func (a *account) start(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin, a.last = now, now
}

func (a *account) end(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fin = now
}

// files notes the files that are being written.
func (a *account) files(overlay, picture string) { a.s.Overlay, a.s.Picture = overlay, picture }

// sent counts a frame.
func (a *account) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Frames++
}

// connection notes whether there is a connection.
func (a *account) connection(c client.ConnectionChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = c.State == client.ConnectionLost
}

// unsent takes one back.
func (a *account) unsent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Frames--
}

func (a *account) reply(r *client.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case r.Partial, r.Lost: // what has no other ending is lost
	case r.Dropped != "":
		a.s.Drops[r.Dropped]++
	case r.Err != nil:
		a.s.Errors[stream.CodeOf(r.Err)]++
		a.s.Message = r.Err.Error()
	default:
		a.s.Results++
		a.batches += r.Batch
		age := r.Got.Sub(r.Sent)
		a.ages.Add(age)
		a.second.Add(age)
	}
}

func (a *account) progress(now time.Time) Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := Progress{
		Elapsed: now.Sub(a.begin), Frames: a.s.Frames, Results: a.s.Results, Drops: a.s.Dropped(), Errors: a.s.Failed(),
		P50: a.second.Quantile(0.5), Down: a.down,
	}
	if d := now.Sub(a.last).Seconds(); d > 0 {
		p.FPS = float64(a.s.Results-a.before) / d
	}
	a.last, a.before, a.second = now, a.s.Results, histogram.Durations{}
	return p
}

func (a *account) summary() Summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.s
	s.Lost = s.Frames - s.Results - s.Dropped() - s.Failed()
	s.Seconds = a.fin.Sub(a.begin).Seconds()
	if s.Seconds > 0 {
		s.FPS = float64(s.Results) / s.Seconds
	}
	if s.Results > 0 {
		s.Batch = float64(a.batches) / float64(s.Results)
	}
	for _, v := range []*float64{&s.Rate, &s.Seconds, &s.FPS, &s.Batch} {
		*v = math.Round(*v*1000) / 1000
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	s.P50, s.P99 = ms(a.ages.Quantile(0.5)), ms(a.ages.Quantile(0.99))
	return s
}
