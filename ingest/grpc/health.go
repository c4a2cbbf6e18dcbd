package grpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/stream"
)

// watchEvery is how often a watched service is looked at.
const watchEvery = 500 * time.Millisecond

// health answers from the state of the backend at the time of the question, so that
// there is no second copy of it to keep up to date.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	backend  ingest.Backend
	most     int64        // watchers at once
	watchers atomic.Int64 // calls of Watch
	ended    chan struct{}
	once     sync.Once
}

func newHealth(backend ingest.Backend, most int) *health {
	return &health{backend: backend, most: int64(most), ended: make(chan struct{})}
}

// end tells the watchers that nothing is served any more, and lets them go.
func (h *health) end() { h.once.Do(func() { close(h.ended) }) }

func (h *health) status(service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	select {
	case <-h.ended:
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING, nil
	default:
	}
	st := h.backend.State()
	serving := st.Ready && !st.Draining
	if service != "" {
		_, ready, err := h.backend.Models().Model(service, "")
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
func (h *health) Check(_ context.Context, in *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
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
	for _, e := range h.backend.Models().Index() {
		names = append(names, e.Name)
	}
	for _, n := range names {
		if s, err := h.status(n); err == nil {
			out.Statuses[n] = &grpc_health_v1.HealthCheckResponse{Status: s}
		}
	}
	return out, nil
}

// Watch implements the health protocol: the state now, and each change of it. Such
// a call lasts for as long as its client likes, and one too many is ResourceExhausted.
func (h *health) Watch(in *grpc_health_v1.HealthCheckRequest, to grpc_health_v1.Health_WatchServer) error {
	defer h.watchers.Add(-1)
	if h.watchers.Add(1) > h.most {
		return statusError(stream.Errorf(stream.Overloaded, "limits.max_watchers", "%d calls watch already: ask with Check, try later, or raise the setting", h.most))
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := grpc_health_v1.HealthCheckResponse_ServingStatus(-1)
	for {
		s, _ := h.status(in.GetService()) // an unknown model is a state of its own here
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
