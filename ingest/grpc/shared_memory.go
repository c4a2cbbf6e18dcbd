package grpc

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"millrace/ingest/shm"
	"millrace/internal/inferencepb"
	"millrace/stream"
)

// sharing returns the caller as a client of shared memory.
func (s *service) sharing(ctx context.Context) (c shm.Client) {
	c.Account = client(ctx).Core()
	if of := client(ctx).Principal(); of != nil {
		c.Owner = shm.Owner{Key: of.Key, Entry: of.Entry}
	}
	if p, ok := peer.FromContext(ctx); ok {
		at := p.Addr
		if a, ok := at.(*clientAddr); ok {
			at = a.Addr
		}
		c.Local = shm.Local(at)
	}
	for _, name := range shm.ProxyHeaders {
		if len(metadata.ValueFromIncomingContext(ctx, name)) > 0 {
			c.Proxy = strings.ToLower(name)
			break
		}
	}
	return c
}

// SystemSharedMemoryStatus implements the service.
func (s *service) SystemSharedMemoryStatus(ctx context.Context,
	in *inferencepb.SystemSharedMemoryStatusRequest) (*inferencepb.SystemSharedMemoryStatusResponse, error) {
	if s.SharedMemory == nil { // clients ask before registering
		return &inferencepb.SystemSharedMemoryStatusResponse{}, nil
	}
	of := s.sharing(ctx)
	if err := s.SharedMemory.CheckClient(of); err != nil {
		return nil, s.statusError(err)
	}
	regions, err := s.SharedMemory.Status(of.Owner, in.Name)
	if err != nil {
		return nil, s.statusError(err)
	}
	out := &inferencepb.SystemSharedMemoryStatusResponse{
		Regions: map[string]*inferencepb.SystemSharedMemoryStatusResponse_RegionStatus{}}
	for _, r := range regions {
		out.Regions[r.Name] = &inferencepb.SystemSharedMemoryStatusResponse_RegionStatus{Name: r.Name, Key: r.Key,
			Offset: r.Offset, ByteSize: r.ByteSize}
	}
	return out, nil
}

// SystemSharedMemoryRegister implements the service.
func (s *service) SystemSharedMemoryRegister(ctx context.Context,
	in *inferencepb.SystemSharedMemoryRegisterRequest) (*inferencepb.SystemSharedMemoryRegisterResponse, error) {
	of := s.sharing(ctx)
	if err := s.SharedMemory.CheckClient(of); err != nil {
		return nil, s.statusError(err)
	}
	if err := s.SharedMemory.Register(of, in.Name, in.Key, in.Offset, in.ByteSize); err != nil {
		return nil, s.statusError(err)
	}
	return &inferencepb.SystemSharedMemoryRegisterResponse{}, nil
}

// SystemSharedMemoryUnregister implements the service.
func (s *service) SystemSharedMemoryUnregister(ctx context.Context,
	in *inferencepb.SystemSharedMemoryUnregisterRequest) (*inferencepb.SystemSharedMemoryUnregisterResponse, error) {
	of := s.sharing(ctx)
	if err := s.SharedMemory.CheckClient(of); err != nil {
		return nil, s.statusError(err)
	}
	if in.Name == "" {
		s.SharedMemory.UnregisterAll(of.Owner)
	} else {
		s.SharedMemory.Unregister(of.Owner, in.Name)
	}
	return &inferencepb.SystemSharedMemoryUnregisterResponse{}, nil
}

// CudaSharedMemoryStatus implements the service: no region can be registered.
func (s *service) CudaSharedMemoryStatus(_ context.Context,
	in *inferencepb.CudaSharedMemoryStatusRequest) (*inferencepb.CudaSharedMemoryStatusResponse, error) {
	if in.Name != "" {
		return nil, statusError(stream.Errorf(stream.NotFound, "", "no CUDA shared memory is registered as %.64q",
			in.Name))
	}
	return &inferencepb.CudaSharedMemoryStatusResponse{}, nil
}

// CudaSharedMemoryRegister implements the service.
func (s *service) CudaSharedMemoryRegister(context.Context,
	*inferencepb.CudaSharedMemoryRegisterRequest) (*inferencepb.CudaSharedMemoryRegisterResponse, error) {
	return nil, statusError(stream.Errorf(stream.Unsupported, "",
		"this server takes no CUDA shared memory: register system shared memory"))
}

// CudaSharedMemoryUnregister implements the service. Clients remove the regions of an earlier run before using
// another kind of memory, so this call succeeds.
func (s *service) CudaSharedMemoryUnregister(context.Context,
	*inferencepb.CudaSharedMemoryUnregisterRequest) (*inferencepb.CudaSharedMemoryUnregisterResponse, error) {
	return &inferencepb.CudaSharedMemoryUnregisterResponse{}, nil
}
