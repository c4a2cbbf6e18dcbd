package sinks

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
	"github.com/eclipse/paho.golang/paho/session/state"

	"millrace/internal/backoff"
	"millrace/internal/outbound"
	"millrace/stream"
)

const (
	mqttQueue     = 1000             // maximum number of waiting results; further results are lost
	mqttWindow    = 64               // maximum number of published results without an acknowledgement
	mqttTimeout   = 10 * time.Second // of connecting, and of an acknowledgement
	mqttAttempts  = 8                // connections that may end with one unacknowledged result
	mqttKeepAlive = 30               // seconds
	mqttTopicMax  = 1024             // bytes
	mqttReceive   = 4 << 20          // bytes of the largest message that the broker may send: see discovery
)

var mqttAddress = brokerAddress{"mqtt", "1883", "mqtts", "8883", "sinks.mqtt_topic"}

func init() {
	Register(Kind{Name: "mqtt", Remote: true, New: func() Settings { return new(MQTT) }})
}

// MQTT publishes results to a broker by MQTT 5.
type MQTT struct {
	URL       string `json:"mqtt" request:"any" example:"mqtts://127.0.0.1:9" help:"publish results to this MQTT 5 broker: mqtt://USER:PASSWORD@HOST:1883, or mqtts:// with TLS (port 8883)"`
	Send      string `json:"mqtt_send" words:"results events" default:"results" request:"any" advanced:"yes" help:"results, or only events of lines and zones, and clips; with data, events wait on disk (docs/events.md)"`
	Topic     string `json:"mqtt_topic" request:"any" advanced:"yes" help:"topic: results go to TOPIC/results, events to TOPIC/events, the words online and offline to TOPIC/status; default: millrace/ and the stream's name"`
	Discovery string `json:"mqtt_discovery" request:"any" advanced:"yes" example:"homeassistant" help:"the prefix of Home Assistant's MQTT discovery, homeassistant unless changed there: the stream is a device with the counts of its lines and zones, and the picture of its newest clip"`
	CA        string `json:"mqtt_ca" path:"file" advanced:"yes" help:"PEM file with the certificate authorities of the broker, in place of the system's"`
}

// Enabled implements Settings.
func (c *MQTT) Enabled() bool { return c.URL != "" }

func (c *MQTT) sendsEvents() bool { return c.Send == sendEvents }

// Validate implements Settings.
func (c *MQTT) Validate() error {
	if c.URL == "" {
		for key, set := range map[string]bool{"mqtt_send": c.Send != "", "mqtt_topic": c.Topic != "",
			"mqtt_discovery": c.Discovery != "", "mqtt_ca": c.CA != ""} {
			if set {
				return stream.Errorf(stream.InvalidArgument, "sinks."+key, "is set without sinks.mqtt")
			}
		}
		return nil
	}
	u, err := mqttAddress.parse(c.URL)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "sinks.mqtt", "%w", err)
	}
	if c.CA != "" && u.Scheme != "mqtts" {
		return stream.Errorf(stream.InvalidArgument, "sinks.mqtt_ca",
			"is set without an address mqtts:// in sinks.mqtt")
	}
	if err := checkTopic("sinks.mqtt_topic", c.Topic); err != nil {
		return err
	}
	return checkTopic("sinks.mqtt_discovery", c.Discovery)
}

// checkTopic returns an error unless the value of a setting may be the begin of a topic.
func checkTopic(key, t string) error {
	switch {
	case strings.ContainsAny(t, "+#\x00"), !utf8.ValidString(t):
		return stream.Errorf(stream.InvalidArgument, key, "%q contains +, #, a zero byte or bytes that are not UTF-8, "+
			"which the topic of a message may not have", t)
	case strings.HasPrefix(t, "$"), strings.HasPrefix(t, "/"), strings.HasSuffix(t, "/"):
		return stream.Errorf(stream.InvalidArgument, key, "%q begins with $ or /, or ends with /", t)
	case len(t) > mqttTopicMax:
		return stream.Errorf(stream.InvalidArgument, key, "is longer than %d bytes", mqttTopicMax)
	}
	return nil
}

// announces returns what names the device that the sink announces, or "": see Announces.
func (c *MQTT) announces(name string) string {
	if c.Discovery == "" {
		return ""
	}
	return strings.Join([]string{c.URL, c.Discovery, cmp.Or(c.Topic, topicOf(name))}, " ")
}

// topicOf returns the default topic of a stream. A name cannot add a level or a wildcard.
func topicOf(name string) string {
	return "millrace/" + topicText.Replace(name)
}

