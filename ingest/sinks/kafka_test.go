//go:build unix

package sinks

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// startKafka starts kfake, the broker in memory for the tests of the authors of franz-go: no broker of a Linux
// distribution speaks the protocol.
func startKafka(t testing.TB, o ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1),
		kfake.SeedTopics(2, "millrace-results", "millrace-events")}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// record is a result in a topic.
type record struct{ key, id, value string }

// consume reads all records of a topic.
func consume(t *testing.T, c *kfake.Cluster, topic string) (got []record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	n := 0
	for _, p := range c.PartitionInfos(topic) {
		n += int(p.HighWatermark)
	}
	for len(got) < n {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			t.Fatalf("%v after %d of %d records", err, len(got), n)
		}
		for _, r := range fetched.Records() {
			id := ""
			for _, h := range r.Headers {
				id += h.Key + "=" + string(h.Value)
			}
			got = append(got, record{string(r.Key), id, string(r.Value)})
		}
	}
	return got
}

func recordOf(i int) record { return record{"door.1", fmt.Sprintf("id=e%d", i), string(event(i))} }

// A topic has each event in order, with the key of the stream and the id of the event. An event too large for the topic
// is lost, with the reason, and no smaller event of its batch.
func TestKafka(t *testing.T) {
	c := startKafka(t)
	small := "small"
	if err := c.CreateTopic(small, 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"millrace-events", small} {
		s := runBatches(t, &Kafka{URL: "kafka://" + c.ListenAddrs()[0], Topic: topic, Send: sendEvents}, Env{})
		const n = 300
		for i := range n {
			s.Write(event(i))
		}
		s.until("sent", func(st Stats) bool { return st.Sent == n && st.Error == "" })
		s.Write([]byte(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`))
		s.until("the loss", func(st Stats) bool { return st.Lost == 1 && strings.Contains(st.Error, "smaller messages") })
		s.Write(event(n))
		s.close()
		if st := s.Stats(); st.Sent != n+1 || st.Lost != 1 || st.Error != "" {
			t.Errorf("%s: %+v", topic, st)
		}
		got := consume(t, c, topic)
		if len(got) != n+1 {
			t.Errorf("%s has %d events", topic, len(got))
		}
		for i, r := range got {
			if r != recordOf(i) {
				t.Fatalf("%s: %d: %v", topic, i, r)
			}
		}
	}
}

// breaking is a listener whose connections break after the requests that the test breaks.
type breaking struct {
	net.Listener
	broken *atomic.Bool // the next answer does not arrive
}

type breakingConn struct {
	net.Conn
	broken *atomic.Bool
}

func (l breaking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return breakingConn{c, l.broken}, err
}

func (c breakingConn) Write(b []byte) (int, error) {
	if c.broken.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// A connection that breaks between a request and its acknowledgement loses no event. Kafka drops the repeat. After a
// refusal of the repeat, the sink connects again, and the repeats have equal ids.
func TestKafkaBrokenConnection(t *testing.T) {
	for name, refused := range map[string]bool{"repeat taken": false, "repeat refused": true} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			c := startKafka(t, kfake.ListenFn(func(network, address string) (net.Listener, error) {
				l, err := net.Listen(network, address)
				return breaking{l, &broken}, err
			}))
			requests := 0 // of produce
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				switch requests++; {
				case requests == 2:
					broken.Store(true) // the broker has the batch, and the sink does not know
				case requests == 3 && refused:
					c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed})
				}
				return nil, nil, false
			})
			s := runBatches(t, &Kafka{URL: "kafka://" + c.ListenAddrs()[0], Send: sendEvents}, Env{})
			const n = 100
			s.Write(event(0))
			s.until("sent", func(st Stats) bool { return st.Sent == 1 })
			for i := 1; i < n; i++ {
				s.Write(event(i))
			}
			s.until("sent", func(st Stats) bool { return st.Sent == n && st.Error == "" })
			s.close()
			got, want := consume(t, c, "millrace-events"), 0
			for _, r := range got {
				switch {
				case r == recordOf(want):
					want++
				case !slices.ContainsFunc(got[:want], func(o record) bool { return o == r }):
					t.Fatalf("%v is neither event %d nor a repeat", r, want)
				}
			}
			if st := s.Stats(); st.Lost != 0 || st.Retries > 0 != refused || want != n || len(got) > n != refused {
				t.Errorf("%+v; %d events, %d records", st, want, len(got))
			}
		})
	}
}

// A cluster that is away at the start and for a while later gets all events that fit into the queue.
func TestKafkaAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	s := runBatches(t, &Kafka{URL: fmt.Sprintf("kafka://127.0.0.1:%d", port), Send: sendEvents}, Env{})
	s.until("a failure", func(st Stats) bool { return strings.Contains(st.Error, "connection refused") })
	const n = batchQueue + 10
	for i := range n {
		s.Write(event(i))
	}
	data := t.TempDir()
	c := startKafka(t, kfake.Ports(port), kfake.DataDir(data))
	s.until("the queue", func(st Stats) bool { return st.Sent == batchQueue && st.Lost == n-batchQueue && st.Error == "" })
	c.Close()
	s.Write(event(n))
	c = startKafka(t, kfake.Ports(port), kfake.DataDir(data))
	s.until("the next event", func(st Stats) bool { return st.Sent == batchQueue+1 })
	s.close()
	if got := consume(t, c, "millrace-events"); len(got) != batchQueue+1 || got[batchQueue] != recordOf(n) {
		t.Errorf("%d events, the last %v", len(got), got[len(got)-1])
	}
}

// TLS, passwords and topics: a right address works, and each wrong part is named.
func TestKafkaAccess(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "ca")
	certificate(t, dir, "other")
	ca := filepath.Join(dir, "ca.pem")
	pair, err := tls.LoadX509KeyPair(ca, filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	at := startKafka(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-512", "door", "right%"), kfake.Superuser("PLAIN", "plain", "right"),
		kfake.Superuser("SCRAM-SHA-256", "short", "right")).ListenAddrs()[0]
	open := startKafka(t).ListenAddrs()[0]
	for name, c := range map[string]struct {
		Kafka
		failure string
	}{
		"right":          {Kafka{URL: "kafkas://door:right%25@" + at, CA: ca}, ""},
		"plain":          {Kafka{URL: "kafkas://plain:right@" + at, CA: ca, SASL: "plain"}, ""},
		"short":          {Kafka{URL: "kafkas://short:right@" + at, CA: ca, SASL: "scram-sha-256"}, ""},
		"wrong password": {Kafka{URL: "kafkas://plain:wrong@" + at, CA: ca, SASL: "plain"}, "refuse the user or the password"},
		"authority":      {Kafka{URL: "kafkas://door:right@" + at, CA: filepath.Join(dir, "other.pem")}, "certificate"},
		"no authority":   {Kafka{URL: "kafkas://door:right@" + at, CA: filepath.Join(dir, "ca.key")}, "sinks.kafka_ca"},
		"no topic":       {Kafka{URL: "kafka://" + open, Topic: "none"}, "the topic none does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			s := runBatches(t, &c.Kafka, Env{})
			s.Write(seq(0))
			if c.failure == "" {
				s.until("sent", func(st Stats) bool { return st.Sent == 1 && st.Error == "" })
				return
			}
			s.until(c.failure, func(st Stats) bool { return strings.Contains(st.Error, c.failure) })
			if text := s.Stats().Error; strings.Contains(text, "right") || strings.Contains(text, "wrong") {
				t.Errorf("the error has the password: %s", text)
			}
		})
	}
	s := runBatches(t, &Kafka{URL: "kafka://" + open}, Env{
		Allow: func(a netip.Addr) error { return fmt.Errorf("%v is private", a) }})
	s.until("a refusal", func(st Stats) bool { return strings.Contains(st.Error, "127.0.0.1 is private") })
}

// Each setting that would not work is refused by name.
func TestKafkaSettings(t *testing.T) {
	for _, c := range []struct {
		Kafka
		field string
	}{
		{Kafka{URL: "kafka://a", Topic: "x.y"}, ""},
		{Kafka{URL: "kafkas://u:p@a:1", CA: "x", SASL: "plain"}, ""},
		{Kafka{}, ""},
		{Kafka{Topic: "x"}, "sinks.kafka_topic"},
		{Kafka{Send: sendEvents}, "sinks.kafka_send"},
		{Kafka{URL: "kafka://a", CA: "x"}, "sinks.kafka_ca"},
		{Kafka{URL: "kafka://u:p@a", SASL: "plain"}, "sinks.kafka_sasl"},
		{Kafka{URL: "kafka://a", SASL: "scram-sha-256"}, "sinks.kafka_sasl"},
		{Kafka{URL: "nats://a"}, "sinks.kafka"},
		{Kafka{URL: "kafka://a/b"}, "sinks.kafka"},
		{Kafka{URL: "kafka://a:0"}, "sinks.kafka"},
		{Kafka{URL: "kafka://a", Topic: "a/b"}, "sinks.kafka_topic"},
		{Kafka{URL: "kafka://a", Topic: ".."}, "sinks.kafka_topic"},
	} {
		err := c.Validate()
		if got := fmt.Sprint(err); c.field == "" && err != nil || c.field != "" && !strings.Contains(got, c.field+":") {
			t.Errorf("%+v: %v, want %q", c.Kafka, err, c.field)
		}
	}
}

// BenchmarkKafka produces to kfake in this process.
func BenchmarkKafka(b *testing.B) {
	benchmarkSink(b, &Kafka{URL: "kafka://" + startKafka(b).ListenAddrs()[0]})
}
