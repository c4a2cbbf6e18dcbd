//go:build unix

package sinks

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"millrace/internal/testneeds"
)

// mosquitto is a running broker.
type mosquitto struct {
	t            *testing.T
	addr, config string
	cmd          *exec.Cmd
}

// startMosquitto starts a broker with further lines of configuration.
func startMosquitto(t *testing.T, lines ...string) *mosquitto {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	b := &mosquitto{t: t, addr: addr.String(), config: filepath.Join(t.TempDir(), "mosquitto.conf")}
	text := fmt.Sprintf("listener %d 127.0.0.1\nuser root\n%s\n", addr.Port, strings.Join(lines, "\n"))
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *mosquitto) start() {
	b.t.Helper()
	b.cmd = exec.Command(testneeds.Program(b.t, "mosquitto"), "-c", b.config)
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for limit := time.Now().Add(patience); ; {
		if c, err := net.Dial("tcp", b.addr); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(limit) {
			b.t.Fatal("the broker does not listen")
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *mosquitto) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// subscribe prints each later message of the broker: topic, retained, payload. A retained message tells when the
// subscription has begun.
func (b *mosquitto) subscribe(options ...string) *bufio.Scanner {
	b.t.Helper()
	port := b.port()
	if out, err := exec.Command(testneeds.Program(b.t, "mosquitto_pub"), "-p", port, "-t", "begun", "-r", "-m",
		"x").CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(testneeds.Program(b.t, "mosquitto_sub"), append([]string{"-p", port, "-t", "#",
		"-q", "1", "-F", "%t %r %p"}, options...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	limit := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	b.t.Cleanup(func() { limit.Stop(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	in := bufio.NewScanner(out)
	for next(b.t, in) != "begun 1 x" {
	}
	return in
}

func (b *mosquitto) port() string { _, port, _ := net.SplitHostPort(b.addr); return port }

func next(t *testing.T, in *bufio.Scanner) string {
	t.Helper()
	if !in.Scan() {
		t.Fatal("the subscriber ended, or got no message for a long time: ", in.Err())
	}
	return in.Text()
}

func runMQTT(t *testing.T, c *MQTT) *running {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Sink: Open(c, Env{Stream: "door/1", Log: slog.New(slog.DiscardHandler)}), t: t, stop: cancel,
		ended: make(chan struct{})}
	go func() { defer close(r.ended); r.Run(ctx) }()
	t.Cleanup(func() { r.once.Do(r.Close); cancel(); <-r.ended })
	return r
}

// The broker gets each result once and in order, and a retained status: online, and offline after the end.
func TestMQTT(t *testing.T) {
	b := startMosquitto(t, "allow_anonymous true")
	in := b.subscribe()
	s := runMQTT(t, &MQTT{URL: "mqtt://" + b.addr})
	if got := next(t, in); got != "millrace/door%2F1/status 0 online" {
		t.Fatal(got)
	}
	const n = 500
	for i := range n {
		s.Write(seq(i))
	}
	for i := range n {
		if got, want := next(t, in), fmt.Sprintf(`millrace/door%%2F1/results 0 {"seq":%d}`, i); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	s.close()
	if got := next(t, in); got != "millrace/door%2F1/status 0 offline" {
		t.Error(got)
	}
	if st := s.Stats(); st != (Stats{Sent: n}) {
		t.Errorf("%+v", st)
	}
	out, err := exec.Command(testneeds.Program(t, "mosquitto_sub"), "-p", b.port(), "-t", "millrace/door%2F1/status",
		"-C", "1", "-F", "%r %p").CombinedOutput()
	if err != nil || string(out) != "1 offline\n" {
		t.Errorf("retained: %v, %s", err, out)
	}
}

// A broker that is killed and started again gets the results from the meantime.
func TestMQTTRestart(t *testing.T) {
	b := startMosquitto(t, "allow_anonymous true", "persistence false")
	s := runMQTT(t, &MQTT{URL: "mqtt://" + b.addr, Topic: "a/b"})
	s.Write(seq(0))
	s.until("sent", func(st Stats) bool { return st.Sent == 1 })
	b.kill()
	s.until("a failure", func(st Stats) bool { return strings.HasPrefix(st.Error, "sinks.mqtt: ") })
	for i := range 100 {
		s.Write(seq(i + 1))
	}
	b.start()
	in := b.subscribe()
	s.until("sent after the restart", func(st Stats) bool { return st.Sent == 101 && st.Error == "" && st.Retries > 0 })
	s.Write(seq(101))
	for got := ""; got != `a/b/results 0 {"seq":101}`; got = next(t, in) {
	}
	s.close()
	if st := s.Stats(); st.Sent != 102 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// When the process of the server dies, the broker publishes the status offline.
func TestMQTTWill(t *testing.T) {
	if at := os.Getenv("MILLRACE_MQTT_DIES"); at != "" {
		s := Open(&MQTT{URL: at}, Env{Stream: "door", Log: slog.Default()})
		s.Run(t.Context()) // until the test kills the process
		return
	}
	t.Parallel()
	b := startMosquitto(t, "allow_anonymous true")
	in := b.subscribe()
	dies := exec.Command(os.Args[0], "-test.run=^TestMQTTWill$")
	dies.Env = append(os.Environ(), "MILLRACE_MQTT_DIES=mqtt://"+b.addr)
	if err := dies.Start(); err != nil {
		t.Fatal(err)
	}
	if got := next(t, in); got != "millrace/door/status 0 online" {
		t.Error(got)
	}
	_ = dies.Process.Signal(syscall.SIGKILL)
	_ = dies.Wait()
	if got := next(t, in); got != "millrace/door/status 0 offline" {
		t.Error(got)
	}
}

// TLS and passwords: a right address works, and each wrong part of an address is named.
func TestMQTTAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate(t, dir, "ca")
	certificate(t, dir, "other")
	passwords := filepath.Join(dir, "passwords")
	if out, err := exec.Command(testneeds.Program(t, "mosquitto_passwd"), "-b", "-c", passwords, "door",
		"right%").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := startMosquitto(t, "password_file "+passwords, "certfile "+filepath.Join(dir, "ca.pem"),
		"keyfile "+filepath.Join(dir, "ca.key"))
	plain := startMosquitto(t, "allow_anonymous true")
	ca := filepath.Join(dir, "ca.pem")
	for name, c := range map[string]struct {
		MQTT
		failure string
	}{
		"right":          {MQTT{URL: "mqtts://door:right%25@" + b.addr, CA: ca}, ""},
		"wrong password": {MQTT{URL: "mqtts://door:wrong@" + b.addr, CA: ca}, "refuses the user or the password"},
		"no user":        {MQTT{URL: "mqtts://" + b.addr, CA: ca}, "refuses the user or the password"},
		"authority":      {MQTT{URL: "mqtts://door:right%25@" + b.addr, CA: filepath.Join(dir, "other.pem")}, "certificate"},
		"no authority":   {MQTT{URL: "mqtts://door:right%25@" + b.addr, CA: filepath.Join(dir, "ca.key")}, "sinks.mqtt_ca"},
		"without TLS":    {MQTT{URL: "mqtt://door:right%25@" + b.addr}, "sinks.mqtt: "},
		"TLS to plain":   {MQTT{URL: "mqtts://" + plain.addr}, "sinks.mqtt: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := runMQTT(t, &c.MQTT)
			if c.failure != "" {
				s.until(c.failure, func(st Stats) bool { return strings.Contains(st.Error, c.failure) })
				if text := s.Stats().Error; strings.Contains(text, "right") || strings.Contains(text, "wrong") {
					t.Errorf("the error has the password: %s", text)
				}
				return
			}
			s.Write(seq(0))
			s.until("sent", func(st Stats) bool { return st.Sent == 1 && st.Error == "" })
		})
	}
}

// certificate writes a self-signed certificate of 127.0.0.1 and its key.
func certificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"pem": {Type: "CERTIFICATE", Bytes: der},
		"key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name+"."+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A refused address is not connected to.
func TestMQTTAddressRule(t *testing.T) {
	b := startMosquitto(t, "allow_anonymous true")
	s := Open(&MQTT{URL: "mqtt://" + b.addr}, Env{Stream: "door", Log: slog.New(slog.DiscardHandler),
		Allow: func(a netip.Addr) error { return fmt.Errorf("%v is private", a) }})
	s.Write(seq(0))
	s.Close()
	s.Run(t.Context())
	if st := s.Stats(); st.Lost != 1 || !strings.Contains(st.Error, "127.0.0.1 is private") {
		t.Errorf("%+v", st)
	}
}

// broken is a broker that accepts connections and acknowledges results as told.
type broken struct {
	refuse  byte                      // the reason of each acknowledgement
	silent  bool                      // no acknowledgement
	hangsUp func(payload string) bool // the connection ends before the acknowledgement of this result
	answer  packets.Connack
	dials   int

	mu       sync.Mutex // a connection that the client has ended may still be read
	results  []string
	farewell []byte // the reasons of the ends of connections by the client
}

func (b *broken) dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	b.dials++
	go b.serve(theirs)
	return ours, nil
}

func (b *broken) serve(c net.Conn) {
	defer c.Close()
	for {
		p, err := packets.ReadPacket(c)
		if err != nil {
			return
		}
		switch m := p.Content.(type) {
		case *packets.Connect:
			answer := b.answer
			_, err = answer.WriteTo(c)
		case *packets.Pingreq:
			_, err = (&packets.Pingresp{}).WriteTo(c)
		case *packets.Disconnect:
			b.mu.Lock()
			b.farewell = append(b.farewell, m.ReasonCode)
			b.mu.Unlock()
			return
		case *packets.Publish:
			if m.QoS == 0 {
				continue
			}
			b.mu.Lock()
			b.results = append(b.results, string(m.Payload))
			ends := b.hangsUp != nil && b.hangsUp(string(m.Payload))
			b.mu.Unlock()
			if ends {
				return
			}
			if !b.silent {
				_, err = (&packets.Puback{PacketID: m.PacketID, ReasonCode: b.refuse}).WriteTo(c)
			}
		}
		if err != nil {
			return
		}
	}
}

// runBroken writes n results to a broker, and returns the statistics after d and after the end.
func runBroken(t *testing.T, b *broken, n int, d time.Duration) (during, after Stats) {
	t.Helper()
	s := Open(&MQTT{URL: "mqtt://broker"}, Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}).(*mqtt)
	s.dial = b.dial
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(t.Context()) }()
	for i := range n {
		s.Write(seq(i))
	}
	time.Sleep(d)
	during = s.Stats()
	s.Close()
	<-ended
	synctest.Wait() // the broker has read everything
	return during, s.Stats()
}

// A broker that takes results without an acknowledgement, refuses results, or ends the connection at a certain result
// is named, delays nobody for ever, and each lost result is counted.
func TestMQTTBrokenBroker(t *testing.T) {
	test := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	test("silent", func(t *testing.T) {
		b := &broken{silent: true}
		during, after := runBroken(t, b, 3, mqttTimeout+time.Second)
		if !strings.Contains(during.Error, "has not acknowledged a result for 10s") || during.Lost != 0 ||
			during.Retries == 0 || after.Sent != 0 || after.Lost != 3 {
			t.Errorf("%+v, %+v", during, after)
		}
		if b.farewell[0] != packets.DisconnectDisconnectWithWillMessage {
			t.Errorf("the end has the reason %d, so that the broker keeps the status online", b.farewell[0])
		}
	})
	test("refuses results", func(t *testing.T) {
		during, after := runBroken(t, &broken{refuse: packets.PubackQuotaExceeded}, 3, time.Second)
		if !strings.Contains(during.Error, "refuses a result") || after.Lost != 3 || after.Sent != 0 {
			t.Errorf("%+v, %+v", during, after)
		}
	})
	test("always ends the connection at a result", func(t *testing.T) {
		b := &broken{hangsUp: func(payload string) bool { return payload == `{"seq":1}` }}
		during, after := runBroken(t, b, 3, time.Hour)
		if during.Sent != 2 || during.Lost != 1 || after.Lost != 1 || during.Retries != mqttAttempts {
			t.Errorf("%+v, %+v", during, after)
		}
	})
	test("ends connections with results in flight", func(t *testing.T) {
		ends := 0
		b := &broken{hangsUp: func(payload string) bool { ends++; return ends%7 == 0 }}
		_, after := runBroken(t, b, 50, time.Hour)
		var first []string // of each result, in the order of their first arrivals
		for _, r := range b.results {
			if !slices.Contains(first, r) {
				first = append(first, r)
			}
		}
		for i, r := range first {
			if r != string(seq(i)) {
				t.Fatalf("the order is %v", first)
			}
		}
		if after.Sent != 50 || after.Lost != 0 || len(first) != 50 || len(b.results) == 50 {
			t.Errorf("%+v, %d messages", after, len(b.results))
		}
	})
	test("ends the connection just after the end of the stream", func(t *testing.T) {
		ends := 0
		b := &broken{hangsUp: func(string) bool { ends++; time.Sleep(2 * time.Millisecond); return ends == 1 }}
		if _, after := runBroken(t, b, 1, time.Millisecond); after.Sent != 1 || after.Lost != 0 {
			t.Errorf("%+v", after)
		}
	})
	test("refuses the connection", func(t *testing.T) {
		b := &broken{answer: packets.Connack{ReasonCode: packets.ConnackServerBusy}}
		during, after := runBroken(t, b, 1, time.Second)
		if !strings.Contains(during.Error, "refuses the connection: ") || after.Lost != 1 {
			t.Errorf("%+v, %+v", during, after)
		}
	})
	test("announces no room", func(t *testing.T) {
		b := &broken{answer: packets.Connack{Properties: &packets.Properties{ReceiveMaximum: new(uint16(0))}}}
		during, after := runBroken(t, b, 1, time.Second)
		if !strings.Contains(during.Error, "receive maximum of 0") || after.Lost != 1 {
			t.Errorf("%+v, %+v", during, after)
		}
	})
	test("takes small messages", func(t *testing.T) {
		size := uint32(5 + 2 + len("millrace/door/results") + 2 + 1 + len(seq(9)))
		b := &broken{answer: packets.Connack{Properties: &packets.Properties{MaximumPacketSize: &size}}}
		if during, _ := runBroken(t, b, 11, time.Second); during.Sent != 10 || during.Lost != 1 || during.Retries != 0 {
			t.Errorf("%+v", during)
		}
	})
}

// Connections that end leave nothing in memory until the end of the stream.
func TestMQTTConnectionsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int64
		b := &broken{answer: packets.Connack{ReasonCode: packets.ConnackNotAuthorized}}
		s := Open(&MQTT{URL: "mqtt://broker"}, Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}).(*mqtt)
		s.dial = func(ctx context.Context) (net.Conn, error) {
			c, err := b.dial(ctx)
			held := &heldConn{c}
			runtime.AddCleanup(held, func(int) { freed.Add(1) }, 0)
			return held, err
		}
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(t.Context()) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		for range 100 {
			if runtime.GC(); freed.Load() >= int64(b.dials)-2 {
				break
			}
		}
		if n := freed.Load(); b.dials < 50 || n < int64(b.dials)-2 {
			t.Errorf("%d of %d connections are released", n, b.dials)
		}
		s.Close()
		<-ended
	})
}

