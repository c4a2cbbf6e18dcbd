package grpc_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	millracegrpc "millrace/ingest/grpc"
	"millrace/ingest/shm"
	pb "millrace/internal/inferencepb"
	"millrace/server"
	"millrace/workers"
)

// bytesCodec sends bytes unchanged.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func isStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

// Unary calls and streams refuse broken messages, and other messages are answered as before.
func TestBrokenMessages(t *testing.T) {
	millracegrpc.BothWays(t, func(t *testing.T, exported bool) {
		r := serve(t, nil, identity)
		for _, body := range []string{"\x0a", "\x0a\xff\xff\xff\xff\x0f", "\x2a\x02\x0a\x09", "\x00",
			"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", strings.Repeat("\x0b", 20000)} {
			in, out := []byte(body), []byte(nil)
			err := r.conn.Invoke(r.ctx, pb.GRPCInferenceService_ModelInfer_FullMethodName, &in, &out,
				grpc.ForceCodecV2(bytesCodec{}))
			isStatus(t, err, codes.InvalidArgument, "protobuf")
			s, err := r.conn.NewStream(r.ctx, &pb.GRPCInferenceService_ServiceDesc.Streams[0],
				pb.GRPCInferenceService_ModelStreamInfer_FullMethodName, grpc.ForceCodecV2(bytesCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SendMsg(&in); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(&out); err != nil || !bytes.Contains(out, []byte("protobuf")) {
				t.Errorf("%q, %v", out, err)
			}
			if err := s.CloseSend(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.ModelInfer(r.ctx, raw("identity", "", []byte{1})); err != nil {
			t.Error(err)
		}
		_, err := r.ModelInfer(r.ctx, raw("", "", []byte{1}))
		isStatus(t, err, codes.InvalidArgument, "model_name: is missing")
	})
}

// The size limit applies to a message before and after decompression.
func TestLargeMessages(t *testing.T) {
	millracegrpc.BothWays(t, func(t *testing.T, exported bool) {
		r := serve(t, func(c *server.Config) { c.Limits.MaxMessage = 64 << 10 }, identity)
		for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)},
			{grpc.UseCompressor("deflate")}} {
			_, err := r.ModelInfer(r.ctx, raw("identity", "", make([]byte, 1<<20)), opts...)
			isStatus(t, err, codes.ResourceExhausted, "larger than max")
			s, err := r.ModelStreamInfer(r.ctx, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(raw("identity", "", make([]byte, 1<<20))); err != nil {
				t.Fatal(err)
			}
			_, err = s.Recv()
			isStatus(t, err, codes.ResourceExhausted, "larger than max")
		}
		if _, err := r.ModelInfer(r.ctx, raw("identity", "", make([]byte, 32<<10))); err != nil {
			t.Error(err)
		}
		_, err := r.ModelInfer(metadata.AppendToOutgoingContext(r.ctx, "x", strings.Repeat("y", 100<<10)),
			raw("identity", "", []byte{1}))
		if err == nil {
			t.Error("100 KB of metadata were taken")
		}
	})
}

// A waiting call ends at its deadline and frees its place.
func TestDeadline(t *testing.T) {
	r := serve(t, nil, slow("1s"))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := r.ModelInfer(r.ctx, raw("slow", "", []byte{1})); err != nil {
			t.Error(err)
		}
	})
	r.until(func() bool { return r.places() == 1 && r.waiting() == 0 })
	ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := r.ModelInfer(ctx, raw("slow", "", []byte{1}))
	isStatus(t, err, codes.DeadlineExceeded, "")
	r.until(func() bool { return r.waiting() == 0 && r.places() == 1 })
}

// Calls cancelled at any moment, with answers sent from the models' memory, leave no leased memory; the end of serve
// checks the leases.
func TestClientsThatLeave(t *testing.T) {
	r := serve(t, nil, identity)
	big := raw("identity", "", pattern(600<<10))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			conn := r.dial()
			client := pb.NewGRPCInferenceServiceClient(conn)
			for n := range 15 {
				ctx, cancel := context.WithCancel(r.ctx)
				time.AfterFunc(time.Duration(i*n)*100*time.Microsecond, cancel)
				if i%2 == 0 {
					_, _ = client.ModelInfer(ctx, big)
				} else if s, err := client.ModelStreamInfer(ctx); err == nil {
					for s.Send(big) == nil && n%3 > 0 { // without reading
						if n%3 == 1 {
							_, _ = s.Recv()
						}
					}
				}
				cancel()
			}
			conn.Close()
		})
	}
	wg.Wait()
	r.noLeases()
	if _, err := r.ModelInfer(r.ctx, big); err != nil {
		t.Error(err)
	}
}

