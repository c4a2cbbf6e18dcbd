// Command serve is the serving container of the tests: a server of the Open Inference Protocol with the model sum. Its
// argument says how the server behaves.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/internal/inferencepb"
)

// Inputs with a meaning.
const (
	exits  = 666 // the server ends
	blocks = 667 // the answer waits for SIGUSR1
	routes = 668 // the answer is the number of default routes
	hangs  = 669 // no request is answered any more
)

var signals = make(chan os.Signal, 1) // SIGUSR1

// sum returns the answer to the numbers of a row.
func sum(a, b float64) float64 {
	switch a {
	case exits:
		fmt.Fprintln(os.Stderr, "the last line")
		os.Exit(9)
	case blocks:
		fmt.Println("it blocks")
		<-signals
	case routes:
		table, err := os.ReadFile("/proc/net/route")
		if err != nil || len(table) == 0 {
			os.Exit(2)
		}
		a, b = 0, 0
		for line := range strings.Lines(string(table)) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == "00000000" {
				a++
			}
		}
	}
	return a + b
}

type tensor struct {
	Name     string    `json:"name"`
	Datatype string    `json:"datatype"`
	Shape    []int     `json:"shape"`
	Data     []float64 `json:"data,omitempty"`
}

func main() {
	signal.Notify(signals, syscall.SIGUSR1)
	var unready, hung atomic.Bool
	toggle := make(chan os.Signal, 1)
	signal.Notify(toggle, syscall.SIGUSR2)
	go func() {
		for range toggle {
			unready.Store(!unready.Load())
		}
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		fmt.Println("it was asked to end")
		os.Exit(0)
	}()
	behavior := "serve"
	if len(os.Args) > 1 {
		behavior = os.Args[1]
	}
	fmt.Println("it begins to", behavior)
	switch behavior {
	case "fail":
		fmt.Fprintln(os.Stderr, "a reason")
		os.Exit(7)
	case "wait":
		time.Sleep(time.Hour)
	case "talk": // another protocol
		l, err := net.Listen("tcp", ":8000")
		for err == nil {
			var c net.Conn
			if c, err = l.Accept(); err == nil {
				_, _ = c.Write([]byte("another protocol\r\n"))
				_ = c.Close()
			}
		}
	}
	if behavior == "grpc" {
		l, err := net.Listen("tcp", ":8000")
		if err == nil {
			s := grpc.NewServer()
			inferencepb.RegisterGRPCInferenceServiceServer(s, service{})
			err = s.Serve(l)
		}
		fmt.Println(err)
		os.Exit(1)
	}
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"name": "serve", "version": "1", "extensions": []string{}})
	})
	mux.HandleFunc("GET /v2/models/sum/ready", func(w http.ResponseWriter, _ *http.Request) {
		if unready.Load() {
			http.Error(w, `{"error":"it loads"}`, http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /v2/models/sum", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"name": "sum", "platform": "test",
			"inputs":  []tensor{{Name: "x", Datatype: "FP32", Shape: []int{-1, 2}}},
			"outputs": []tensor{{Name: "sum", Datatype: "FP32", Shape: []int{-1, 1}}}})
	})
	mux.HandleFunc("POST /v2/models/sum/infer", func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Inputs []tensor }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Inputs) != 1 {
			http.Error(w, `{"error":"one input is wanted"}`, http.StatusBadRequest)
			return
		}
		in := q.Inputs[0]
		fmt.Println("rows", in.Shape[0])
		out := tensor{Name: "sum", Datatype: "FP32", Shape: []int{in.Shape[0], 1}}
		for i := 0; i+1 < len(in.Data); i += 2 {
			hung.Store(hung.Load() || in.Data[i] == hangs)
			out.Data = append(out.Data, sum(in.Data[i], in.Data[i+1]))
		}
		if hung.Load() {
			<-r.Context().Done()
			return
		}
		answer(w, map[string]any{"model_name": "sum", "outputs": []tensor{out}})
	})
	fmt.Println(http.ListenAndServe(":8000", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case behavior == "redirect":
			http.Redirect(w, r, os.Args[2], http.StatusTemporaryRedirect)
		case behavior == "login":
			http.Error(w, `{"error":"no key"}`, http.StatusUnauthorized)
		case hung.Load():
			<-r.Context().Done()
		default:
			mux.ServeHTTP(w, r)
		}
	})))
	os.Exit(1)
}

// service is the server over gRPC.
type service struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
}

func (service) ModelReady(_ context.Context, q *inferencepb.ModelReadyRequest) (*inferencepb.ModelReadyResponse, error) {
	if q.Name != "sum" {
		return nil, status.Error(codes.NotFound, "no such model")
	}
	return &inferencepb.ModelReadyResponse{Ready: true}, nil
}

func (service) ModelMetadata(context.Context, *inferencepb.ModelMetadataRequest) (*inferencepb.ModelMetadataResponse,
	error) {
	of := func(name string, n int64) []*inferencepb.ModelMetadataResponse_TensorMetadata {
		return []*inferencepb.ModelMetadataResponse_TensorMetadata{{Name: name, Datatype: "FP32", Shape: []int64{-1, n}}}
	}
	return &inferencepb.ModelMetadataResponse{Name: "sum", Inputs: of("x", 2), Outputs: of("sum", 1)}, nil
}

func (service) ModelInfer(_ context.Context, q *inferencepb.ModelInferRequest) (*inferencepb.ModelInferResponse, error) {
	if len(q.RawInputContents) != 1 {
		return nil, status.Error(codes.InvalidArgument, "one input is wanted")
	}
	in, rows := q.RawInputContents[0], q.Inputs[0].Shape[0]
	fmt.Println("rows", rows)
	at := func(i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(in[4*i:]))) }
	var out []byte
	for i := range int(rows) {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(sum(at(2*i), at(2*i+1)))))
	}
	return &inferencepb.ModelInferResponse{ModelName: "sum", RawOutputContents: [][]byte{out},
		Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{{Name: "sum", Datatype: "FP32",
			Shape: []int64{rows, 1}}}}, nil
}