// Open implements Settings. The sink refuses addresses forbidden by Env.Allow after every look-up of the name.
func (c *MQTT) Open(e Env) Sink {
	s := &mqtt{
		stream: e.Stream, topic: c.Topic, ca: c.CA, log: e.Log,
		backoff: backoff.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second},
		content: cmp.Or(c.Send, sendResults), counts: e.Counts, picture: e.Picture, removed: e.Removed,
	}
	s.begin(mqttQueue, e)
	if s.topic == "" {
		s.topic = topicOf(e.Stream)
	}
	if c.Discovery != "" {
		s.discovery = newDiscovery(c.Discovery, s.topic)
	}
	s.address, s.invalid = mqttAddress.parse(c.URL)
	s.dial = func(ctx context.Context) (net.Conn, error) { return s.open(ctx, e.Allow) }
	s.id = "millrace-" + rand.Text()
	return s
}

// mqtt publishes a message for each result, in order. A result that the broker did not acknowledge before the end of
// a connection is published again on the next connection.
type mqtt struct {
	stream, topic, id, ca string
	content               string // the last level of the topic
	address               *url.URL
	invalid               error
	log                   *slog.Logger
	dial                  func(context.Context) (net.Conn, error)
	backoff               backoff.Backoff
	discovery             *discovery // nil = none
	counts                func() ([]ModelCounts, bool)
	picture               func() (string, func() ([]byte, error))
	removed               func() bool

	pending [][]byte // published or next to be published, without an acknowledgement; of Run
	ended   int      // connections that ended since pending[0] became the oldest

	queued
}

// Run implements Sink. Run connects before the first result, so that a wrong address is noticed early.
func (s *mqtt) Run(ctx context.Context) {
	last, stop := afterGrace(ctx)
	defer stop()
	s.attempts(ctx, &s.backoff, func() (over bool) {
		over, err := s.publish(last)
		if !over {
			s.failed(err)
		}
		return over
	}, func() int { return len(s.pending) })
}

// publish connects and publishes until the connection ends. over says that the sink was closed and has no result left.
func (s *mqtt) publish(last context.Context) (over bool, err error) {
	c, err := s.connect(last)
	if err != nil {
		return false, err
	}
	if len(s.pending) == 0 { // otherwise the broker has yet to acknowledge a result
		s.connected()
	}
	var acks []chan packets.ControlPacket // of the first len(acks) of s.pending
	defer func() {
		c.close(over)
		for len(acks) > 0 && len(acks[0]) > 0 && s.acknowledge(<-acks[0]) { // by an answer from before the end
			acks = acks[1:]
		}
		if len(s.pending) > 0 && last.Err() == nil {
			s.unacknowledged()
		}
	}()
	limit := time.NewTimer(mqttTimeout) // of the oldest acknowledgement
	defer limit.Stop()
	var look <-chan time.Time
	if s.discovery != nil {
		ticker := time.NewTicker(discoveryTime)
		defer ticker.Stop()
		look = ticker.C
		s.discovery.listen(last, c)
	}
	queue := s.queue
	for {
		window := c.window
		if s.ended > 0 { // so that no result ends the connection before the oldest result is acknowledged
			window = 1
		}
		for len(acks) < len(s.pending) && len(acks) < window {
			if size := c.size(c.topic, s.pending[len(acks)]); size > c.largest {
				acks = append(acks, tooLarge(size, c.largest))
				continue
			}
			ack, err := c.publish(last, s.pending[len(acks)])
			if err != nil {
				return false, c.reason(err)
			}
			acks = append(acks, ack)
		}
		if queue == nil && len(s.pending) == 0 {
			if s.discovery != nil {
				if err := s.lastAnnouncement(last, c); err != nil {
					return false, c.reason(err)
				}
			}
			c.tell(last, "offline") // a broker publishes no will after a farewell
			return true, nil
		}
		in, oldest := queue, chan packets.ControlPacket(nil)
		if len(s.pending) >= c.window {
			in = nil
		}
		if len(acks) > 0 {
			oldest = acks[0]
		} else {
			limit.Reset(mqttTimeout)
		}
		select {
		case line, more := <-in:
			if !more {
				queue = nil
				continue
			}
			s.pending = append(s.pending, line)
		case p := <-oldest:
			acks = acks[1:]
			if !s.acknowledge(p) {
				return false, c.reason(errEnded)
			}
			limit.Reset(mqttTimeout)
		case <-look:
			if err := s.announce(last, c); err != nil {
				return false, c.reason(err)
			}
		case <-limit.C:
			if len(acks) > 0 {
				return false, fmt.Errorf("the broker has not acknowledged a result for %v", mqttTimeout)
			}
		case <-c.Done():
			return false, c.reason(errEnded)
		case <-last.Done():
			return false, errors.New("the server ends before the broker has acknowledged all results")
		}
	}
}

