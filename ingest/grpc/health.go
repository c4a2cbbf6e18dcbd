package grpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/stream"
)

const (
	// watchInterval is the time between two checks of a watched service.
	watchInterval = 500 * time.Millisecond
	// watchingClients is the number of clients with the maximum number of watchers each. A watcher costs little, and
	// a gRPC client that cannot watch considers the server down.
	watchingClients = 16
)

// health answers from the state of the backend at the time of each call. No copy of the state exists.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	gate     *ingest.Gate
	may      func(ctx context.Context, model string) error // why a client may not ask about a model, as a status
	most     int64                                         // maximum number of concurrent watchers of one client
	watchers atomic.Int64                                  // calls of Watch
	ended    chan struct{}
	once     sync.Once
}

func newHealth(gate *ingest.Gate, most int, may func(ctx context.Context, model string) error) *health {
	return &health{gate: gate, may: may, most: int64(most), ended: make(chan struct{})}
}

// end tells the watchers that the server serves nothing any more, and ends their calls.
func (h *health) end() { h.once.Do(func() { close(h.ended) }) }

func (h *health) status(service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	select {
	case <-h.ended:
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING, nil
	default:
	}
	st := h.gate.State()
	serving := st.Ready && !st.Draining
	if service != "" {
		_, ready, err := h.gate.Owner().Models().Model(service, "")
		if err != nil {
			return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, err
		}
		serving = ready && !st.Draining
	}
	if serving {
		return grpc_health_v1.HealthCheckResponse_SERVING, nil
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING, nil
}

// Check implements the health protocol. An unknown model is NotFound.
func (h *health) Check(ctx context.Context, in *grpc_health_v1.HealthCheckRequest) (
	*grpc_health_v1.HealthCheckResponse, error) {
	if err := h.may(ctx, in.GetService()); err != nil {
		return nil, err
	}
	s, err := h.status(in.GetService())
	if err != nil {
		return nil, statusError(err)
	}
	return &grpc_health_v1.HealthCheckResponse{Status: s}, nil
}

// List implements the health protocol: the server and each loaded model.
func (h *health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	out := &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{}}
	names := []string{""}
	for _, e := range h.gate.Owner().Models().Index() {
		names = append(names, e.Name)
	}
	for _, n := range names {
		if s, err := h.status(n); err == nil {
			out.Statuses[n] = &grpc_health_v1.HealthCheckResponse{Status: s}
		}
	}
	return out, nil
}

// Watch implements the health protocol: Watch sends the present state and each change of the state. A call lasts
// until its client ends the call. Calls above the limit fail with Unavailable.
func (h *health) Watch(in *grpc_health_v1.HealthCheckRequest, to grpc_health_v1.Health_WatchServer) error {
	if err := h.may(to.Context(), in.GetService()); err != nil {
		return err
	}
	defer h.watchers.Add(-1)
	if h.watchers.Add(1) > watchingClients*h.most {
		return statusError(stream.Errorf(stream.Overloaded, "limits.max_watchers",
			"%d calls watch already, %d times the setting: ask with Check, try later, or raise it",
			watchingClients*h.most, watchingClients))
	}
	if use := accept.UseOf(connOf(to.Context())); use != nil {
		defer use.Watchers.Add(-1)
		if use.Watchers.Add(1) > h.most {
			return statusError(stream.Errorf(stream.Overloaded, "limits.max_watchers",
				"%d calls of this address watch already: ask with Check, try later, or raise the setting", h.most))
		}
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := grpc_health_v1.HealthCheckResponse_ServingStatus(-1)
	for {
		s, _ := h.status(in.GetService()) // here an unknown model has its own state
		if s != last {
			if err := to.Send(&grpc_health_v1.HealthCheckResponse{Status: s}); err != nil {
				return err
			}
			last = s
		}
		select {
		case <-h.ended:
			if s == grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				return statusError(ingest.ErrDraining)
			}
		case <-to.Context().Done():
			return status.FromContextError(to.Context().Err()).Err()
		case <-tick.C:
		}
	}
}
