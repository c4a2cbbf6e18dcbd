package conn

import (
	"time"

	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

// The bounds of a client's text messages: a burst, and a rate per second; exceeding both ends the connection. Frames
// are binary messages and do not count.
const textBurst, textRate = 4096, 256

// burstUse is a client's use of its bursts. The client's next connection continues with the same use, so that
// reconnecting yields no fresh bursts.
type burstUse struct{ pings, texts httpd.Bucket }

// update computes the use at now.
func (b *burstUse) update(now time.Time) {
	b.pings.Update(now, httpd.PingRate)
	b.texts.Update(now, textRate)
}

// isSignificant reports whether the use at now is worth remembering: at least an eighth of a burst.
func (b *burstUse) isSignificant(now time.Time) bool {
	b.update(now)
	return b.pings.Used > httpd.PingBurst/8 || b.texts.Used > textBurst/8
}

// used returns the use by the connection's client.
func (in *reader) used() burstUse { return burstUse{in.pings.Allowed, in.texts} }

// Ping counts a ping of the client, of WebSocket or of the protocol, and reports whether to answer. Far too many
// pings end the connection. Only the reader goroutine may call Ping.
func (in *reader) Ping() bool {
	answer, err := in.pings.Ping(time.Now())
	if err != nil {
		in.socket.flooded(err)
	}
	return answer
}

// flooded ends the connection after far too many pings or text messages, and has the client's further connections
// refused for a while; err tells how long. Only the reader goroutine may call flooded, possibly several times: bytes
// read ahead may hold more pings or texts.
func (s *socket) flooded(err *stream.Error) {
	if s.Ended() {
		return
	}
	err.After = s.floods.note(s.client, time.Now())
	s.End(Ending{EndRefused, wire.ClosePolicy, err})
}