// acknowledge ends the oldest result by its acknowledgement, or returns false when the connection ended before.
func (s *mqtt) acknowledge(p packets.ControlPacket) bool {
	var refusal error
	switch ack := p.Content.(type) {
	case *packets.Puback:
		if ack.ReasonCode >= packets.PubackUnspecifiedError {
			refusal = fmt.Errorf("the broker refuses a result: %s", ack.Reason())
		}
	case *unpublished:
		refusal = ack.error
	default:
		return false
	}
	s.pending, s.ended = s.pending[1:], 0
	s.backoff.Reset()
	if refusal != nil {
		s.failed(refusal)
		s.settle(0, 1)
	} else {
		s.connected()
		s.settle(1, 0)
	}
	return true
}

// unpublished is in the place of the acknowledgement of a result that is not published.
type unpublished struct {
	packets.Packet
	error
}

// tooLarge returns the channel of the acknowledgement of a result that the broker does not take.
func tooLarge(size, largest int) chan packets.ControlPacket {
	ack := make(chan packets.ControlPacket, 1)
	ack <- packets.ControlPacket{Content: &unpublished{
		error: fmt.Errorf("a result of %d bytes is lost: the broker takes %d bytes", size, largest)}}
	return ack
}

// unacknowledged counts the end of a connection with an unacknowledged result. A result that ends connection after
// connection, such as one larger than the broker takes, is lost, so that later results go on.
func (s *mqtt) unacknowledged() {
	if s.ended++; s.ended == mqttAttempts && !s.keeps {
		s.pending, s.ended = s.pending[1:], 0
		s.settle(0, 1)
	}
}

var errEnded = errors.New("the broker closes the connection")

// connection is a connection to the broker.
type connection struct {
	*paho.Client
	acks    *acks
	topic   string // of results
	status  string // topic of the status
	window  int    // maximum number of results without an acknowledgement
	largest int    // bytes of a message
	ended   chan error
	release func() bool
}

// connect connects, and publishes the status online. The broker publishes offline when the connection breaks.
func (s *mqtt) connect(last context.Context) (*connection, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	ctx, cancel := context.WithTimeout(last, mqttTimeout)
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{acks: &acks{SessionManager: state.NewInMemory()}, topic: s.topic + "/" + s.content,
		status: s.topic + "/status", window: mqttWindow, largest: math.MaxInt, ended: make(chan error, 1),
		release: context.AfterFunc(last, func() { _ = conn.Close() })}
	end := func(err error) {
		select {
		case c.ended <- err:
		default:
		}
	}
	c.Client = paho.NewClient(paho.ClientConfig{
		ClientID: s.id, Conn: packets.NewThreadSafeConn(limitedWrites{conn}), Session: c.acks,
		PacketTimeout: mqttTimeout, OnClientError: end,
		OnServerDisconnect: func(d *paho.Disconnect) {
			end(fmt.Errorf("the broker ends the connection: %s", d.Packet().Reason()))
		},
	})
	password, hasPassword := s.address.User.Password()
	hello := &paho.Connect{
		ClientID: s.id, KeepAlive: mqttKeepAlive, CleanStart: true,
		Username: s.address.User.Username(), UsernameFlag: s.address.User.Username() != "",
		Password: []byte(password), PasswordFlag: hasPassword,
		Properties: &paho.ConnectProperties{ReceiveMaximum: new(uint16(1)), // paho has room for as many messages
			MaximumPacketSize: new(uint32(mqttReceive))},
		WillMessage: &paho.WillMessage{Topic: c.status, Payload: []byte("offline"), Retain: true},
	}
	answer, err := c.Connect(ctx, hello)
	if err == nil && answer.Properties != nil {
		err = c.limit(answer.Properties)
	}
	if err != nil {
		c.release()
		_ = conn.Close()
		_ = c.acks.Close()
		return nil, refusal(answer, err)
	}
	c.tell(ctx, "online")
	return c, nil
}

