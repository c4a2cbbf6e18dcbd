package sinks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"millrace/stream/rules"
)

// discoveryTime is the time between two looks at the counts and the newest clip.
const discoveryTime = time.Second

// discovery announces the stream as a device by Home Assistant's MQTT discovery, and publishes the device's states:
// the counts of lines and zones, and the picture of the newest clip. Discovery of devices is described at
// https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery. Run owns the fields.
type discovery struct {
	topic     string // of the announcement
	id        string
	announced map[string]component // by the last announcement, also of another process
	sent      map[string]string    // retained values by topic, on this connection
	clip      string               // whose picture is published
	earlier   chan []byte          // the announcement on the broker before this connection
}

// component is an entity of the device.
type component struct {
	Platform    string   `json:"platform"`
	UniqueID    string   `json:"unique_id,omitempty"`
	Name        string   `json:"name,omitempty"`
	StateTopic  string   `json:"state_topic,omitempty"`
	StateClass  string   `json:"state_class,omitempty"`
	DeviceClass string   `json:"device_class,omitempty"`
	Template    string   `json:"value_template,omitempty"`
	EventTypes  []string `json:"event_types,omitempty"`
	ImageTopic  string   `json:"image_topic,omitempty"`
	ContentType string   `json:"content_type,omitempty"`
}

// announcement is the message of a device. Home Assistant removes a component that has only its platform.
type announcement struct {
	Device       device               `json:"device"`
	Origin       origin               `json:"origin"`
	Availability string               `json:"availability_topic"`
	Components   map[string]component `json:"components"`
}

type device struct {
	Identifiers  []string `json:"identifiers"`
	Name         string   `json:"name"`
	Manufacturer string   `json:"manufacturer"`
}

type origin struct {
	Name string `json:"name"`
}

// identifier replaces what an identifier of Home Assistant may not have, and adds a hash, so that different texts stay
// different.
func identifier(text string) string {
	const allowed = "-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	id := strings.Map(func(r rune) rune {
		if strings.ContainsRune(allowed, r) {
			return r
		}
		return '_'
	}, text[:min(len(text), 64)])
	hash := sha256.Sum256([]byte(text))
	return id + "_" + hex.EncodeToString(hash[:4])
}

func newDiscovery(prefix, topic string) *discovery {
	id := identifier(topic)
	return &discovery{topic: prefix + "/device/" + id + "/config", id: id}
}

// listen begins with a new connection: everything is published again. listen asks the broker for the announcement on
// the broker, perhaps of an earlier process with other rules. Without the permission to read the announcement, earlier
// components stay.
func (d *discovery) listen(ctx context.Context, c *connection) {
	earlier := make(chan []byte, 1)
	d.sent, d.clip, d.earlier = map[string]string{}, "", earlier
	c.AddOnPublishReceived(func(m paho.PublishReceived) (bool, error) {
		if m.Packet.Topic == d.topic && m.Packet.Retain {
			select {
			case earlier <- m.Packet.Payload:
			default:
			}
		}
		return true, nil
	})
	ctx, cancel := context.WithTimeout(ctx, mqttTimeout)
	defer cancel()
	_, _ = c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: d.topic, NoLocal: true}}})
}

// read takes over the components of the announcement on the broker.
func (d *discovery) read(text []byte) {
	var a announcement
	if json.Unmarshal(text, &a) != nil { // of another program: the next announcement replaces the message
		return
	}
	if d.announced == nil {
		d.announced = map[string]component{}
	}
	for key, c := range a.Components {
		if _, known := d.announced[key]; !known && c.UniqueID != "" {
			d.announced[key] = c
		}
	}
}

// topicText makes a name a level of a topic.
var topicText = strings.NewReplacer("%", "%25", "/", "%2F", "+", "%2B", "#", "%23")

// components returns the entities for the counts, and the values of their topics.
func (s *mqtt) components(all []ModelCounts) (list map[string]component, values map[string]string) {
	list, values = map[string]component{}, map[string]string{}
	add := func(name, path string, value any, c component) {
		c.Name, c.StateTopic, c.UniqueID = name, s.topic+"/"+path, s.discovery.id+"_"+identifier(path+c.DeviceClass)
		list[c.UniqueID] = c
		values[c.StateTopic] = fmt.Sprint(value)
	}
	for _, m := range all {
		path, of := "counts/"+topicText.Replace(m.Model)+"/", ""
		if len(all) > 1 {
			of = " (" + m.Model + ")"
		}
		for i := range m.Lines {
			l := &m.Lines[i]
			path := path + "lines/" + topicText.Replace(l.Name)
			crossings := component{Platform: "sensor", StateClass: "total_increasing"} // also after a reset
			add(l.Name+" in"+of, path+"/in", l.In, crossings)
			add(l.Name+" out"+of, path+"/out", l.Out, crossings)
		}
		for i := range m.Zones {
			z := &m.Zones[i]
			path := path + "zones/" + topicText.Replace(z.Name)
			add(z.Name+of, path, z.Now, component{Platform: "sensor", StateClass: "measurement"})
			add(z.Name+" occupied"+of, path, z.Now, component{Platform: "binary_sensor", DeviceClass: "occupancy",
				Template: "{{ 'ON' if value | int > 0 else 'OFF' }}"})
		}
	}
	if s.content == sendEvents {
		const template = "{{ {'event_type': value_json.type, 'id': value_json.id, " +
			"'rule': value_json.rule | default(''), 'class': value_json.class | default(''), " +
			"'direction': value_json.direction | default('')} | to_json }}"
		types := []string{"clip"}
		for _, t := range rules.EventTypes {
			types = append(types, string(t))
		}
		id := s.discovery.id + "_event"
		list[id] = component{Platform: "event", UniqueID: id, Name: "Event", StateTopic: s.topic + "/" + s.content,
			EventTypes: types, Template: template}
	}
	if s.picture != nil {
		id := s.discovery.id + "_picture"
		list[id] = component{Platform: "image", UniqueID: id, Name: "Newest clip", ImageTopic: s.topic + "/picture",
			ContentType: "image/jpeg"}
	}
	return list, values
}

