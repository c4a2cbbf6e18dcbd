package grpc

import (
	"context"

	"millrace/internal/inferencepb"
	"millrace/stream"
)

// SystemSharedMemoryStatus implements the service.
func (s *service) SystemSharedMemoryStatus(ctx context.Context, in *inferencepb.SystemSharedMemoryStatusRequest) (*inferencepb.SystemSharedMemoryStatusResponse, error) {
	if s.shared == nil { // clients ask before they register
		return &inferencepb.SystemSharedMemoryStatusResponse{}, nil
	}
	if err := s.shared.CheckClient(local(ctx)); err != nil {
		return nil, s.statusError(err)
	}
	regions, err := s.shared.Status(in.Name)
	if err != nil {
		return nil, s.statusError(err)
	}
	out := &inferencepb.SystemSharedMemoryStatusResponse{Regions: map[string]*inferencepb.SystemSharedMemoryStatusResponse_RegionStatus{}}
	for _, r := range regions {
		out.Regions[r.Name] = &inferencepb.SystemSharedMemoryStatusResponse_RegionStatus{Name: r.Name, Key: r.Key, Offset: r.Offset, ByteSize: r.ByteSize}
	}
	return out, nil
}

// SystemSharedMemoryRegister implements the service.
func (s *service) SystemSharedMemoryRegister(ctx context.Context, in *inferencepb.SystemSharedMemoryRegisterRequest) (*inferencepb.SystemSharedMemoryRegisterResponse, error) {
	if err := s.shared.CheckClient(local(ctx)); err != nil {
		return nil, s.statusError(err)
	}
	if err := s.shared.Register(in.Name, in.Key, in.Offset, in.ByteSize); err != nil {
		return nil, s.statusError(err)
	}
	return &inferencepb.SystemSharedMemoryRegisterResponse{}, nil
}

// SystemSharedMemoryUnregister implements the service.
func (s *service) SystemSharedMemoryUnregister(ctx context.Context, in *inferencepb.SystemSharedMemoryUnregisterRequest) (*inferencepb.SystemSharedMemoryUnregisterResponse, error) {
	if err := s.shared.CheckClient(local(ctx)); err != nil {
		return nil, s.statusError(err)
	}
	if in.Name == "" {
		s.shared.UnregisterAll()
	} else {
		s.shared.Unregister(in.Name)
	}
	return &inferencepb.SystemSharedMemoryUnregisterResponse{}, nil
}

// CudaSharedMemoryStatus implements the service: no region can be registered.
func (s *service) CudaSharedMemoryStatus(_ context.Context, in *inferencepb.CudaSharedMemoryStatusRequest) (*inferencepb.CudaSharedMemoryStatusResponse, error) {
	if in.Name != "" {
		return nil, statusError(stream.Errorf(stream.NotFound, "", "no CUDA shared memory is registered as %.64q", in.Name))
	}
	return &inferencepb.CudaSharedMemoryStatusResponse{}, nil
}

// CudaSharedMemoryRegister implements the service.
func (s *service) CudaSharedMemoryRegister(context.Context, *inferencepb.CudaSharedMemoryRegisterRequest) (*inferencepb.CudaSharedMemoryRegisterResponse, error) {
	return nil, statusError(stream.Errorf(stream.Unsupported, "", "this server takes no CUDA shared memory: register system shared memory"))
}

// CudaSharedMemoryUnregister implements the service. Clients remove what is left of an earlier
// run before they use another kind of memory, so that this succeeds.
func (s *service) CudaSharedMemoryUnregister(context.Context, *inferencepb.CudaSharedMemoryUnregisterRequest) (*inferencepb.CudaSharedMemoryUnregisterResponse, error) {
	return &inferencepb.CudaSharedMemoryUnregisterResponse{}, nil
}
