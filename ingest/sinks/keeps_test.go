//go:build unix

package sinks

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// While the caller keeps lines, no line is lost because the receiver is away: neither after any number of attempts nor
// at the end. A line that the receiver refuses is lost.
func TestKeptLines(t *testing.T) {
	for name, c := range map[string]struct {
		statuses   []int
		sent, lost uint64
	}{
		"away": {[]int{0}, 0, 0}, "back": {append(make([]int, 3*webhookAttempts), 200), 1, 0},
		"refuses": {[]int{503, 404}, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			settled := 0
			h := (&Webhook{URL: "http://receiver.test/", Send: sendEvents}).Open(Env{Stream: "door", Keeps: true,
				Settled: func() { settled++ }, Log: slog.New(slog.DiscardHandler)}).(*webhook)
			r := &receiver{statuses: c.statuses}
			h.client.HTTP.Transport = r
			ended := make(chan struct{})
			go func() { defer close(ended); h.Run(t.Context()) }()
			h.Write([]byte(`{}`))
			time.Sleep(time.Hour)
			h.Write([]byte(`{}`))
			h.Close()
			<-ended
			st := h.Stats()
			if name != "away" { // the second line, too
				c.sent, c.lost = 2*c.sent, 2*c.lost
			}
			if st.Sent != c.sent || st.Lost != c.lost || settled != int(c.sent+c.lost) ||
				r.posts[0] != `1 {"stream":"door","events":[{}]}` {
				t.Errorf("%s: %+v, %d settled, %s", name, st, settled, r.posts[0])
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := &broken{hangsUp: func(payload string) bool { return payload == `{"seq":1}` }}
		s := Open(&MQTT{URL: "mqtt://broker", Send: sendEvents}, Env{Stream: "door", Keeps: true,
			Log: slog.New(slog.DiscardHandler)}).(*mqtt)
		s.dial = b.dial
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		for i := range 3 {
			s.Write(seq(i))
		}
		time.Sleep(time.Hour)
		cancel()
		s.Close()
		<-ended
		if st := s.Stats(); st.Sent != 1 || st.Lost != 0 || st.Retries < 2*mqttAttempts || s.topic != "millrace/door" {
			t.Errorf("%+v", st)
		}
	})
}
