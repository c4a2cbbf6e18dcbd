package conn

import (
	"time"

	"millrace/internal/httpd"
	"millrace/internal/wire"
	"millrace/stream"
)

// The bounds of a client's text messages: a burst, and the rate a second, above which a connection is ended: frames are binary
// messages.
const textBurst, textRate = 4096, 256

// bursts is what a client has used of its bursts. Its next connection goes on with it, so that a client which connects again and
// again, before it is ended, has no more than others.
type bursts struct{ pings, texts httpd.Bucket }

// update computes what is used now.
func (b *bursts) update(now time.Time) {
	b.pings.Update(now, httpd.PingRate)
	b.texts.Update(now, textRate)
}

// some reports whether so much is used now that it has to be remembered: an eighth of a burst.
func (b *bursts) some(now time.Time) bool {
	b.update(now)
	return b.pings.Used > httpd.PingBurst/8 || b.texts.Used > textBurst/8
}

// used returns what the connection's client has used.
func (in *reader) used() bursts { return bursts{in.pings.Allowed, in.texts} }

// Ping counts a ping of the client, of WebSocket or of its protocol, and reports whether it is to be answered. It ends the
// connection of a client that sends far too many. Only the reader goroutine may call it.
func (in *reader) Ping() bool {
	answer, err := in.pings.Ping(time.Now())
	if err != nil {
		in.socket.flooded(err)
	}
	return answer
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
