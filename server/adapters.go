package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/ingest"
	"millrace/ingest/grpc"
	"millrace/ingest/rest"
	"millrace/ingest/streams"
	"millrace/ingest/ws"
	"millrace/internal/httpd"
	"millrace/web"
)

// listen makes the adapters and takes their addresses. A new protocol is one
// line here.
func (s *Server) listen() error {
	if s.cfg.HTTP != Off {
		if err := s.listenHTTP(); err != nil {
			return err
		}
	}
	if s.cfg.Metrics != Off && s.cfg.Metrics != "" {
		m, err := s.observe.listen(s.cfg.Metrics)
		if err != nil {
			return err
		}
		s.addrs["metrics"] = m.ln.Addr()
		s.adapters = append(s.adapters, m)
		s.closers = append(s.closers, m.ln.Close)
	}
	if s.cfg.GRPC != Off {
		g := grpc.New(grpc.Options{Addr: s.cfg.GRPC, TLS: s.tls, MaxMessage: int(s.cfg.Limits.MaxMessage), MaxWatchers: s.cfg.Limits.MaxWatchers})
		addr, err := g.Listen()
		if err != nil {
			return fmt.Errorf("grpc: %w", err)
		}
		s.addrs["grpc"] = addr
		s.adapters = append(s.adapters, g)
		s.closers = append(s.closers, g.Close)
	}
	return nil
}

// keptShare of the memory budget is what the endings kept for sessions that may be
// resumed take beside it, at most.
const keptShare = 16

func (s *Server) listenHTTP() error {
	keeper, err := streams.OpenKeeper(s.cfg.StreamsFile, s.cfg.Streams, s.cfg.Limits.MaxStreams)
	if err != nil {
		return err
	}
	h, err := httpd.New(httpd.Config{
		Addr: s.cfg.HTTP, Hosts: s.cfg.Hosts, Origins: s.cfg.Origins, MaxBody: int(s.cfg.Limits.MaxBody), TLS: s.tls, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.observe.routes(h.App, s.cfg.Metrics == "")
	s.ws = ws.New(h, ws.Options{
		MaxMessage: int(s.cfg.Limits.MaxMessage), MaxSessions: s.cfg.Limits.MaxSessions, MaxPulls: s.cfg.Limits.MaxPulls,
		MaxDecoders: s.cfg.Limits.MaxDecoders, MaxPixels: int(s.cfg.Limits.MaxPixels),
		OutboxMessages: s.cfg.Limits.OutboxMessages, OutboxBytes: int64(s.cfg.Limits.OutboxBytes), KeptBytes: int64(s.cfg.Memory.Budget) / keptShare,
		Idle: time.Duration(s.cfg.Limits.Idle), Resume: time.Duration(s.cfg.Limits.Resume),
		AllowPrivateURLs: s.cfg.Sources.AllowPrivate, Log: s.log,
	})
	r := rest.New(h, rest.Options{MaxBody: int(s.cfg.Limits.MaxBody), Log: s.log})
	s.streams = streams.New(h, streams.Options{
		Streams: s.cfg.Streams, Keeper: keeper, MaxStreams: s.cfg.Limits.MaxStreams, MaxWatchers: s.cfg.Limits.MaxWatchers,
		AllowPrivate: s.cfg.Sources.AllowPrivate, Log: s.log,
	})
	web.Mount(h, web.Options{Clip: s.cfg.Clip})
	s.adapters = append(s.adapters, r, s.ws, s.streams, httpServer{h, []<-chan struct{}{r.Serving(), s.ws.Serving(), s.streams.Serving()}})
	addr, err := h.Listen()
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	s.addrs["http"] = addr
	s.closers = append(s.closers, h.Close)
	return nil
}

// httpServer is the listener under the HTTP adapters. It accepts once they serve:
// until then connections wait, and nobody is told that the server is starting.
type httpServer struct {
	*httpd.Server
	serving []<-chan struct{}
}

var _ ingest.Interface = httpServer{}

// Name implements ingest.Interface.
func (httpServer) Name() string { return "http" }

// Serve implements ingest.Interface.
func (h httpServer) Serve(ctx context.Context, _ ingest.Backend) error {
	for _, s := range h.serving {
		<-s
	}
	return h.Server.Serve(ctx)
}

func (s *Server) closeListeners() {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("a listener did not close", "error", err)
	}
}