// announce publishes what has changed since the last call on this connection. Run calls announce a second after the
// begin of a connection, after the announcement on the broker has come. While a model is not loaded, its components
// stay.
func (s *mqtt) announce(ctx context.Context, c *connection) error {
	d := s.discovery
	select {
	case text := <-d.earlier:
		d.read(text)
		delete(d.sent, d.topic)
	default:
	}
	var counts []ModelCounts
	all := true
	if s.counts != nil {
		counts, all = s.counts()
	}
	list, values := s.components(counts)
	gone := map[string]component{}
	for key, old := range d.announced {
		if _, kept := list[key]; !kept && !all {
			list[key] = old
		} else if !kept {
			gone[key] = component{Platform: old.Platform}
			if old.ImageTopic == s.topic+"/picture" {
				values[old.ImageTopic] = ""
			}
			if _, used := values[old.StateTopic]; !used && strings.HasPrefix(old.StateTopic, s.topic+"/counts/") {
				values[old.StateTopic] = ""
			}
		}
	}
	if len(gone) > 0 {
		maps.Copy(gone, list)
		if err := s.retainDevice(ctx, c, gone); err != nil {
			return err
		}
	}
	if err := s.retainDevice(ctx, c, list); err != nil {
		return err
	}
	d.announced = list
	for _, topic := range slices.Sorted(maps.Keys(values)) {
		if err := s.retain(ctx, c, topic, []byte(values[topic])); err != nil {
			return err
		}
	}
	if s.picture == nil {
		return nil
	}
	clip, read := s.picture()
	if clip == "" || clip == d.clip {
		return nil
	}
	d.clip = clip
	jpeg, err := read()
	if err == nil && len(jpeg) > MaxPicture {
		err = fmt.Errorf("the picture has more than %d bytes", MaxPicture)
	}
	if err != nil {
		s.log.Warn("the picture of a clip is not published", "stream", s.stream, "clip", clip, "error", err)
		return nil
	}
	return s.retain(ctx, c, s.topic+"/picture", jpeg)
}

// retainDevice publishes the announcement with components.
func (s *mqtt) retainDevice(ctx context.Context, c *connection, list map[string]component) error {
	d := s.discovery
	text, err := json.Marshal(announcement{device{[]string{d.id}, s.stream, "Millrace"}, origin{"Millrace"}, c.status,
		list})
	if err != nil {
		return err
	}
	return s.retain(ctx, c, d.topic, text)
}

// retain publishes a retained message, unless the broker has the message.
func (s *mqtt) retain(ctx context.Context, c *connection, topic string, payload []byte) error {
	d := s.discovery
	if last, sent := d.sent[topic]; sent && last == string(payload) {
		return nil
	}
	if len(payload) < 64<<10 || topic == d.topic {
		d.sent[topic] = string(payload)
	}
	if size := c.size(topic, payload); size > c.largest {
		s.log.Warn("a message of sinks.mqtt_discovery is not published: it is larger than the broker takes", "stream",
			s.stream, "topic", topic, "bytes", size, "most", c.largest)
		return nil
	}
	_, err := c.PublishWithOptions(ctx, &paho.Publish{Topic: topic, Retain: true, Payload: payload},
		paho.PublishOptions{})
	return err
}

// lastAnnouncement publishes the last values, or removes the device if the stream or the sink was removed.
func (s *mqtt) lastAnnouncement(ctx context.Context, c *connection) error {
	if d := s.discovery; len(d.sent) == 0 { // the connection has just begun
		select {
		case text := <-d.earlier:
			d.read(text)
		case <-time.After(discoveryTime):
		case <-ctx.Done():
		}
	}
	if err := s.announce(ctx, c); err != nil || s.removed == nil || !s.removed() {
		return err
	}
	return s.withdraw(ctx, c)
}

// withdraw removes the device, its values and its picture from the broker.
func (s *mqtt) withdraw(ctx context.Context, c *connection) error {
	d := s.discovery
	topics := []string{d.topic}
	for _, old := range d.announced {
		if strings.HasPrefix(old.StateTopic, s.topic+"/counts/") {
			topics = append(topics, old.StateTopic)
		}
		if old.ImageTopic != "" {
			topics = append(topics, old.ImageTopic)
		}
	}
	for _, topic := range topics {
		if err := s.retain(ctx, c, topic, nil); err != nil {
			return err
		}
	}
	return nil
}
