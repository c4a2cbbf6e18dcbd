package main

import (
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/draw"
	"image/jpeg"
	"net"
	"net/http"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/grpc"

	pb "millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/workers"
)

// handWritten is a server that a Go programmer would write for the small CNN, without Millrace.
type handWritten struct {
	Kind  string `json:"kind"` // http: pictures by net/http; grpc: tensors
	Model string `json:"model"`
}

// peer is a running handWritten.
type peer struct {
	addr    string
	loop    *loop
	library *target
	stop    func()
}

func (h *handWritten) start() (p *peer, err error) {
	// A server of the model starts ONNX Runtime.
	library, err := serve(nil, workers.Config{Name: "cnn", Source: h.Model, Params: stream.Params{"threads": int64(1)}})
	if err != nil {
		return nil, err
	}
	p = &peer{library: library, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.end())
		}
	}()
	if p.loop, err = openLoop(h.Model, tensor("image", 3, cnnSide, cnnSide), tensor("scores", cnnScores)); err != nil {
		return p, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return p, err
	}
	p.addr = ln.Addr().String()
	slots := make(chan struct{}, onnxInstances) // as many runs at once as Millrace has instances
	infer := func(x []float32) ([]float32, error) {
		slots <- struct{}{}
		defer func() { <-slots }()
		return p.loop.scores(x)
	}
	if h.Kind == "grpc" {
		s := grpc.NewServer()
		pb.RegisterGRPCInferenceServiceServer(s, tensorServer{infer: infer})
		p.stop = s.Stop
		go s.Serve(ln) // ends with stop
		return p, nil
	}
	s := &http.Server{Handler: pictureHandler(infer)}
	p.stop = func() { s.Close() }
	go s.Serve(ln) // ends with stop
	return p, nil
}

func (p *peer) end() error {
	p.stop()
	if p.loop != nil {
		p.loop.close()
	}
	return p.library.end()
}

// scores runs the model for one picture.
func (l *loop) scores(x []float32) ([]float32, error) {
	in, err := ort.NewTensor(batched(l.in, 1), x)
	if err != nil {
		return nil, err
	}
	defer in.Destroy()
	y := make([]float32, cnnScores)
	out, err := ort.NewTensor(batched(l.out, 1), y)
	if err != nil {
		return nil, err
	}
	defer out.Destroy()
	return y, l.session.Run([]ort.Value{in}, []ort.Value{out})
}

// pictureHandler answers a JPEG picture with scores, with the decoder of Go's library.
func pictureHandler(infer func([]float32) ([]float32, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := jpeg.Decode(r.Body)
		var scores []float32
		if err == nil {
			scores, err = infer(planes(m))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"scores": scores}) // an error is the client's
	})
}

// planes returns the red, green and blue values of a picture, 0 to 1.
func planes(m image.Image) []float32 {
	r := m.Bounds()
	flat := image.NewRGBA(r)
	draw.Draw(flat, r, m, r.Min, draw.Src)
	n := r.Dx() * r.Dy()
	x := make([]float32, 3*n)
	for i := range n {
		for c := range 3 {
			x[c*n+i] = float32(flat.Pix[4*i+c]) / 255
		}
	}
	return x
}

// tensorServer answers tensors with scores.
type tensorServer struct {
	pb.UnimplementedGRPCInferenceServiceServer
	infer func([]float32) ([]float32, error)
}

func (s tensorServer) ModelInfer(_ context.Context, in *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	if len(in.RawInputContents) != 1 || len(in.RawInputContents[0]) != 4*3*cnnSide*cnnSide {
		return nil, errors.New("want one tensor FP32 of 3 x 128 x 128")
	}
	x := make([]float32, 3*cnnSide*cnnSide)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), in.RawInputContents[0])
	y, err := s.infer(x)
	if err != nil {
		return nil, err
	}
	return &pb.ModelInferResponse{ModelName: in.ModelName, ModelVersion: "1", Id: in.Id,
		Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "scores", Datatype: "FP32",
			Shape: []int64{1, cnnScores}}},
		RawOutputContents: [][]byte{append([]byte(nil),
			unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(y))), 4*len(y))...)}}, nil
}
