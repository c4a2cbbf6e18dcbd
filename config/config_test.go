package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/batching"
	"millrace/config"
	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/clips"
	"millrace/stream"
	"millrace/workers"
	_ "millrace/workers/delay"
	_ "millrace/workers/identity"
	_ "millrace/workers/motion"
)

const whole = `
# every section once
http: 127.0.0.1:9000
grpc: off
hosts: [farm.example, "10.0.0.7"]
memory: {budget: 512MiB}
limits:
  max_body: 16MiB
  max_sessions: 5
log: {level: debug, format: json}
drain: 3s
sources: {allow_private: true}
models:
  - name: cost
    source: delay
    version: 3
    instances: 2
    batching: {kind: soft, max_size: 8, max_delay: 20ms}
    input: {image: {width: 320, height: 240, layout: NCHW, color: RGB, scale: 0.00392157, std: [0.5, 0.25, 1]}}
    stream: {policy: latest, max_age_ms: 500, priority: high}
    limits: {run: 2s}
    max_flows: 64
    fixed: 5ms
    per_item: "1ms"
    busy: true
  - {name: plain, source: identity}
`

func TestParse(t *testing.T) {
	c, err := config.Parse([]byte(whole), "whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{}.WithDefaults()
	want.HTTP, want.GRPC = "127.0.0.1:9000", "off"
	want.Hosts = []string{"farm.example", "10.0.0.7"}
	want.Memory.Budget = 512 << 20
	want.Limits.MaxBody, want.Limits.MaxSessions = 16<<20, 5
	want.Log = config.Log{Level: "debug", Format: "json", DebugRate: 20}
	want.Drain = 3 * time.Second
	want.Sources.AllowPrivate = true
	want.Models = []workers.Config{{
		Name: "cost", Source: "delay", Version: "3", Instances: 2,
		Batching: workers.Batching{Kind: "soft", MaxSize: 8},
		Image: &stream.ImageSpec{
			Width: 320, Height: 240, Layout: "NCHW", Color: "RGB",
			Scale: [3]float32{0.00392157, 0.00392157, 0.00392157}, Std: [3]float32{0.5, 0.25, 1},
		},
		Policy:   stream.Policy{Mode: stream.Latest, MaxAge: 500 * time.Millisecond, Priority: stream.High},
		Limits:   workers.Limits{Run: 2 * time.Second},
		MaxFlows: 64,
		Params:   stream.Params{"fixed": "5ms", "per_item": "1ms", "busy": true},
		Parts:    []any{&batching.SoftSettings{MaxDelay: 20 * time.Millisecond}},
	}, {Name: "plain", Source: "identity"}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

// ofRules returns a configuration with a stream with rules.
func ofRules(rules string) string {
	return "streams:\n  - name: a\n    model: m\n    source: folder:/x\n    rules: {" + rules + "}\n"
}

func TestRulesOfAStream(t *testing.T) {
	c, err := config.Parse([]byte(ofRules("lines: [{name: door, from: [0.5, 0], to: [0.5, 1]}], zones: [{name: yard, "+
		"polygon: [[0, 0.5], [1, 0.5], [1, 1], [0, 1]], dwell: 30s, count: {over: 3, for: 10s}}]")), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c.Streams[0])
	if want := `{"model":"m","name":"a","rules":{"lines":[{"from":[0.5,0],"name":"door","to":[0.5,1]}],"zones":` +
		`[{"count":{"for":"10s","over":3},"dwell":"30s","name":"yard","polygon":[[0,0.5],[1,0.5],[1,1],[0,1]]}]},` +
		`"source":"folder:/x"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// Each mistake is reported with file, line, path and advice.
func TestParseRefuses(t *testing.T) {
	model := func(rest string) string { return "models:\n  - name: a\n    source: delay\n" + rest }
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "htpp: 127.0.0.1:1", "f.yaml:1: htpp: is not a setting (did you mean http?)"},
		{"unknown list", "modles: [{name: a, source: delay}]",
			"f.yaml:1: modles: is not a setting (did you mean models?)"},
		{"unknown nested key", "memory:\n  bugdet: 1GiB",
			"f.yaml:2: memory.bugdet: is not a setting (did you mean budget?)"},
		{"unknown far key", "memory:\n  colour: 1", "f.yaml:2: memory.colour: is not a setting: there are budget"},
		{"key of a model", model("    batching: {max_sise: 3}\n"),
			"f.yaml:4: models[0].batching.max_sise: is not a setting (did you mean max_size?)"},
		{"parameter of a worker", model("    fixd: 3ms\n"),
			"f.yaml:4: models[0].fixd: is neither a setting of a model nor a parameter of delay (did you mean fixed?)"},
		{"parameter below params", model("    params: {fixed: 3ms}\n"), "f.yaml:4: models[0].params.fixed: is " +
			"neither a setting of a model nor a parameter of delay: write fixed beside name and source, not below " +
			"params"},
		{"misspelt section", model("    btaching: {max_size: 3}\n"),
			"f.yaml:4: models[0].btaching.max_size: is neither"},
		{"image", model("    input: {image: {widht: 3}}\n"),
			"f.yaml:4: models[0].input.image.widht: is not a setting (did you mean width?)"},
		{"bad value of a model", "models:\n  - {name: a, source: delay}\n  - name: b\n    source: delay\n    " +
			"batching:\n      max_size: 9999\n", "f.yaml:6: models[1].batching.max_size: 9999 is not between"},
		{"policy", model("    stream: {policy: newest}\n"),
			`f.yaml:4: models[0].stream.policy: "newest" is unknown: want latest or every`},
		{"priority", model("    stream: {priority: top}\n"), `models[0].stream.priority: "top"`},
		{"memory backend", model("    batching: {memory: gpu}\n"), `f.yaml:4: models[0].batching.memory: "gpu"`},
		{"batcher", model("    batching: {kind: eager}\n"), `f.yaml:4: models[0].batching.kind: "eager"`},
		{"setting of another batcher", model("    batching: {max_delay: 3ms}\n"),
			"f.yaml:4: models[0].batching.max_delay: is a setting of the batcher soft, and batching.kind is adaptive"},
		{"settings of two batchers", model("    batching: {kind: soft, max_delay: 3ms, slack: 2ms}\n"),
			"f.yaml:4: models[0].batching.slack: is a setting of the batcher deadline, and batching.kind is soft"},
		{"setting of tracking alone", model("    output: {boxes: {}, track_iou: 0.5}\n"),
			"f.yaml:4: models[0].output.track_iou: is set without output.track"},
		{"setting of the gate alone", model("    gate: {refresh: 3s}\n"),
			"f.yaml:4: models[0].gate.refresh: is set without gate.changed"},
		{"camera in a loop", "streams:\n  - {name: a, model: m, source: \"rtsp://x/y\", loop: true}",
			"f.yaml:2: streams[0].loop: is for videos and folders with an end"},
		{"size of an image", model("    input: {image: {width: 3, height: -4}}\n"),
			"f.yaml:4: models[0].input.image.height: -4"},
		{"std of zero", model("    input: {image: {width: 3, height: 4, std: [1, 0, 1]}}\n"), "input.image.std"},
		{"two numbers", model("    input: {image: {width: 3, height: 4, std: [1, 2]}}\n"), "has 2 numbers"},
		{"no such kind", "models:\n  - {name: a, source: dealy}",
			`models[0].source: "dealy" is not a kind of worker (did you mean delay?)`},
		{"nothing to load", "models:\n  - {name: a, source: ./x.bin}",
			"f.yaml:2: models[0].source: \"./x.bin\" cannot be loaded"},
		{"no source", "models:\n  - {name: a}", "f.yaml:2: models[0].source: is missing"},
		{"no name", "models:\n  - {source: delay}", `models[0].name: is empty`},
		{"bad name", "models:\n  - {source: delay, name: ../x}", "models[0].name"},
		{"same name", "models:\n  - {source: delay, name: a}\n  - {source: delay, name: a}",
			`f.yaml:3: models[1].name: "a" is the name of models[0] already`},
		{"versions of one", model("    versions: {all: true}\n"),
			"f.yaml:4: models[0].versions: has no effect here, where a model has one version"},
		{"shadow of one", model("    shadow: {version: 2}\n"), "f.yaml:4: models[0].shadow: has no effect here"},
		{"no list", "models: {a: delay}", "f.yaml:1: models: is not a list"},
		{"no section", "memory: 3", "f.yaml:1: memory: is a section: it has budget"},
		{"section for a value", "http: {a: b}", "f.yaml:1: http: is one value, not a section"},
		{"list of sections for a value", "auth: {keys: [{name: a}]}",
			"f.yaml:1: auth.keys[0]: is a list or a section: want one value (a file with named API keys"},
		{"section of a model for a value", model("    instances: {a: b}\n"), "models[0].instances: is one value"},
		{"value for a section of a model", model("    batching: 8\n"),
			"models[0].batching: is a section: it has buffers"},
		{"no duration", "drain: 10", `f.yaml:1: drain: "10" is not a duration`},
		{"failure of no program", "exit_on_worker_failure: true", "f.yaml:1: exit_on_worker_failure: needs root"},
		{"negative duration", "drain: -1s", "is negative"},
		{"zero", "drain: 0s", "drain: 0s is not allowed: leave it out"},
		{"no size", "memory: {budget: lots}", `memory.budget: "lots" is not a size`},
		{"small size", "memory: {budget: 1KiB}", "memory.budget: 1KiB is less than 1MiB"},
		{"no number", model("    instances: many\n"), `models[0].instances: "many" is not a whole number`},
		{"no switch", "sources: {allow_private: yes}", `sources.allow_private: "yes" is not true or false`},
		{"no value", "http:", "f.yaml:1: http: is empty"},
		{"list cut behind its key", "http: 127.0.0.1:1\nmodels:\n",
			"f.yaml:2: models: has no entries: write models: [] to have none, or leave the key out"},
		{"null list", "streams: null", "f.yaml:1: streams: has no entries: write streams: [] to have none"},
		{"section cut behind its key", "auth:\n", "f.yaml:1: auth: has no settings: write auth: {} to have none"},
		{"section of an entry cut", "models:\n  - name: a\n    source: delay\n    batching:",
			"f.yaml:4: models[0].batching: has no settings: write batching: {} to have none"},
		{"section of sinks cut", "streams:\n  - {name: a, model: m, source: \"folder:/x\"}\n  - name: b\n    model: " +
			"m\n    source: folder:/x\n    sinks:", "f.yaml:6: streams[1].sinks: has no settings"},
		{"list of strings cut", "auth:\n  keys_file:\n", "f.yaml:2: auth.keys_file: is empty"},
		{"list for a value", "http: [a, b]", "http: is a list"},
		{"address", "http: localhost", `http: "localhost" is not an address`},
		{"port", "http: localhost:70000", "has no port"},
		{"falling buckets", "metrics: {buckets: [0.1, 0.5, 0.2]}",
			"f.yaml:1: metrics.buckets: 0.2 does not rise above 0.5, the bucket before it"},
		{"bucket of nothing", "metrics: {buckets: [0, 1]}", "metrics.buckets: 0 is not more than 0"},
		{"clips of clients without a folder", "clips: {clients: {on: [cross]}}", "clips.clients: need a folder"},
		{"clips of clients by no event", "clips: {folder: c, clients: {on: [jump]}}", `clips.clients.on: "jump" is no`},
		{"clips of clients beyond all", "clips: {max_bytes: 2MiB, clients: {max_bytes: 3MiB}}",
			"clips.clients.max_bytes: is more than clips.max_bytes"},
		{"bucket of no number", "metrics: {buckets: [1, many]}", `metrics.buckets: "many" is not a number`},
		{"route of the API", "metrics: {path: /v2/models}",
			`f.yaml:1: metrics.path: "/v2/models" is a route of the server already`},
		{"every route", "metrics: {path: /}", `metrics.path: "/" is a route of the server already`},
		{"a pattern as route", "metrics: {path: '/{m}'}",
			`metrics.path: "/{m}" is not a route: want a path such as /metrics`},
		{"no route", "metrics: {path: metrics}",
			`metrics.path: "metrics" is not a route: want a path such as /metrics`},
		{"management at a relative path", "management: {address: 'unix:m.sock'}",
			`management.address: "m.sock" is not the path of a unix socket: want an absolute path`},
		{"management at a name", "management: {address: 'unix:@m'}",
			`management.address: "@m" is not the path of a unix socket`},
		{"management nowhere", "management: {address: m.sock}", `management.address: "m.sock" is not an address: ` +
			`want HOST:PORT, such as 127.0.0.1:8000, or off; or unix:/PATH`},
		{"http at a socket", "http: 'unix:/m.sock'", `http: "unix:/m.sock" `},
		{"management without http", "http: off\nmanagement: {address: 'unix:/m.sock'}",
			"management.address: needs http, which is off"},
		{"management of gRPC alone", "management: {grpc: 'unix:/m.sock'}", "management.grpc: needs management.address"},
		{"management without grpc", "grpc: off\nmanagement: {address: off, grpc: 'unix:/m.sock'}",
			"management.grpc: needs grpc, which is off"},
		{"management twice at a path", "management: {address: 'unix:/m.sock', grpc: 'unix:/m.sock'}",
			"management.grpc: is management.address already"},
		{"management for the world", "management: {address: off, socket: world}", "management.socket: "},
		{"route with a parameter", "metrics: {path: \"/m/:x\"}", "metrics.path: "},
		{"address of metrics as before", "metrics: 127.0.0.1:8002", "f.yaml:1: metrics: is a section: it has address"},
		{"level", "log: {level: loud}", `f.yaml:1: log.level: "loud"`},
		{"twice", "http: a:1\nhttp: b:1", "f.yaml:2: "},
		{"anchor", "http: &a x:1\ngrpc: *a", "anchor"},
		{"broken", "http: [", "f.yaml:1: "},
		{"nested 30 KB deep", "http: a:1\nmodels: " + strings.Repeat("[", 30<<10),
			"f.yaml:2: has more than 64 sections and lists inside each other"},
		{"still written", "http: a:1\n\x00\x00", "f.yaml:2: has a zero byte"},
		{"no mapping", "- a\n- b", "is not a section"},
		{"two documents", "http: a:1\n---\nhttp: b:1", "more than one document"},
		{"two documents, the first empty", "---\n# nothing\n---\nhttp: b:1", "f.yaml: has more than one document"},
		{"unknown section", "memroy:\n  budget: 1GiB", "f.yaml:1: memroy: is not a setting (did you mean memory?)"},
		{"unknown key without a value", "htpp:", "f.yaml:1: htpp: "},
		{"empty section of a model", model("    btaching: {}\n"), "f.yaml:4: models[0].btaching: is not a setting"},
		{"path for a name", "memory.budget: 1GiB", "f.yaml:1: memory.budget: is not the name of a setting"},
		{"empty name", `"": 1`, `f.yaml:1: "": is not the name of a setting`},
		{"batching as in other servers", model("    max_batch_size: 3\n"),
			"nor a parameter of delay (did you mean batching.max_size?)"},
		{"sink beside the model", "streams:\n  - {name: a, model: m, source: \"folder:/x\", webhook: " +
			"\"http://127.0.0.1/x\"}", "f.yaml:2: streams[0].webhook: is not a setting here (did you mean " +
			"sinks.webhook?)"},
		{"settings of sinks beside the model",
			"streams:\n  - {name: a, model: m, source: \"folder:/x\", file: /x, webhook_secret: y, max_size: 1MiB}",
			"streams[0].webhook_secret: is not a setting here (did you mean sinks.webhook_secret?)"},
		{"far parameter", model("    zzzzzzzz: 1\n"),
			"nor a parameter of delay: it has busy, fixed, per_item, stateful"},
		{"parameter of another kind", "models: [{name: a, source: motion, per_item: 1ms}]",
			"nor a parameter of motion: it is a parameter of delay, and the source is not of the kind"},
		{"image without its scheme", "models: [{name: a, source: \"registry/people:1\", container: {serve: {port: 1}}}]",
			"an image is container://IMAGE"},
		{"parameter that a worker has not", "models: [{name: a, source: identity, zzzzzzzz: 1}]",
			"nor a parameter of identity: it has delay, load_delay, stateful"},
		{"near a parameter that a worker has not", "models: [{name: a, source: identity, instanses: 1}]",
			"nor a parameter of identity (did you mean instances?)"},
		{"nested too deep", model("    a: {b: {c: {d: {e: {f: {g: {h: {i: {}}}}}}}}}\n"),
			"models[0].a.b.c.d.e.f.g.h.i: is nested too deeply"},
		{"nested deeply", model("    a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}\n"),
			"models[0].a.b.c.d.e.f.g.h.i: is neither a setting"},
		{"word for an input", model("    input: none\n"), "f.yaml:4: models[0].input: is a section: it has image"},
		{"word for an output", model("    output: tensors\n"),
			"f.yaml:4: models[0].output: is a section: it has boxes"},
		{"certificate of its own and another", "tls: {self_signed: true, cert: c.pem}",
			"f.yaml:1: tls.self_signed: and tls.cert exclude"},
		{"certificate of its own and a key", "tls: {self_signed: true, key: k.pem}",
			"f.yaml:1: tls.self_signed: and tls.cert exclude"},
		{"certificate without its key", "tls: {cert: c.pem}", "f.yaml:1: tls.key: is missing"},
		{"no bucket", bucket("file:///x", "https://x"), "f.yaml:2: tasks.blobs: is not s3://BUCKET"},
		{"prefix out of the bucket", bucket("s3://bucket/a/../b", "https://x"), "f.yaml:2: tasks.blobs: is not s3://"},
		{"name of a bucket", bucket("s3://Bucket", "https://x"), "f.yaml:2: tasks.blobs: is not s3://BUCKET"},
		{"no endpoint", bucket("s3://bucket", "x:9000"), "f.yaml:2: tasks.s3.endpoint: is no address such as https://"},
		{"endpoint with a path", bucket("s3://bucket", "https://x/y"), "f.yaml:2: tasks.s3.endpoint: is no address"},
		{"endpoint with a key", bucket("s3://bucket", "https://a:b@x"), "f.yaml:2: tasks.s3.endpoint: is no address"},
		{"plain http", bucket("s3://bucket", "http://10.0.0.9:9000"), "f.yaml:2: tasks.s3.endpoint: is not encrypted"},
		{"authority without names", "tls: {acme: {email: a@b.c}}", "f.yaml:1: tls.acme.domains: is missing"},
		{"authority and a certificate", "tls: {cert: c.pem, key: k.pem, acme: {domains: [a.example.org], " +
			"accept_terms: true}}", "f.yaml:1: tls.acme.domains: and tls.cert or tls.self_signed exclude"},
		{"wildcard", "tls: {acme: {domains: ['*.example.org'], accept_terms: true}}",
			`f.yaml:1: tls.acme.domains: "*.example.org" is not a name`},
		{"address", "tls: {acme: {domains: [192.0.2.1], accept_terms: true}}",
			`f.yaml:1: tls.acme.domains: "192.0.2.1" is not a name`},
		{"name of this machine", "tls: {acme: {domains: [localhost], accept_terms: true}}",
			`f.yaml:1: tls.acme.domains: "localhost" is not a name`},
		{"authority without http", "{http: 'off', tls: {acme: {domains: [a.example.org], accept_terms: true}}}",
			"f.yaml:1: tls.acme.domains: needs the address http"},
		{"terms", "tls: {acme: {domains: [a.example.org]}}", "f.yaml:1: tls.acme.accept_terms: is not set"},
		{"address of the account", "tls: {acme: {domains: [a.example.org], accept_terms: true, email: x}}",
			`f.yaml:1: tls.acme.email: "x" is not an address`},
		{"directory", "tls: {acme: {domains: [a.example.org], accept_terms: true, directory: 'http://x/'}}",
			`f.yaml:1: tls.acme.directory: "http://x/" is not the URL`},
		{"hsts and own certificate", "tls: {self_signed: true, hsts: 24h}",
			"f.yaml:1: tls.hsts: and tls.self_signed exclude"},
		{"hsts without encryption", "tls: {hsts: 24h}",
			"f.yaml:1: tls.hsts: is set, and connections are not encrypted"},
		{"encrypted metrics without an address", "{tls: {self_signed: true}, metrics: {tls: true}}",
			"f.yaml:1: metrics.tls: needs metrics.address"},
		{"encrypted metrics without a certificate", "metrics: {address: '127.0.0.1:9100', tls: true}",
			"f.yaml:1: metrics.tls: needs metrics.address, and tls.cert"},
		{"key without its certificate", "tls: {key: k.pem}", "f.yaml:1: tls.cert: is missing"},
		{"same stream", "streams:\n  - {name: a, model: m, source: \"folder:/x\"}\n  - {name: a, model: m, source: " +
			"\"folder:/x\"}", `f.yaml:3: streams[1].name: "a" is the name of streams[0] already`},
		{"same file of streams", "streams:\n  - {name: a, model: m, source: \"folder:/x\", sinks: {file: /x}}\n  - " +
			"{name: b, model: m, source: \"folder:/x\", sinks: {file: /y/../x}}",
			"f.yaml:3: streams[1].sinks.file: \"/x\" is that of streams[0].sinks.file already"},
		{"same file of sinks", "streams:\n  - {name: a, model: m, source: \"folder:/x\", sinks: {file: /x, socket: " +
			"/y/../x}}", "f.yaml:2: streams[0].sinks.socket: \"/x\" is that of streams[0].sinks.file already"},
		{"streams without http", "http: off\nstreams: [{name: a, model: m, source: \"folder:/x\"}]",
			"f.yaml:1: http: is off"},
		{"file of streams without http", "http: off\nstreams_file: x", "f.yaml:1: http: is off"},
		{"tasks without http", "http: off\ndata: x", "f.yaml:1: http: is off"},
		{"rule outside of the picture", ofRules("lines: [{name: a, from: [0, 0], to: [1, 2]}]"),
			"f.yaml:5: streams[0].rules.lines[0].to: (1, 2) is outside of the picture"},
		{"zone that crosses itself", ofRules("zones: [{name: a, polygon: [[0, 0], [1, 1], [1, 0], [0, 1]]}]"),
			"f.yaml:5: streams[0].rules.zones[0].polygon: touches itself"},
		{"point that is no number", ofRules("zones: [{name: a, polygon: [[0, 0], [1, a], [1, 0]]}]"),
			`f.yaml:5: streams[0].rules.zones[0].polygon[1]: "a" is not a number`},
		{"point of points", ofRules("zones: [{name: a, polygon: [[0, [0]], [1, 1], [1, 0]]}]"),
			"f.yaml:5: streams[0].rules.zones[0].polygon[0][1]: is a list"},
		{"list of lists of texts", ofRules("lines: [{name: a, from: [0, 0], to: [1, 1], classes: [[a, b]]}]"),
			"f.yaml:5: streams[0].rules.lines[0].classes[0]: is a list"},
		{"unknown key of a zone", ofRules("zones: [{name: a, poligon: []}]"),
			"f.yaml:5: streams[0].rules.zones[0].poligon: is not a setting (did you mean polygon?)"},
		{"more streams than allowed", "limits: {max_streams: 1}\nstreams: [{name: a, model: m, source: " +
			"\"folder:/x\"}, {name: b, model: m, source: \"folder:/x\"}]",
			"f.yaml:1: limits.max_streams: 1 is less than the 2 streams"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.text), "f.yaml")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestParseTellsAllMistakes(t *testing.T) {
	_, err := config.Parse([]byte("htpp: a\ndrain: x\nlog: {levle: y}"), "f")
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v, want three lines", err)
	}
}

// A mistake is reported once, without consequential errors.
func TestParseTellsAMistakeOnce(t *testing.T) {
	for text, want := range map[string]int{
		// two names are missing, not the same
		"streams: [{model: m, source: \"folder:/x\"}, {model: m, source: \"folder:/x\"}]": 2,
		"models: [{source: delay}, {source: delay}]":                                      2,
	} {
		_, err := config.Parse([]byte(text), "f")
		if n := strings.Count(fmt.Sprint(err), "\n") + 1; n != want {
			t.Errorf("%s: %v; want %d lines", text, err, want)
		}
	}
}

func TestTLSOn(t *testing.T) {
	for _, c := range []config.TLS{{SelfSigned: true}, {Cert: "c", Key: "k"},
		{ACME: config.ACME{Domains: []string{"a.example.org"}}}} {
		if !c.On() {
			t.Errorf("%+v is off", c)
		}
	}
	if (config.TLS{HSTS: 1}).On() {
		t.Error("is on without a certificate")
	}
}

func TestByteOrderMark(t *testing.T) {
	c, err := config.Parse([]byte("\xef\xbb\xbfhttp: 127.0.0.1:9\n"), "f.yaml")
	if err != nil || c.HTTP != "127.0.0.1:9" {
		t.Errorf("%q, %v", c.HTTP, err)
	}
}

// TestQuotasFollowFromLimits: a raised limit raises the unset quota; a quota that is set keeps its number.
func TestQuotasFollowFromLimits(t *testing.T) {
	c := config.Config{}.WithDefaults()
	q := c.ClientQuotas()
	for name, got := range map[string][2]int{"sessions": {*q.Sessions, 7500}, "decoders": {*q.Decoders, 12},
		"pulls": {*q.Pulls, 48}, "watchers": {*q.Watchers, 192}, "regions": {*q.Regions, 192},
		"tasks": {*q.Tasks, 75_000}, "task_bytes, GiB": {int(*q.TaskBytes >> 30), 48}} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
	pulls := 3
	c.Quotas.Pulls, c.Limits.MaxSessions, c.Limits.MaxPulls, c.Tasks.MaxWaiting = &pulls, 20_000, 400, 400_000
	q = c.ClientQuotas()
	if *q.Sessions != 15_000 || *q.Pulls != 3 || *q.Tasks != 300_000 {
		t.Errorf("sessions %d, pulls %d, tasks %d", *q.Sessions, *q.Pulls, *q.Tasks)
	}
	if d := c.Limits.Pictures().MaxDecoded; d != c.Limits.MaxPixels/4 {
		t.Errorf("%d decoded pixels of %d", d, c.Limits.MaxPixels)
	}
}

func TestEmptyFileIsTheDefaults(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "models: []\n", "memory: {}\n"} {
		c, err := config.Parse([]byte(text), "f")
		c.Models = nil
		if err != nil || !reflect.DeepEqual(c, config.Config{}.WithDefaults()) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

func TestParseModel(t *testing.T) {
	for spec, want := range map[string]workers.Config{
		"a=delay": {Name: "a", Source: "delay"},
		"cost=delay,fixed=5ms,per_item=1ms,batching.max_size=8,instances=2": {
			Name: "cost", Source: "delay", Instances: 2, Batching: workers.Batching{MaxSize: 8},
			Params: stream.Params{"fixed": "5ms", "per_item": "1ms"},
		},
		`a="x,y.onnx",version="3,1"`: {Name: "a", Source: "x,y.onnx", Version: "3,1"},
		`a=motion,width=64,learn=0.5`: {Name: "a", Source: "motion", Params: stream.Params{"width": int64(64),
			"learn": 0.5}},
		"a=delay,version=[]": {Name: "a", Source: "delay"}, // a list of nothing, not a version
		`a=delay,busy=false,fixed="0s"`: {Name: "a", Source: "delay",
			Params: stream.Params{"busy": false, "fixed": "0s"}},
		"a=delay,stream.policy=every,stream.window=4,input.image.width=8,input.image.height=6,input.image.mean=[1,2,3]": {
			Name: "a", Source: "delay", Policy: stream.Policy{Mode: stream.Every, Window: 4},
			Image: &stream.ImageSpec{Width: 8, Height: 6, Mean: [3]float32{1, 2, 3}},
		},
	} {
		got, err := config.ParseModel(spec)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", spec, got, err, want)
		}
	}
	for spec, want := range map[string]string{
		"":                           "is not NAME=SOURCE",
		"delay":                      "is not NAME=SOURCE",
		"=delay":                     "is not NAME=SOURCE",
		"a=":                         "is not NAME=SOURCE",
		`a=""`:                       "is not NAME=SOURCE",
		"a=delay,.output=yolo":       "a..output: is not a setting",
		"a=delay,batching..kind=1":   "a.batching..kind: is not a setting",
		"a=delay,fixed":              "is not key=value",
		"a=delay,fixed=1,fixed=2":    "a.fixed: is given twice",
		"a=delay,name=b":             "a.name: is given already",
		"a=delay,batching.max=3":     "a.batching.max: is not a setting",
		"a=delay,instances=x":        "a.instances: \"x\" is not a whole number",
		"a=delay,instances=0":        "a.instances: 0 is not allowed",
		"a=delay,version=[1":         "without its end",
		"a=delay,version=1]":         "do not match",
		"a=delay,..=1":               "is not a setting",
		"a=delay,batching.max_size=": "is empty",
		"a=delay,stream.max_fps=NaN": "is not a number",
	} {
		if m, err := config.ParseModel(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v\nwant %q", spec, m, err, want)
		}
	}
}

func TestAddModelsReplaces(t *testing.T) {
	c, err := config.Parse([]byte(whole), "f")
	if err != nil {
		t.Fatal(err)
	}
	before := c.Models[0].Source
	d := c
	if err := d.AddModels("cost=identity", "new=delay"); err != nil {
		t.Fatal(err)
	}
	if len(d.Models) != 3 || d.Models[0].Source != "identity" || d.Models[0].Params != nil ||
		d.Models[2].Name != "new" || c.Models[0].Source != before {
		t.Errorf("got %+v from %+v", d.Models, c.Models)
	}
	if err := d.AddModels("x=delay", "x=identity"); err == nil {
		t.Error("the same name twice was taken")
	}
	// A mistake does not hide other mistakes.
	d = config.Config{}
	err = d.AddModels("x", "y=delay", "z")
	if err == nil || strings.Count(err.Error(), "is not NAME=SOURCE") != 2 || len(d.Models) != 1 {
		t.Errorf("got %+v, %v", d.Models, err)
	}
}

// Each variable sets its setting, and a later layer wins.
// bucket returns a configuration with inputs and results of tasks in a bucket.
func bucket(address, endpoint string) string {
	return fmt.Sprintf("data: d\ntasks: {blobs: %q, s3: {endpoint: %q, access_key: a, secret_key: b}}", address,
		endpoint)
}

// TestBucket: a bucket needs a folder and a key, which need not be in the file, and encryption except on this machine.
func TestBucket(t *testing.T) {
	for endpoint, blobs := range map[string]string{
		"http://127.0.0.1:9000": "s3://bucket", "http://[::1]:9000": "s3://bucket/a/b",
		"http://localhost": "s3://bucket.example/", "https://10.0.0.9": "s3://bucket",
	} {
		c, err := config.Parse([]byte(fmt.Sprintf("tasks: {blobs: %q, s3: {endpoint: %q}}", blobs, endpoint)), "f.yaml")
		if err != nil {
			t.Errorf("%s at %s: %v", blobs, endpoint, err)
		}
		wants := func(text string) {
			t.Helper()
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %q", err, text)
			}
		}
		wants("tasks.blobs: needs data")
		c.Data = "data"
		wants("tasks.blobs: needs tasks.s3.access_key and tasks.s3.secret_key")
		c.Tasks.S3.AccessKey, c.Tasks.S3.SecretKey = "a", "b"
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		c.Tasks.Blobs = ""
		wants("is set without tasks.blobs")
	}
}

// TestHandoverOfClips: a server and its replacement cannot share a folder of clips.
func TestHandoverOfClips(t *testing.T) {
	c, err := config.Parse([]byte("handover: unix:/run/h.sock"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Clips.Folder = "clips"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "handover: and clips.folder exclude") {
		t.Error(err)
	}
}

func TestEnv(t *testing.T) {
	env := map[string]string{
		"MILLRACE_HTTP": "127.0.0.1:1", "MILLRACE_GRPC": "off", "MILLRACE_METRICS_ADDRESS": "127.0.0.1:3",
		"MILLRACE_APPS_ADDRESS": "127.0.0.1:4", "MILLRACE_MANAGEMENT_ADDRESS": "unix:/m",
		"MILLRACE_MANAGEMENT_GRPC": "off", "MILLRACE_MANAGEMENT_SOCKET": "group", "MILLRACE_METRICS_PATH": "/numbers",
		"MILLRACE_METRICS_REQUESTS": "false", "MILLRACE_METRICS_BUCKETS": "0.5,2", "MILLRACE_METRICS_STREAMS": "9",
		"MILLRACE_METRICS_PPROF": "true", "MILLRACE_METRICS_TRITON": "true", "MILLRACE_API_KEY": "k",
		"MILLRACE_AUTH_KEYS": "keys.yaml", "MILLRACE_AUTH_METRICS": "role", "MILLRACE_AUTH_MODEL_HEALTH": "open",
		"MILLRACE_AUTH_USERS": "users.yaml", "MILLRACE_AUTH_MODULE": "users.py", "MILLRACE_AUTH_PYTHON": "py",
		"MILLRACE_AUTH_ROLES": "infer,watch", "MILLRACE_AUTH_SESSION_TIME": "2h",
		"MILLRACE_AUTH_OIDC_ISSUER": "http://i", "MILLRACE_AUTH_OIDC_AUDIENCE": "a",
		"MILLRACE_AUTH_OIDC_USER_CLAIM": "name", "MILLRACE_AUTH_OIDC_ROLES_CLAIM": "roles",
		"MILLRACE_TLS_CLIENT_CA": "ca.pem", "MILLRACE_INSECURE": "true", "MILLRACE_EXIT_WITH_ROOT": "false",
		"MILLRACE_EXIT_ON_WORKER_FAILURE": "true",
		"MILLRACE_NAME":                   "triton", "MILLRACE_ROOT": "a", "MILLRACE_REPLICAS": "2",
		"MILLRACE_WATCH":         "true",
		"MILLRACE_EXIT_ON_ERROR": "false", "MILLRACE_HOSTS": "a, b", "MILLRACE_ORIGINS": "http://x",
		"MILLRACE_MEMORY_BUDGET": "2MiB", "MILLRACE_MEMORY_CLIENT_SHARE": "60",
		"MILLRACE_LIMITS_MAX_BODY": "2KiB", "MILLRACE_LIMITS_MAX_MESSAGE": "3KiB", "MILLRACE_LIMITS_MAX_PIXELS": "100",
		"MILLRACE_LIMITS_MAX_DECODED_PIXELS": "90", "MILLRACE_LIMITS_MAX_PIXELS_PER_BYTE": "80",
		"MILLRACE_LIMITS_MAX_DECODE_TIME": "3s",
		"MILLRACE_LIMITS_MAX_SESSIONS":    "7", "MILLRACE_LIMITS_MAX_CONNECTIONS": "13",
		"MILLRACE_LIMITS_MAX_CALLS": "15", "MILLRACE_LIMITS_MAX_PULLS": "8", "MILLRACE_LIMITS_MAX_DECODERS": "12",
		"MILLRACE_LIMITS_MAX_ENCODERS":             "18",
		"MILLRACE_LIMITS_MAX_DECODERS_PER_ADDRESS": "17", "MILLRACE_STREAMS_FILE": "kept.json",
		"MILLRACE_AUDIT": "acts.log", "MILLRACE_DATA": "kept", "MILLRACE_TASKS_SYNC": "interval",
		"MILLRACE_TASKS_CONSUME": "off", "MILLRACE_TASKS_SLOTS": "3", "MILLRACE_TASKS_SHARE": "0.5",
		"MILLRACE_TASKS_RETENTION":   "5s",
		"MILLRACE_TASKS_MAX_INPUT":   "9KiB",
		"MILLRACE_TASKS_MAX_WAITING": "77", "MILLRACE_TASKS_LEASE": "9s", "MILLRACE_TASKS_MAX_BYTES": "11KiB",
		"MILLRACE_EVENTS_FOLDER": "seen", "MILLRACE_EVENTS_RETENTION": "6m", "MILLRACE_EVENTS_MAX_BYTES": "2MiB",
		"MILLRACE_LIMITS_MAX_STREAMS":  "10",
		"MILLRACE_LIMITS_MAX_WATCHERS": "11", "MILLRACE_LIMITS_MAX_REGIONS": "14", "MILLRACE_SHARED_MEMORY": "false",
		"MILLRACE_LIMITS_OUTBOX_MESSAGES": "9", "MILLRACE_LIMITS_OUTBOX_BYTES": "5KiB", "MILLRACE_LIMITS_IDLE": "6s",
		"MILLRACE_LIMITS_KEEP_ALIVE": "8s", "MILLRACE_LIMITS_RESUME": "7s",
		"MILLRACE_LIMITS_MAX_CONNECTIONS_PER_ADDRESS": "16", "MILLRACE_TRUSTED_PROXIES": "10.0.0.0/8,::1",
		"MILLRACE_QUOTAS_REQUESTS": "1.5", "MILLRACE_QUOTAS_FRAMES": "2", "MILLRACE_QUOTAS_BYTES": "3",
		"MILLRACE_QUOTAS_DECODE": "0.4", "MILLRACE_QUOTAS_LOADS": "5", "MILLRACE_QUOTAS_STREAMS": "9",
		"MILLRACE_QUOTAS_SEQUENCES": "9",
		"MILLRACE_QUOTAS_SESSIONS":  "9", "MILLRACE_QUOTAS_DECODERS": "9", "MILLRACE_QUOTAS_PULLS": "9",
		"MILLRACE_QUOTAS_WATCHERS": "9", "MILLRACE_QUOTAS_ENDPOINTS": "9", "MILLRACE_QUOTAS_REGIONS": "9",
		"MILLRACE_QUOTAS_TASKS": "9", "MILLRACE_TASKS_WEBHOOKS": "on", "MILLRACE_TASKS_WEBHOOK_SECRET": "s",
		"MILLRACE_TASKS_UPLOAD_EXPIRY": "7m", "MILLRACE_TASKS_BLOBS": "s3://bucket/p",
		"MILLRACE_TASKS_S3_ENDPOINT": "http://10.0.0.9:9000", "MILLRACE_TASKS_S3_REGION": "eu-1",
		"MILLRACE_TASKS_S3_ACCESS_KEY": "a", "MILLRACE_TASKS_S3_SECRET_KEY": "s", "MILLRACE_TASKS_S3_CA": "ca.pem",
		"MILLRACE_TASKS_S3_PLAIN_HTTP": "true",
		"MILLRACE_CONTAINERS_HOST":     "unix:///c.sock", "MILLRACE_CONTAINERS_IMAGES": "a:1,b", "MILLRACE_CONTAINERS_USER": "7:8",
		"MILLRACE_QUOTAS_TASK_BYTES": "1KiB",
		"MILLRACE_QUOTAS_BURST":      "10s",
		"MILLRACE_LOG_LEVEL":         "warn", "MILLRACE_LOG_FORMAT": "json", "MILLRACE_LOG_FILE": "x.log",
		"MILLRACE_LOG_DEBUG_RATE":   "5",
		"MILLRACE_MODEL_REPOSITORY": "models", "MILLRACE_MODEL_CONTROL_MODE": "explicit", "MILLRACE_LOAD_MODEL": "a,b",
		"MILLRACE_REPOSITORY_POLL": "3s", "MILLRACE_SENT_MODELS": "7KiB",
		"MILLRACE_MODEL_SOURCES_CACHE": "fetched", "MILLRACE_MODEL_SOURCES_CACHE_SIZE": "3MiB",
		"MILLRACE_MODEL_SOURCES_MAX_SIZE": "2MiB", "MILLRACE_MODEL_SOURCES_TIMEOUT": "4m",
		"MILLRACE_MODEL_SOURCES_OFFLINE": "true", "MILLRACE_MODEL_SOURCES_TOKENS": "a.example.org=A,me@b.example.org=B",
		"MILLRACE_MODEL_SOURCES_SSH_KEY": "id", "MILLRACE_MODEL_SOURCES_CA": "s.pem",
		"MILLRACE_MODEL_SOURCES_ALLOW_PRIVATE": "true",
		"MILLRACE_DRAIN":                       "4s", "MILLRACE_SANDBOX": "off", "MILLRACE_CONFINE_PROGRAMS": "require",
		"MILLRACE_CONFINE_READ": "/r,/s", "MILLRACE_CONFINE_WRITE": "/w", "MILLRACE_CONFINE_NETWORK": "true",
		"MILLRACE_CONFINE_FILES": "99", "MILLRACE_SOURCES_ALLOW_PRIVATE": "true", "MILLRACE_SOURCES_HWACCEL": "auto",
		"MILLRACE_SINKS_FOLDER": "results", "MILLRACE_CLIPS_FOLDER": "kept", "MILLRACE_CLIPS_MAX_AGE": "2h",
		"MILLRACE_CLIPS_MAX_BYTES": "3MiB", "MILLRACE_CLIPS_MEMORY": "4MiB", "MILLRACE_SINKS_CLIENT_BYTES": "1MiB",
		"MILLRACE_CLIPS_CLIENTS_ON": "cross,dwell", "MILLRACE_CLIPS_CLIENTS_BEFORE": "1s",
		"MILLRACE_CLIPS_CLIENTS_AFTER": "2s", "MILLRACE_CLIPS_CLIENTS_LENGTH": "3s",
		"MILLRACE_CLIPS_CLIENTS_MEMORY": "2MiB", "MILLRACE_CLIPS_CLIENTS_MAX_BYTES": "1MiB",
		"MILLRACE_ONNX_LIBRARY": "/x.so",
		"MILLRACE_ONNX_MEMORY":  "32MiB", "MILLRACE_ONNX_ISOLATE": "true", "MILLRACE_ONNX_PROGRAM": "/millrace",
		"MILLRACE_TLS_CERT": "c.pem", "MILLRACE_TLS_KEY": "k.pem", "MILLRACE_TLS_SELF_SIGNED": "false",
		"MILLRACE_TLS_ACME_DOMAINS": "c.example.org,d.example.org", "MILLRACE_TLS_ACME_EMAIL": "e@x",
		"MILLRACE_TLS_ACME_ACCEPT_TERMS": "true", "MILLRACE_TLS_ACME_CACHE": "acme",
		"MILLRACE_TLS_ACME_DIRECTORY": "https://d", "MILLRACE_TLS_ACME_DIRECTORY_CA": "d.pem",
		"MILLRACE_TLS_HSTS": "24h", "MILLRACE_METRICS_TLS": "true", "MILLRACE_MODELS": "a=delay,fixed=1ms; b=identity",
	}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	c := config.Config{}.WithDefaults()
	c.Models = []workers.Config{{Name: "a", Source: "identity"}}
	if err := c.Env(lookup); err != nil {
		t.Fatal(err)
	}
	off, nine, kib := false, 9, int64(1<<10)
	second, two := time.Second, 2*time.Second
	want := config.Config{
		HTTP: "127.0.0.1:1", GRPC: "off", Apps: config.Apps{Address: "127.0.0.1:4"},
		Metrics: config.Metrics{Address: "127.0.0.1:3", TLS: true, Pprof: true, Triton: true, Path: "/numbers",
			Requests: &off, Buckets: []float64{0.5, 2}, Streams: &nine},
		Management: config.Management{Address: "unix:/m", GRPC: "off", Socket: "group"}, Name: "triton",
		Proxies: []string{"10.0.0.0/8", "::1"}, APIKey: "k", Auth: config.Auth{Keys: "keys.yaml", Metrics: "role",
			Health: "open", Users: "users.yaml", Module: "users.py", Python: "py", Roles: []string{"infer", "watch"},
			Sessions: 2 * time.Hour, OIDC: config.OIDC{Issuer: "http://i", Audience: "a", UserClaim: "name",
				RolesClaim: "roles"}}, Insecure: true, Programs: config.Programs{Root: "a", Exit: &off, Failure: true,
			Replicas: 2, Watch: true}, Hosts: []string{"a", "b"}, Origins: []string{"http://x"},
		Memory: config.Memory{Budget: 2 << 20, ClientShare: 60},
		Limits: ingest.Limits{MaxBody: 2 << 10, MaxMessage: 3 << 10, MaxPixels: 100, MaxDecoded: 90, MaxPerByte: 80,
			MaxDecodeTime: 3 * time.Second, MaxConnections: 13, MaxPerAddress: 16, MaxCalls: 15, MaxSessions: 7,
			MaxPulls: 8, MaxDecoders: 12, MaxEncoders: 18, MaxStreams: 10, MaxWatchers: 11, MaxRegions: 14,
			OutboxMessages: 9,
			OutboxBytes:    5 << 10, KeepAlive: 8 * time.Second, Idle: 6 * time.Second, Resume: 7 * time.Second},
		Quotas: access.Quotas{Requests: 1.5, Frames: 2, Bytes: 3, Decode: 0.4, Loads: 5, Streams: &nine,
			Sequences: &nine, Sessions: &nine, Decoders: &nine, Pulls: &nine, Watchers: &nine, Endpoints: &nine,
			Regions: &nine, Tasks: &nine, TaskBytes: &kib, Burst: 10 * time.Second},
		Log: config.Log{Level: "warn", Format: "json", File: "x.log", DebugRate: 5}, Drain: 4 * time.Second,
		Sources: config.Sources{AllowPrivate: true, HWAccel: "auto"},
		Sinks:   config.Sinks{Folder: "results", ClientBytes: 1 << 20}, Sandbox: "off", SharedMemory: &off,
		Clips: config.Clips{Folder: "kept", MaxAge: 2 * time.Hour, MaxBytes: 3 << 20, Memory: 4 << 20,
			Clients: clips.ClientSettings{On: []string{"cross", "dwell"}, Before: &second,
				After: &two, Length: 3 * time.Second, Memory: 2 << 20, MaxBytes: 1 << 20}},
		Confine: config.Confine{Programs: "require", Read: []string{"/r", "/s"}, Write: []string{"/w"}, Network: true,
			Files: 99},
		TLS: config.TLS{Cert: "c.pem", Key: "k.pem", ClientCA: "ca.pem", HSTS: 24 * time.Hour,
			ACME: config.ACME{Domains: []string{"c.example.org", "d.example.org"}, Email: "e@x", AcceptTerms: true,
				Cache: "acme", Directory: "https://d", DirectoryCA: "d.pem"}},
		ONNX:        config.ONNX{Library: "/x.so", Memory: 32 << 20, Isolate: true, Program: "/millrace"},
		StreamsFile: "kept.json", Audit: "acts.log", Data: "kept",
		Events: config.Events{Folder: "seen", Retention: 6 * time.Minute, MaxBytes: 2 << 20},
		Tasks: config.Tasks{Sync: "interval", Consume: "off", Slots: 3, Share: .5, Retention: 5 * time.Second,
			MaxInput: 9 << 10, MaxWaiting: 77, MaxBytes: 11 << 10, Lease: 9 * time.Second, Webhooks: "on",
			WebhookSecret: "s", UploadExpiry: 7 * time.Minute, Blobs: "s3://bucket/p", S3: config.S3{AccessKey: "a",
				Endpoint: "http://10.0.0.9:9000", Region: "eu-1", SecretKey: "s", CA: "ca.pem", PlainHTTP: true}},
		Containers: config.Containers{Host: "unix:///c.sock", Images: []string{"a:1", "b"}, User: "7:8"},
		Repository: config.Repository{Dir: "models", Mode: config.LoadExplicit, Load: []string{"a", "b"}, Exit: &off,
			Poll: 3 * time.Second, MaxSent: 7 << 10},
		ModelSources: config.ModelSources{Cache: "fetched", Size: 3 << 20, MaxSize: 2 << 20, Timeout: 4 * time.Minute,
			Offline: true, Tokens: []string{"a.example.org=A", "me@b.example.org=B"}, SSHKey: "id", CA: "s.pem",
			AllowPrivate: true},
		Models: []workers.Config{{Name: "a", Source: "delay", Params: stream.Params{"fixed": "1ms"}},
			{Name: "b", Source: "identity"}},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	c.TLS.Cert, c.TLS.Key = "", "" // beside tls.acme
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	env = map[string]string{"MILLRACE_DRAIN": "soon", "MILLRACE_MODELS": "a"}
	if err := c.Env(lookup); err == nil || !strings.Contains(err.Error(), `MILLRACE_DRAIN: drain: "soon"`) ||
		!strings.Contains(err.Error(), "MILLRACE_MODELS: model") {
		t.Errorf("got %v", err)
	}
}

func TestStrayEnv(t *testing.T) {
	got := config.UnknownEnv([]string{"PATH=x", "MILLRACE_ADDR=x", "MILLRACE_TOKEN=x", "MILLRACE_HTTP=x",
		"MILLRACE_HTPP=y", "MILLRACE_CONFIG=z"})
	if len(got) != 1 || got[0] != "MILLRACE_HTPP (did you mean MILLRACE_HTTP?)" {
		t.Errorf("got %q", got)
	}
}

// The description of a setting has its meaning, possible values and the effect of leaving the setting out.
func TestSettingText(t *testing.T) {
	for s, want := range map[config.Setting]string{
		{Doc: "a"}:                                   "a",
		{Doc: "a", Default: "3"}:                     "a [3]",
		{Doc: "a", Unset: "none"}:                    "a [none]",
		{Doc: "a", Default: "3", Unset: "none"}:      "a [3]",
		{Doc: "a", Range: "1 to 9", Default: "3"}:    "a: 1 to 9 [3]",
		{Doc: "a", Request: "any", Default: "3"}:     "a [3]",
		{Doc: "a", Request: "up to 9", Default: "3"}: "a; a request may ask for up to 9 [3]",
	} {
		if got := s.Text(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

// The settings of a section stand together, with the settings of registered parts, in the order of the sections.
func TestSettingsOfASectionStandTogether(t *testing.T) {
	var sections []string
	for _, s := range config.ModelSettings() {
		section, _, _ := strings.Cut(s.Path, ".")
		if len(sections) == 0 || sections[len(sections)-1] != section {
			sections = append(sections, section)
		}
	}
	want := []string{"name", "source", "version", "instances", "max_flows", "batching", "input", "window", "cache",
		"sequences", "stream", "queue", "limits", "versions", "shadow", "tensors", "gate", "output"}
	if sorted := slices.Sorted(slices.Values(sections)); len(slices.Compact(slices.Clone(sorted))) != len(sorted) {
		t.Errorf("a section is in two places: %q", sections)
	}
	// A new stage may have a section of its own.
	known := slices.DeleteFunc(slices.Clone(sections), func(s string) bool { return !slices.Contains(want, s) })
	if !slices.Equal(known, want) {
		t.Errorf("got  %q\nwant %q", sections, want)
	}
}

func TestSet(t *testing.T) {
	c := config.Config{}.WithDefaults()
	if err := c.Set("memory.bugdet", "1GiB"); err == nil || !strings.Contains(err.Error(), "did you mean budget?") {
		t.Errorf("got %v", err)
	}
	if err := c.Set("hosts"); err != nil || c.Hosts != nil {
		t.Errorf("an empty list: %v", err)
	}
	for _, s := range config.Settings() { // a shown default is valid as a flag
		if s.Default == "" || s.List {
			continue
		}
		if err := c.Set(s.Path, s.Default); err != nil {
			t.Errorf("%s: %v", s.Path, err)
		}
	}
	if !reflect.DeepEqual(c, config.Config{}.WithDefaults()) {
		t.Errorf("the defaults, set, are %+v", c)
	}
}

// The form of a source determines its kind, and relative sources start from the file.
func TestSource(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.yaml")
	for source, want := range map[string]string{
		"sub/x.onnx": "ONNX model", "./service.py": "Python service", "http://other:8000": "an address",
		".": "a folder",
	} {
		if err := os.WriteFile(path, []byte("models:\n  - {name: a, source: "+source+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(path)
		if err == nil || !strings.Contains(err.Error(), "m.yaml:2: models[0].source") {
			t.Errorf("%s: %v", source, err)
		} else if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v; want %q", source, err, want)
		}
	}
	if _, err := config.Load(filepath.Join(dir, "none.yaml")); err == nil ||
		!strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("missing file: %v", err)
	}
	for source, want := range map[string]string{"delay": "delay", "./a/spotter.onnx": "spotter",
		"service.py": "service", "/srv/models/": "models", ".hidden": ".hidden",
		"./my model v1.2.onnx": "my-model-v1", "réseau.onnx": "r-seau", "(1).onnx": "1", "写真.onnx": "model",
		"a/best.v2.onnx": "best"} {
		if m := config.ModelFor(source); m.Name != want || m.Source != source {
			t.Errorf("ModelFor(%q) = %+v", source, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{whole, "", "http: [", "models:\n- a", "a: &x {b: *x}", "<<: {http: x}", "? a\n: b",
		"models: [{name: a, source: delay, x: {y: {z: 1}}}]", "http: |\n  a:1\n", "%YAML 1.2\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse(text, "f")
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("what was accepted is not valid: %v", err)
		}
	})
}

func FuzzParseModel(f *testing.F) {
	for _, s := range []string{"a=delay", `a="x,y",b=[1,"2"],c.d=3`, "a=delay,input.image.std=[1,2,3]", "=,=",
		"a=[,]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := config.ParseModel(s)
		if err != nil {
			return
		}
		if m.Name == "" {
			t.Errorf("%q gave no name", s)
		}
		for k := range maps.Keys(m.Params) {
			if k == "" {
				t.Errorf("%q gave a parameter without a name", s)
			}
		}
	})
}

// The history is in the folder of the data, which several servers with NATS share.
func TestHistoryFolder(t *testing.T) {
	for _, c := range []struct {
		data, folder, nats, want string
	}{{"", "", "", ""}, {"d", "", "", "d/events"}, {"d", "e", "", "e"}, {"", "e", "", "e"}, {"d", "", "nats://a", ""},
		{"d", "e", "nats://a", "e"}} {
		cfg := config.Config{Data: c.data, Events: config.Events{Folder: c.folder}}
		if c.nats != "" {
			cfg.NATS.Servers = []string{c.nats}
		}
		if got := cfg.HistoryFolder(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
