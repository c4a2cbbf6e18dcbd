package play

import (
	"math"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/histogram"
	"millrace/stream"
)

// Summary is the result of a run. Frames is the sum of Results, Drops, Errors and Lost.
type Summary struct {
	Source  string                `json:"source"` // without passwords
	Model   string                `json:"model"`
	Width   int                   `json:"width,omitempty"` // of the frames as sent
	Height  int                   `json:"height,omitempty"`
	Rate    float64               `json:"source_fps,omitempty"` // of the video
	Seconds float64               `json:"seconds"`
	Frames  int                   `json:"frames"`
	Results int                   `json:"results"`
	Drops   map[stream.Reason]int `json:"drops"`
	Errors  map[stream.Code]int   `json:"errors"`
	Lost    int                   `json:"lost"`   // frames without an ending, because their connection was lost or the stream ended before
	FPS     float64               `json:"fps"`    // results per second
	P50     float64               `json:"p50_ms"` // from sending a frame to its result
	P99     float64               `json:"p99_ms"`
	Batch   float64               `json:"mean_batch"`
	Message string                `json:"error,omitempty"`   // the last error of a frame
	Overlay string                `json:"overlay,omitempty"` // the files that were written
	Picture string                `json:"picture,omitempty"`
}

// Dropped returns the number of dropped frames.
func (s *Summary) Dropped() (n int) {
	for _, k := range s.Drops {
		n += k
	}
	return n
}

// Failed returns the number of frames that ended with an error.
func (s *Summary) Failed() (n int) {
	for _, k := range s.Errors {
		n += k
	}
	return n
}

// Progress is reported each second. The counts are totals; FPS and P50 are of the last second.
type Progress struct {
	Elapsed         time.Duration
	Frames, Results int
	Drops, Errors   int
	FPS             float64 // results per second
	P50             time.Duration
	Reconnecting    bool // the connection was lost; sending waits for a new connection
}

// counter counts the frames by their endings. A counter is safe for concurrent use.
type counter struct {
	mu           sync.Mutex
	s            Summary
	started      time.Time
	ended        time.Time
	ages         histogram.Durations
	recentAges   histogram.Durations // since the last Progress
	lastTime     time.Time           // of the last Progress
	lastResults  int                 // results at lastTime
	batches      int                 // sum of the results' batch sizes
	reconnecting bool
}

func newCounter(source, model string) *counter {
	return &counter{s: Summary{Source: source, Model: model, Drops: map[stream.Reason]int{},
		Errors: map[stream.Code]int{}}}
}

func (a *counter) video(w, h int, fps float64) { a.s.Width, a.s.Height, a.s.Rate = w, h, fps }

func (a *counter) start(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started, a.lastTime = now, now
}

func (a *counter) end(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = now
}

// files sets the files being written.
func (a *counter) files(overlay, picture string) { a.s.Overlay, a.s.Picture = overlay, picture }

// sent counts a frame before sending.
func (a *counter) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Frames++
}

// connection records the loss of the connection, or the new connection.
func (a *counter) connection(c client.ConnectionChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reconnecting = c.State == client.ConnectionLost
}

// unsent reverts the last sent.
func (a *counter) unsent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Frames--
}

func (a *counter) reply(r *client.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case r.Partial, r.Lost: // summary counts frames without another ending as lost
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
		a.recentAges.Add(age)
	}
}

func (a *counter) progress(now time.Time) Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := Progress{
		Elapsed: now.Sub(a.started), Frames: a.s.Frames, Results: a.s.Results, Drops: a.s.Dropped(),
		Errors: a.s.Failed(),
		P50:    a.recentAges.Quantile(0.5), Reconnecting: a.reconnecting,
	}
	if d := now.Sub(a.lastTime).Seconds(); d > 0 {
		p.FPS = float64(a.s.Results-a.lastResults) / d
	}
	a.lastTime, a.lastResults, a.recentAges = now, a.s.Results, histogram.Durations{}
	return p
}

func (a *counter) summary() Summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.s
	s.Lost = s.Frames - s.Results - s.Dropped() - s.Failed()
	s.Seconds = a.ended.Sub(a.started).Seconds()
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
