package ws

import (
	"net"
	"slices"

	"millrace/ingest"
	"millrace/ingest/decoders"
	"millrace/ingest/ws/calls"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/plain"
	"millrace/ingest/ws/pull"
	"millrace/ingest/ws/replies"
	"millrace/ingest/ws/v1"
	"millrace/internal/wire"
)

// protocol is what a connection is to speak. This file alone knows which ones there are.
type protocol uint8

const (
	speaksPlain protocol = iota
	speaksCalls
	speaksV1
)

// callsPath is where a text message is a call in the form of the Open Inference
// Protocol, whose one input is the address of a video.
const callsPath = "/models/infer"

// choose returns the protocol for the path of a request and the subprotocols that its client offers.
func choose(path string, offered []string) protocol {
	switch {
	case slices.Contains(offered, wire.Subprotocol):
		return speaksV1
	case path == callsPath:
		return speaksCalls
	}
	return speaksPlain
}

// name is what it is called in messages.
func (p protocol) name() string {
	switch p {
	case speaksV1:
		return wire.Subprotocol
	case speaksCalls:
		return callsPath
	}
	return "plain mode"
}

// needsModel says whether the address has to name a model.
func (p protocol) needsModel() bool { return p == speaksPlain }

// takes says whether a query option has a meaning for it. In millrace.v1 a stream's
// options come in open, and a call names the video's own.
func (p protocol) takes(option string) bool {
	switch p {
	case speaksV1:
		return option == "model"
	case speaksCalls:
		return slices.Contains([]string{"roi", "policy", "max_age_ms", "deadline_ms", "max_fps", "window"}, option)
	}
	return true
}

// tellsPages says whether a web page that is refused is let in to be told why.
func (p protocol) tellsPages() bool { return p == speaksV1 }

// protocols is what the protocols share, over all connections.
type protocols struct {
	conns    *conn.Registry
	sessions *v1.Sessions
	pulls    *pull.Limits
	decoders *decoders.Pool
}

func newProtocols(o Options) protocols {
	videos := decoders.NewPool(decoders.Options{Limits: o.Limits, Log: o.Log})
	conns := conn.NewRegistry(conn.Options{
		Limits: o.Limits, PingEvery: o.PingEvery, PongWait: o.PongWait, WriteWait: o.WriteWait, Log: o.Log, Hooks: o.Hooks,
	}, wire.Subprotocol)
	return protocols{
		conns: conns, decoders: videos, pulls: &pull.Limits{Max: o.MaxPulls, AllowPrivate: o.AllowPrivateURLs},
		sessions: v1.NewSessions(conns, videos, v1.Options{
			Limits: o.Limits, ReplayBytes: o.KeptBytes, AdviseEvery: o.AdviseEvery, StatsEvery: o.StatsEvery, Log: o.Log,
		}),
	}
}

// begin makes a connection and what its messages mean.
func (ps *protocols) begin(p protocol, nc net.Conn, backend ingest.Backend, q plain.Query) (*conn.Conn, conn.Protocol) {
	switch p {
	case speaksV1:
		c := ps.conns.New(nc, backend.Memory(), v1.Form)
		return c, ps.sessions.New(c, backend, q.Model, q.Version)
	case speaksCalls:
		c := ps.conns.New(nc, backend.Memory(), replies.Form)
		return c, calls.New(c, backend, q.Policy, q.Region, ps.pulls)
	}
	c := ps.conns.New(nc, backend.Memory(), replies.Form)
	return c, plain.New(c, backend, q, ps.pulls, ps.sessions.MakeRoom)
}
