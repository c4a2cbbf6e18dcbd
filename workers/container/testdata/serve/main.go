// Command serve is the serving container of the tests: a server of the Open Inference Protocol with the model sum. Its
// argument says how the server behaves.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Inputs with a meaning.
const (
	exits  = 666 // the server ends
	blocks = 667 // the answer waits for SIGUSR1
	routes = 668 // the answer is the number of default routes
)

type tensor struct {
	Name     string    `json:"name"`
	Datatype string    `json:"datatype"`
	Shape    []int     `json:"shape"`
	Data     []float64 `json:"data,omitempty"`
}

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
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
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"name": "serve", "version": "1", "extensions": []string{}})
	})
	mux.HandleFunc("GET /v2/models/sum/ready", func(http.ResponseWriter, *http.Request) {})
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
			switch in.Data[i] {
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
				in.Data[i], in.Data[i+1] = 0, 0
				for line := range strings.Lines(string(table)) {
					if f := strings.Fields(line); len(f) > 1 && f[1] == "00000000" {
						in.Data[i]++
					}
				}
			}
			out.Data = append(out.Data, in.Data[i]+in.Data[i+1])
		}
		answer(w, map[string]any{"model_name": "sum", "outputs": []tensor{out}})
	})
	fmt.Println(http.ListenAndServe(":8000", mux))
	os.Exit(1)
}