type heldConn struct{ net.Conn }

// Each setting that would not work is refused by name.
func TestMQTTSettings(t *testing.T) {
	for _, c := range []struct {
		MQTT
		field string
	}{
		{MQTT{URL: "mqtt://a", Topic: "x/y"}, ""},
		{MQTT{URL: "mqtts://a:1", CA: "x"}, ""},
		{MQTT{}, ""},
		{MQTT{Topic: "x"}, "sinks.mqtt_topic"},
		{MQTT{CA: "x"}, "sinks.mqtt_ca"},
		{MQTT{URL: "mqtt://a", CA: "x"}, "sinks.mqtt_ca"},
		{MQTT{URL: "tcp://a"}, "sinks.mqtt"},
		{MQTT{URL: "mqtt://"}, "sinks.mqtt"},
		{MQTT{URL: "mqtt://a/topic"}, "sinks.mqtt"},
		{MQTT{URL: "mqtt://a:99999"}, "sinks.mqtt"},
		{MQTT{URL: "mqtt://a", Topic: "x/#"}, "sinks.mqtt_topic"},
		{MQTT{URL: "mqtt://a", Topic: "+"}, "sinks.mqtt_topic"},
		{MQTT{URL: "mqtt://a", Topic: "$SYS/x"}, "sinks.mqtt_topic"},
		{MQTT{URL: "mqtt://a", Topic: "x/"}, "sinks.mqtt_topic"},
		{MQTT{URL: "mqtt://a", Topic: "\xff"}, "sinks.mqtt_topic"},
		{MQTT{URL: "mqtt://a", Topic: strings.Repeat("x", mqttTopicMax+1)}, "sinks.mqtt_topic"},
	} {
		err := c.Validate()
		if got := fmt.Sprint(err); c.field == "" && err != nil || c.field != "" && !strings.Contains(got, c.field+":") {
			t.Errorf("%+v: %v, want %q", c.MQTT, err, c.field)
		}
	}
	if got := topicOf("a/b+c#d%e"); got != "millrace/a%2Fb%2Bc%23d%25e" {
		t.Error(got)
	}
}

// BenchmarkMQTT publishes to a broker on this machine.
func BenchmarkMQTT(b *testing.B) {
	at := os.Getenv("MQTT")
	if at == "" {
		b.Skip("MQTT=mqtt://HOST:PORT names a broker")
	}
	benchmarkSink(b, &MQTT{URL: at})
}

// benchmarkSink writes events as fast as the sink takes events.
func benchmarkSink(b *testing.B, c Settings) {
	s := Open(c, Env{Stream: "bench", Log: slog.New(slog.DiscardHandler)})
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(b.Context()) }()
	line := []byte(`{"id":"K7QWZ2M5TB4XA-7","x":"` + strings.Repeat("x", 400) + `"}`)
	for i := 0; b.Loop(); i++ {
		for uint64(i)-s.Stats().Sent > mqttQueue/2 {
			time.Sleep(100 * time.Microsecond)
		}
		s.Write(line)
	}
	s.Close()
	<-ended
	if st := s.Stats(); st.Lost > 0 {
		b.Error(strconv.FormatUint(st.Lost, 10) + " lost")
	}
}