// A client that reads no answers delays only its own requests, with limited memory.
func TestSlowReader(t *testing.T) {
	r := serve(t, nil, identity)
	s := r.open()
	const n = 2000
	sent := make(chan error, 1)
	go func() {
		for range n {
			if err := s.Send(raw("identity", "", pattern(30<<10))); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseSend()
	}()
	r.until(func() bool { return r.group().Frames.Results >= 20 })
	select {
	case err := <-sent:
		t.Errorf("all requests were taken: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if m := r.s.Memory().Stats(); m.Leases > 200 {
		t.Errorf("%d leases", m.Leases)
	}
	for i := range n {
		if out := s.next(); out.ErrorMessage != "" {
			t.Fatal(i, out.ErrorMessage)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestReflection(t *testing.T) {
	r := serve(t, nil, identity)
	s, err := grpc_reflection_v1.NewServerReflectionClient(r.conn).ServerReflectionInfo(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []*grpc_reflection_v1.ServerReflectionRequest{
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "inference.GRPCInferenceService"}},
	} {
		if err := s.Send(ask); err != nil {
			t.Fatal(err)
		}
		out, err := s.Recv()
		if err != nil || !strings.Contains(out.String(), "GRPCInferenceService") {
			t.Errorf("%.200v, %v", out, err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

// The parts of loads that only gRPC has.
func TestRepository(t *testing.T) {
	r := serve(t, nil, identity)
	param := func(v any) *pb.ModelRepositoryParameter {
		switch v := v.(type) {
		case int:
			return &pb.ModelRepositoryParameter{ParameterChoice: &pb.ModelRepositoryParameter_Int64Param{
				Int64Param: int64(v)}}
		case []byte:
			return &pb.ModelRepositoryParameter{ParameterChoice: &pb.ModelRepositoryParameter_BytesParam{BytesParam: v}}
		}
		return &pb.ModelRepositoryParameter{}
	}
	var header metadata.MD
	if _, err := r.RepositoryModelLoad(r.ctx, &pb.RepositoryModelLoadRequest{ModelName: "identity",
		Parameters: map[string]*pb.ModelRepositoryParameter{"instances": param(2)}}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if e := header.Get("millrace-endpoint"); len(e) != 1 || e[0] != "identity" {
		t.Errorf("endpoint %v", e)
	}
	for key, v := range map[string]any{"instances": []byte("x"), "empty": nil} {
		_, err := r.RepositoryModelLoad(r.ctx, &pb.RepositoryModelLoadRequest{ModelName: "identity",
			Parameters: map[string]*pb.ModelRepositoryParameter{key: param(v)}})
		isStatus(t, err, codes.InvalidArgument, "parameters."+key)
	}
	for says, names := range map[string][]string{
		"Model name cannot be empty. Please enter a valid name to deploy.": {"", " ", "\t", " \t \n "},
		"model name must not contain path traversal characters": {"../etc", "a/../b", "..", " ..", ".. ",
			".", "/etc/passwd", "model/", "a\\b"},
		"failed to poll from model repository": {"...", "..my_model", "model..1"},
	} {
		for _, name := range names {
			if _, err := r.RepositoryModelLoad(r.ctx, &pb.RepositoryModelLoadRequest{ModelName: name}); err == nil ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v, want %s", name, err, says)
			}
		}
	}
	if _, err := r.RepositoryModelUnload(r.ctx, &pb.RepositoryModelUnloadRequest{ModelName: "identity"}); err != nil {
		t.Error(err)
	}
}

// Raw contents belong to the inputs outside of shared memory.
func TestSharedMemory(t *testing.T) {
	r := serve(t, nil, identity)
	f, err := os.CreateTemp(shm.Folder, "millrace-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(pattern(64)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := r.SystemSharedMemoryRegister(r.ctx, &pb.SystemSharedMemoryRegisterRequest{Name: "r",
		Key: "/" + filepath.Base(f.Name()), ByteSize: 64}); err != nil {
		t.Fatal(err)
	}
	at := func(offset, size int64) map[string]*pb.InferParameter {
		number := func(v int64) *pb.InferParameter {
			return &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: v}}
		}
		return map[string]*pb.InferParameter{"shared_memory_offset": number(offset),
			"shared_memory_byte_size": number(size),
			"shared_memory_region":    {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "r"}}}
	}
	in := &pb.ModelInferRequest{ModelName: "identity",
		Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "a", Datatype: "UINT8", Shape: []int64{8}, Parameters: at(0, 8)},
			{Name: "b", Datatype: "UINT8", Shape: []int64{2}},
		},
		Outputs: []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "a", Parameters: at(32, 8)},
			{Name: "b"}},
		RawInputContents: [][]byte{{7, 8}},
	}
	out, err := r.ModelInfer(r.ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.RawOutputContents) != 2 || len(out.RawOutputContents[0]) != 0 ||
		!bytes.Equal(out.RawOutputContents[1], []byte{7, 8}) || len(out.Outputs[0].Parameters) != 0 {
		t.Errorf("%v", out)
	}
	if b, _ := os.ReadFile(f.Name()); !bytes.Equal(b[32:40], pattern(8)) {
		t.Errorf("the memory has %v", b)
	}
	st, err := r.SystemSharedMemoryStatus(r.ctx, &pb.SystemSharedMemoryStatusRequest{})
	if err != nil || st.Regions["r"].GetByteSize() != 64 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := r.SystemSharedMemoryUnregister(r.ctx, &pb.SystemSharedMemoryUnregisterRequest{}); err != nil {
		t.Error(err)
	}
}

// The reply to a call with a trace context names the trace of the call.
func TestTrace(t *testing.T) {
	r := serve(t, nil, identity)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	var trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(r.ctx, "traceparent", fmt.Sprintf("00-%s-b7ad6b7169203331-01", trace))
	if _, err := r.ModelInfer(ctx, raw("identity", "", []byte{1}), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got := trailer.Get("traceresponse"); len(got) != 1 || !strings.Contains(got[0], trace) {
		t.Errorf("got %v", got)
	}
}

func TestModelConfig(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "several", Kind: "repeat"}, workers.Config{Name: "kept", Kind: "identity",
		Cache: workers.Cache{Size: 1 << 16}})
	if out, err := r.ModelConfig(r.ctx, &pb.ModelConfigRequest{Name: "several"}); err != nil ||
		!out.Config.GetModelTransactionPolicy().GetDecoupled() || out.Config.GetResponseCache() != nil {
		t.Errorf("%v, %v", out, err)
	}
	if out, err := r.ModelConfig(r.ctx, &pb.ModelConfigRequest{Name: "kept"}); err != nil ||
		out.Config.GetModelTransactionPolicy() != nil || !out.Config.GetResponseCache().GetEnable() {
		t.Errorf("%v, %v", out, err)
	}
}
