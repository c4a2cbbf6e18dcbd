package v1

import (
	"math"
	"time"

	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// measure counts endings, and sends the client advice and statistics when due. Only the writer calls measure.
func (c *channel) measure(w *conn.Writer, results int, age time.Duration, drops uint64) {
	p, now := &c.writer.advisor, stream.Now()
	if p.since == 0 {
		p.since, p.statsAt = now, now
	}
	p.results += results
	p.age += age
	p.drops += drops
	took := now.Sub(p.since)
	if took < c.opts.AdviseEvery {
		return
	}
	rate := float64(p.results) / took.Seconds()
	a := wire.Advise{SID: c.sid}
	if fps := p.adviseFPS(rate); fps != p.advisedFPS {
		p.advisedFPS, a.FPS = fps, fps
	}
	if p.frameSize != p.advisedSize && p.overloaded() && !c.regions.Load() {
		if a.Width, a.Height = smallerSize(p.frameSize, c.stream.Load().Model().Image); a.Width > 0 {
			p.advisedSize = p.frameSize
		}
	}
	if a.FPS > 0 || a.Width > 0 {
		c.write(w, &a)
	}
	if now.Sub(p.statsAt) >= c.opts.StatsEvery {
		p.statsAt = now
		c.write(w, c.stats(rate))
	}
	p.since, p.results, p.drops, p.age = now, 0, 0, 0
}

func (c *channel) stats(rate float64) *wire.Stats {
	st := c.stream.Load()
	m := &wire.Stats{SID: c.sid, Waiting: st.WaitingFrames(), FPS: math.Round(10*rate) / 10, Counts: c.counts()}
	if c.writer.advisor.results > 0 {
		m.AgeUS = (c.writer.advisor.age / time.Duration(c.writer.advisor.results)).Microseconds()
	}
	return m
}

// counts returns the numbers of the stream's frames so far: sent endings by outcome, and frames received.
func (c *channel) counts() wire.Counts {
	n := wire.Counts{Received: c.window.Received(), Results: c.writer.sent.results, Drops: c.writer.sent.drops,
		Errors: c.writer.sent.errors}
	if st := c.stream.Load(); st != nil {
		n.Accepted = st.Counts().Accepted
	}
	return n
}

// totals returns the counts at the end of the stream. A frame received after the end is not counted: the frame's
// error follows.
func (c *channel) totals() wire.Counts {
	n := c.counts()
	n.Received = n.Results + n.Drops + n.Errors
	return n
}
