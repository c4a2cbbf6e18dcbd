package sinks

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"millrace/internal/outbound"
	"millrace/stream"
)

func init() {
	Register(Kind{Name: "kafka", Remote: true, New: func() Settings { return new(Kafka) }})
}

// Kafka produces results to a Kafka topic.
type Kafka struct {
	URL   string `json:"kafka" request:"any" advanced:"yes" example:"kafkas://user:password@127.0.0.1:9" help:"produce results to this Kafka broker: kafka://HOST:9092, or kafkas://USER:PASSWORD@HOST:9093 with TLS"`
	Send  string `json:"kafka_send" words:"results events" default:"results" request:"any" advanced:"yes" help:"results, or only events of lines and zones, and clips; with data, events wait on disk (docs/events.md)"`
	Topic string `json:"kafka_topic" request:"any" advanced:"yes" help:"topic, which must exist; default: millrace-results or millrace-events; the key is the stream's name"`
	SASL  string `json:"kafka_sasl" words:"plain scram-sha-256 scram-sha-512" default:"scram-sha-512" request:"any" advanced:"yes" help:"how the user of the address logs in; plain needs kafkas://"`
	CA    string `json:"kafka_ca" path:"file" advanced:"yes" help:"PEM file with the certificate authorities of the brokers, in place of the system's"`
}

const kafkaBatchBytes = 1_000_012 // of a batch of results: the default of Kafka's max.message.bytes

var kafkaAddress = brokerAddress{"kafka", "9092", "kafkas", "9093", "sinks.kafka_topic"}

// topicName is the rule of Kafka for names of topics.
var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// Enabled implements Settings.
func (c *Kafka) Enabled() bool { return c.URL != "" }

func (c *Kafka) sendsEvents() bool { return c.Send == sendEvents }

// Validate implements Settings.
func (c *Kafka) Validate() error {
	if c.URL == "" {
		for key, set := range map[string]bool{"kafka_send": c.Send != "", "kafka_topic": c.Topic != "",
			"kafka_sasl": c.SASL != "", "kafka_ca": c.CA != ""} {
			if set {
				return stream.Errorf(stream.InvalidArgument, "sinks."+key, "is set without sinks.kafka")
			}
		}
		return nil
	}
	u, err := kafkaAddress.parse(c.URL)
	switch {
	case err != nil:
		return stream.Errorf(stream.InvalidArgument, "sinks.kafka", "%w", err)
	case c.CA != "" && u.Scheme != "kafkas":
		return stream.Errorf(stream.InvalidArgument, "sinks.kafka_ca",
			"is set without an address kafkas:// in sinks.kafka")
	case c.SASL != "" && u.User == nil:
		return stream.Errorf(stream.InvalidArgument, "sinks.kafka_sasl", "is set without a user in sinks.kafka")
	case c.SASL == "plain" && u.Scheme != "kafkas":
		return stream.Errorf(stream.InvalidArgument, "sinks.kafka_sasl", "plain sends the password unencrypted: use "+
			"an address kafkas:// in sinks.kafka, or scram-sha-512")
	case c.Topic != "" && (!topicName.MatchString(c.Topic) || c.Topic == "." || c.Topic == ".."):
		return stream.Errorf(stream.InvalidArgument, "sinks.kafka_topic", "%.260q is no topic: want up to 249 "+
			"letters, digits, dots, _ and -", c.Topic)
	}
	return nil
}

// Open implements Settings. The sink refuses addresses forbidden by Env.Allow after every look-up of the name, also of
// the brokers that a broker names.
func (c *Kafka) Open(e Env) Sink {
	p := &kafkaPublisher{settings: *c, key: []byte(e.Stream), allow: e.Allow,
		topic: cmp.Or(c.Topic, "millrace-"+cmp.Or(c.Send, sendResults))}
	var invalid error
	p.address, invalid = kafkaAddress.parse(c.URL)
	return newBatches("kafka", p.address, invalid, e, c.sendsEvents(), p)
}

// kafkaPublisher produces with acknowledgements of all in-sync replicas. While a connection to the cluster lasts,
// Kafka drops the repeats of a request.
type kafkaPublisher struct {
	settings Kafka
	topic    string
	key      []byte
	allow    func(netip.Addr) error
	address  *url.URL
	alone    bool // each result in a request of its own: the topic takes smaller requests than a batch

	client *kgo.Client // nil = not connected
}

func (p *kafkaPublisher) connect(ctx context.Context) error {
	dial := outbound.Dialer(batchTimeout, p.allow)
	options := []kgo.Opt{kgo.SeedBrokers(p.address.Host), kgo.DefaultProduceTopic(p.topic), kgo.ClientID("millrace"),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(batchMost), kgo.ManualFlushing(),
		kgo.ProducerBatchMaxBytes(kafkaBatchBytes), kgo.UnknownTopicRetries(0), kgo.Dialer(dial.DialContext)}
	if p.address.Scheme == "kafkas" {
		config, err := secured("", "kafka_ca", p.settings.CA) // the dialer adds the name of each broker
		if err != nil {
			return err
		}
		options = append(options, kgo.Dialer((&tls.Dialer{NetDialer: dial, Config: config}).DialContext))
	}
	if user := p.address.User; user != nil {
		password, _ := user.Password()
		switch p.settings.SASL {
		case "plain":
			options = append(options, kgo.SASL(plain.Auth{User: user.Username(), Pass: password}.AsMechanism()))
		case "scram-sha-256":
			options = append(options, kgo.SASL(scram.Auth{User: user.Username(), Pass: password}.AsSha256Mechanism()))
		default:
			options = append(options, kgo.SASL(scram.Auth{User: user.Username(), Pass: password}.AsSha512Mechanism()))
		}
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	p.client = client
	err = client.Ping(ctx)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return errors.New("the broker refuses the user or the password of the address")
	case errors.Is(err, io.EOF) && p.address.User != nil:
		return fmt.Errorf("the broker ends the connection at the log-in, as brokers do that refuse the user or the "+
			"password of the address: %w", err)
	}
	return err
}

func (p *kafkaPublisher) publish(ctx context.Context, list []message) (ended []error, err error) {
	if p.alone {
		list = list[:1]
	}
	var mu sync.Mutex // of ends: a result may end after ctx
	ends := make([]error, len(list))
	for i, m := range list {
		ends[i] = errNoEnd
		record := &kgo.Record{Key: p.key, Value: m.text, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(m.id)}}}
		p.client.TryProduce(ctx, record, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			ends[i] = err
		})
	}
	_ = p.client.Flush(ctx) // ends has the errors
	mu.Lock()
	defer mu.Unlock()
	for i, end := range ends {
		switch {
		case errors.Is(end, kerr.MessageTooLarge) && len(list) > 1 && len(list[i].text) < kafkaBatchBytes:
			p.alone = true
			return ended, end
		case errors.Is(end, kerr.MessageTooLarge):
			ended = append(ended, fmt.Errorf("a result of %d bytes is lost: the topic takes smaller messages",
				len(list[i].text)))
		case errors.Is(end, kerr.UnknownTopicOrPartition):
			return ended, fmt.Errorf("the topic %s does not exist: create the topic, or name another by "+
				"sinks.kafka_topic", p.topic)
		case end != nil:
			return ended, end
		default:
			ended = append(ended, nil)
		}
	}
	return ended, nil
}

var errNoEnd = fmt.Errorf("the broker has not acknowledged a result for %v", batchTimeout)

func (p *kafkaPublisher) close() {
	if p.client != nil {
		p.client.Close()
	}
	p.client = nil
}
