package ws

import (
	"slices"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/ingest/decoders"
	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/plain"
	"millrace/ingest/ws/query"
	v1 "millrace/ingest/ws/v1"
	"millrace/internal/processors"
	"millrace/internal/wire"
)

// protocol is a protocol offered to connections.
type protocol struct {
	name        string // in messages
	subprotocol string // for clients that offer the subprotocol; or
	path        string // for all clients at this path; with both empty, for all other clients
	needsModel  bool   // the address has to name a model
	explains    bool   // a refused web page is connected to receive the error
	form        conn.Form
	options     []string // query options; nil: all
	begin       func(ps *protocols, c *conn.Conn, client *ingest.Client, o query.Options) conn.Protocol
}

// protocolList lists the protocols: the first match serves a client. A new protocol needs its folder and an entry
// here.
var protocolList = []protocol{
	{
		name: wire.Subprotocol, subprotocol: wire.Subprotocol, explains: true, form: v1.Form,
		options: []string{"model", "traceparent"}, // the open message of each stream has the other options
		begin: func(ps *protocols, c *conn.Conn, client *ingest.Client, o query.Options) conn.Protocol {
			return ps.sessions.New(c, client, o.Model, o.Version, o.Trace)
		},
	},
	{
		name: "/models/infer", path: "/models/infer", form: plain.Form,
		// a call names the model
		options: []string{"roi", "policy", "max_age_ms", "deadline_ms", "max_fps", "window", "traceparent"},
		begin: func(ps *protocols, c *conn.Conn, client *ingest.Client, o query.Options) conn.Protocol {
			return plain.NewCalls(c, client, o, ps.pulls)
		},
	},
	{
		name: "plain mode", needsModel: true, form: plain.Form,
		begin: func(ps *protocols, c *conn.Conn, client *ingest.Client, o query.Options) conn.Protocol {
			return plain.New(c, client, o, ps.pulls, func() { ps.sessions.MakeRoom(client.Account()) })
		},
	},
}

// choose returns the protocol for a request's path and the client's subprotocols.
func choose(path string, offered []string) *protocol {
	i := slices.IndexFunc(protocolList, func(p protocol) bool {
		if p.subprotocol != "" {
			return slices.Contains(offered, p.subprotocol)
		}
		return p.path == "" || p.path == path
	})
	return &protocolList[i]
}

// takes reports whether the protocol has a query option.
func (p *protocol) takes(option string) bool {
	return p.options == nil || slices.Contains(p.options, option)
}

// protocols is the common state of the protocols, for all connections.
type protocols struct {
	conns    *conn.Registry
	sessions *v1.Sessions
	pulls    *plain.PullLimits
	decoders *decoders.Pool
	contexts *frames.Contexts
	clips    *clips.Clients
}

func newProtocols(o Options, turns *processors.Turns) protocols {
	contexts := &frames.Contexts{Log: o.Log}
	videos := decoders.NewPool(decoders.Options{Limits: o.Limits, Hardware: o.Hardware, Sandbox: o.Sandbox, Log: o.Log})
	var subprotocols []string
	for _, p := range protocolList {
		if p.subprotocol != "" {
			subprotocols = append(subprotocols, p.subprotocol)
		}
	}
	conns := conn.NewRegistry(conn.Options{
		Limits: o.Limits, PingEvery: o.PingEvery, PongWait: o.PongWait, WriteWait: o.WriteWait, Turns: turns,
		Log: o.Log, Hooks: o.Hooks,
	}, subprotocols...)
	return protocols{
		conns: conns, decoders: videos, pulls: &plain.PullLimits{Max: o.MaxPulls, MaxPixels: o.MaxPixels,
			AllowPrivate: o.AllowPrivateURLs, Hardware: o.Hardware, Sandbox: o.Sandbox, MaxTime: o.MaxDecodeTime,
			Log: o.Log},
		contexts: contexts, clips: o.Clips,
		sessions: v1.NewSessions(conns, videos, v1.Options{
			Limits: o.Limits, Contexts: contexts, ReplayBytes: o.KeptBytes, AdviseEvery: o.AdviseEvery,
			StatsEvery: o.StatsEvery, Clips: o.Clips, Log: o.Log,
		}),
	}
}