// limit takes over the limits of the broker.
func (c *connection) limit(p *paho.ConnackProperties) error {
	switch {
	case p.MaximumQoS != nil && *p.MaximumQoS == 0:
		return errors.New("the broker takes no messages with an acknowledgement (quality of service 1)")
	case p.ReceiveMaximum != nil && *p.ReceiveMaximum == 0:
		return errors.New("the broker announces a receive maximum of 0, which MQTT 5 forbids")
	case p.ReceiveMaximum != nil:
		c.window = min(c.window, int(*p.ReceiveMaximum))
	}
	if p.MaximumPacketSize != nil {
		c.largest = int(*p.MaximumPacketSize)
	}
	return nil
}

// size returns the bytes of a message: a fixed header of at most five bytes, the lengths of topic and properties, and a
// packet identifier (MQTT 5, section 3.3).
func (c *connection) size(topic string, payload []byte) int {
	return 5 + 2 + len(topic) + 2 + 1 + len(payload)
}

// refusal describes why there is no connection.
func refusal(c *paho.Connack, err error) error {
	if c == nil || c.ReasonCode == 0 {
		return err
	}
	switch c.ReasonCode {
	case packets.ConnackBadUsernameOrPassword, packets.ConnackNotAuthorized:
		return errors.New("the broker refuses the user or the password of the address")
	}
	return fmt.Errorf("the broker refuses the connection: %s", (&packets.Connack{ReasonCode: c.ReasonCode}).Reason())
}

// open opens the connection.
func (s *mqtt) open(ctx context.Context, allow func(netip.Addr) error) (net.Conn, error) {
	conn, err := outbound.Dialer(mqttTimeout, allow).DialContext(ctx, "tcp", s.address.Host)
	if err != nil || s.address.Scheme == "mqtt" {
		return conn, err
	}
	config, err := secured(s.address.Hostname(), "mqtt_ca", s.ca)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		if errors.As(err, new(x509.UnknownAuthorityError)) {
			err = fmt.Errorf("%w; sinks.mqtt_ca names the file of an authority of your own", err)
		}
		return nil, err
	}
	return secured, nil
}

// limitedWrites limits the time of each write, so that a broker that does not read cannot hold the sink.
type limitedWrites struct{ net.Conn }

func (c limitedWrites) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(mqttTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// publish publishes a result with quality of service 1, and returns the channel of the acknowledgement.
func (c *connection) publish(ctx context.Context, result []byte) (chan packets.ControlPacket, error) {
	_, err := c.PublishWithOptions(ctx, &paho.Publish{Topic: c.topic, QoS: 1, Payload: result},
		paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
	return c.acks.last, err
}

// tell publishes the status. The next read or write notices a connection that breaks here.
func (c *connection) tell(ctx context.Context, status string) {
	_, _ = c.PublishWithOptions(ctx, &paho.Publish{Topic: c.status, Retain: true, Payload: []byte(status)},
		paho.PublishOptions{})
}

// reason returns why the connection ended, or err.
func (c *connection) reason(err error) error {
	select {
	case first := <-c.ended:
		return first
	case <-time.After(10 * time.Millisecond):
		return err
	}
}

// close ends the connection. Without a farewell, the broker publishes the status offline.
func (c *connection) close(farewell bool) {
	reason := byte(packets.DisconnectDisconnectWithWillMessage)
	if farewell {
		reason = packets.DisconnectNormalDisconnection
	}
	_ = c.Disconnect(&paho.Disconnect{ReasonCode: reason})
	_ = c.acks.Close()
	c.release()
}

// acks keeps the channel of the acknowledgement of each message, which paho does not return for messages whose
// acknowledgement the caller does not wait for.
type acks struct {
	session.SessionManager
	last chan packets.ControlPacket // of the newest message
}

// AddToSession implements session.SessionManager.
func (a *acks) AddToSession(ctx context.Context, p session.Packet, answer chan<- packets.ControlPacket) error {
	if _, message := p.(*packets.Publish); !message {
		return a.SessionManager.AddToSession(ctx, p, answer)
	}
	a.last = make(chan packets.ControlPacket, 1)
	return a.SessionManager.AddToSession(ctx, p, a.last)
}

// connected records that the broker takes results, and logs the end of a failure.
func (s *mqtt) connected() {
	if s.failure.Load() != nil {
		s.fail(nil)
		s.log.Info("a stream's MQTT broker takes results again", "stream", s.stream, "address", s.address.Host)
	}
}

// failed records a failure, and logs the first failure in a row.
func (s *mqtt) failed(err error) {
	text, first := s.failureOf("mqtt", err)
	if first {
		s.log.Warn("a stream's results do not reach the MQTT broker: up to 1000 results wait", "stream", s.stream,
			"error", text)
	}
}
