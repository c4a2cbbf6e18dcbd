package httpd

import (
	"time"

	"millrace/stream/coded"
)

// The bounds of the pings of one WebSocket: bursts and rates a second. Pings above the rate of answers get none, as
// RFC 6455 5.5.3 permits; a connection with more than PingRate is to be ended.
const (
	PingAnswerBurst, PingAnswerRate = 64, 16
	PingBurst, PingRate             = 1024, 256
)

// Pings counts the pings of one WebSocket.
type Pings struct {
	Allowed Bucket // used part of PingBurst
	answers Bucket
}

// Ping counts a ping and reports whether to answer. An error means that the caller must end the connection: the
// client sends far too many pings.
func (p *Pings) Ping(now time.Time) (answer bool, err *coded.Error) {
	if !p.Allowed.Take(now, PingBurst, PingRate) {
		return false, coded.Errorf(coded.FlowControl, "ping",
			"%d pings a second are allowed: send one every few seconds", PingRate)
	}
	return p.answers.Take(now, PingAnswerBurst, PingAnswerRate), nil
}

// Bucket is a token bucket.
type Bucket struct {
	Used float64   // tokens taken and not yet restored
	At   time.Time // when Used was computed
}

// Update computes Used for now.
func (b *Bucket) Update(now time.Time, rate float64) {
	b.Used = max(0, b.Used-now.Sub(b.At).Seconds()*rate)
	b.At = now
}

// Take takes a token and reports whether there was one. burst is the most tokens, rate the tokens restored per
// second.
func (b *Bucket) Take(now time.Time, burst, rate float64) bool {
	b.Update(now, rate)
	if b.Used+1 > burst {
		return false
	}
	b.Used++
	return true
}
