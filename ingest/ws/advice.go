package ws

import (
	"math"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// pace is what the writer sees of a stream: how much was answered and how much
// dropped for want of compute since it last looked. There is no timer: it looks
// when it writes an ending.
type pace struct {
	looked  stream.Instant
	told    stream.Instant // of stats
	results int
	drops   uint64
	age     time.Duration // sum over results
	advised float64       // frames a second; 0 = no advice stands
	sent    [2]int        // width and height of the newest result's frame
	sized   [2]int        // of the frames that smaller ones were last asked for
}

// note counts an ending, and tells the client how it goes when it is time to.
func (s *session) note(c *channel, results int, age time.Duration, drops uint64) {
	p, now := &c.pace, stream.Now()
	if p.looked == 0 {
		p.looked, p.told = now, now
	}
	p.results += results
	p.age += age
	p.drops += drops
	took := now.Sub(p.looked)
	if took < s.a.opts.AdviseEvery {
		return
	}
	rate := float64(p.results) / took.Seconds()
	a := wire.Advise{SID: c.sid}
	if fps := p.advise(rate); fps != p.advised {
		p.advised, a.FPS = fps, fps
	}
	if p.sent != p.sized && p.short() && !c.regions.Load() {
		if a.Width, a.Height = smaller(p.sent, c.stream.Load().Model().Image); a.Width > 0 {
			p.sized = p.sent
		}
	}
	if a.FPS > 0 || a.Width > 0 {
		s.sendControl(&a)
	}
	if now.Sub(p.told) >= s.a.opts.StatsEvery {
		p.told = now
		s.sendControl(c.stats(rate))
	}
	p.looked, p.results, p.drops, p.age = now, 0, 0, 0
}

// advise returns the rate that the client should send at: what was answered,
// when a fifth or more was dropped; a quarter more than it was told, when nothing
// was.
func (p *pace) advise(rate float64) float64 {
	switch {
	case p.short():
		return max(math.Round(10*rate)/10, 0.1)
	case p.drops == 0 && p.advised > 0 && rate >= 0.8*p.advised:
		return math.Round(12.5*p.advised) / 10
	}
	return p.advised
}

// short says whether a fifth or more was dropped for want of compute.
func (p *pace) short() bool { return p.drops > 0 && float64(p.drops) >= float64(p.results)/4 }

// smaller returns the size in which frames would cost less to send and decode
// and look the same to the model: of at least its picture's size, in the shape of
// what is sent. 0, 0 when that is less than twice as large as needed.
func smaller(sent [2]int, image *stream.ImageSpec) (width, height int) {
	if image == nil || sent[0] < 2*image.Width || sent[1] < 2*image.Height {
		return 0, 0
	}
	scale := max(float64(image.Width)/float64(sent[0]), float64(image.Height)/float64(sent[1]))
	even := func(n int) int { return 2 * int(math.Ceil(float64(n)*scale/2)) }
	return even(sent[0]), even(sent[1])
}

func (c *channel) stats(rate float64) *wire.Stats {
	st := c.stream.Load()
	m := &wire.Stats{SID: c.sid, Waiting: st.WaitingFrames(), FPS: math.Round(10*rate) / 10, Counts: c.counts()}
	if c.pace.results > 0 {
		m.AgeUS = (c.pace.age / time.Duration(c.pace.results)).Microseconds()
	}
	return m
}

func (s *session) sendControl(m wire.Message) {
	if text := s.a.coded(m); text != nil {
		s.send(websocket.TextMessage, text)
	}
}

// reply sends a message of millrace.v1 through the outbox.
func (s *session) reply(m wire.Message) {
	if text := s.a.coded(m); text != nil {
		s.tell(text)
	}
}

// control sends a message of the session from outside its writer.
func (m *mux) control(msg wire.Message) {
	if text := m.a.coded(msg); text != nil {
		m.push(entry{text: text})
	}
}

func (a *Adapter) coded(m wire.Message) []byte {
	text, err := wire.AppendControl(nil, m)
	if err != nil {
		a.opts.Log.Error("a message could not be coded", "type", m.Type(), "error", err)
		return nil
	}
	return text
}
