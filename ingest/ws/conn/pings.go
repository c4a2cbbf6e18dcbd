package conn

import (
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// The bounds of a client's pings, of WebSocket and of its protocol together: bursts and rates
// a second. Pings above answerRate get no answer of their own, as RFC 6455 5.5.3 permits; a
// connection with more than allowedRate is ended, and one with more text messages than textRate: frames
// are binary messages.
const (
	answerBurst, answerRate   = 64, 16
	allowedBurst, allowedRate = 1024, 256
	textBurst, textRate       = 4096, 256 // of text messages
)

// bucket is a token bucket.
type bucket struct {
	used float64   // tokens that are not back yet
	at   time.Time // when used was computed
}

// update computes used for now.
func (b *bucket) update(now time.Time, rate float64) {
	b.used = max(0, b.used-now.Sub(b.at).Seconds()*rate)
	b.at = now
}

// take takes a token, of burst at most and rate a second, and reports whether there was one.
func (b *bucket) take(now time.Time, burst, rate float64) bool {
	b.update(now, rate)
	if b.used+1 > burst {
		return false
	}
	b.used++
	return true
}

// bursts is what a client has used of its bursts. Its next connection goes on with it, so that a client which connects again and
// again, before it is ended, has no more than others.
type bursts struct{ pings, texts bucket }

// update computes what is used now.
func (b *bursts) update(now time.Time) {
	b.pings.update(now, allowedRate)
	b.texts.update(now, textRate)
}

// some reports whether so much is used now that it has to be remembered: an eighth of a burst.
func (b *bursts) some(now time.Time) bool {
	b.update(now)
	return b.pings.used > allowedBurst/8 || b.texts.used > textBurst/8
}

// Ping counts a ping of the client and reports whether it is to be answered. It ends the
// connection of a client that sends far too many. Only the reader goroutine may call it.
func (in *reader) Ping() bool {
	now := time.Now()
	if !in.used.pings.take(now, allowedBurst, allowedRate) {
		in.socket.flooded(stream.Errorf(stream.FlowControl, "ping", "%d pings a second are allowed: send one every few seconds", allowedRate))
		return false
	}
	return in.answers.take(now, answerBurst, answerRate)
}

// flooded ends the connection of a client that sends far too many pings or text messages, and has further ones of it refused for
// a while, which err tells. Only the reader goroutine may call it, which may find more of them in what it has read already.
func (s *socket) flooded(err *stream.Error) {
	if s.Ended() {
		return
	}
	err.After = s.floods.note(s.client, time.Now())
	s.End(Ending{EndRefused, wire.ClosePolicy, err})
}
