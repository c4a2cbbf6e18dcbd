package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/workers"
)

// quotaClient is a client with a key, and counts the refusals due to quotas.
type quotaClient struct {
	t        *testing.T
	k        *keyed
	key      string
	stub     inferencepb.GRPCInferenceServiceClient
	requests int            // not refused by the quota of requests
	refused  map[string]int // by quota
	frames   int            // answered frames
}

// startQuotas starts a server whose rates allow the whole hour's amount as a burst, and returns a client for each
// name, with the name's quotas.
func startQuotas(t *testing.T, own map[string]map[string]float64,
	change func(*Config)) (*keyed, map[string]*quotaClient) {
	t.Helper()
	k := startKeyed(t, func(c *Config) {
		c.Quotas.Burst = time.Hour
		c.Models = []workers.Config{{Name: "echo", Source: "identity"}}
		if change != nil {
			change(c)
		}
	})
	conn, err := grpc.NewClient(k.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	all := map[string]*quotaClient{}
	for name, quotas := range own {
		entry, text := access.NewKey(name, access.Grant{Roles: role.All.Names(), Quotas: quotas})
		k.all = append(k.all, entry)
		all[name] = &quotaClient{t: t, k: k, key: text, stub: inferencepb.NewGRPCInferenceServiceClient(conn),
			refused: map[string]int{}}
	}
	k.write(t)
	k.access.Recheck()
	return k, all
}

// perHour is the rate for n in an hour.
func perHour(n float64) float64 { return n / 3600 }

// told counts an HTTP error, checks its header, and returns its quota; "" = no quota error.
func (c *quotaClient) told(r *http.Response, body []byte) string {
	c.t.Helper()
	if r.StatusCode != http.StatusTooManyRequests {
		if r.StatusCode >= 300 && r.StatusCode != http.StatusSwitchingProtocols {
			c.t.Errorf("%s: %s", r.Status, body)
		}
		c.requests++
		return ""
	}
	var e struct{ Error, Code string }
	after, _ := strconv.Atoi(r.Header.Get("Retry-After"))
	if err := json.Unmarshal(body, &e); err != nil || e.Code != "flow_control" || after < 1 || after > 3600 {
		c.t.Errorf("%s, Retry-After %q: %s", r.Status, r.Header.Get("Retry-After"), body)
	}
	quota := c.count(e.Error)
	if quota != "requests" {
		c.requests++
	}
	return quota
}

// count counts an error text by its quota.
func (c *quotaClient) count(text string) string {
	c.t.Helper()
	_, rest, found := strings.Cut(text, "quotas.")
	quota, _, _ := strings.Cut(rest, ":")
	if !found {
		c.t.Errorf("no quota: %s", text)
	}
	c.refused[quota]++
	return quota
}

func (c *quotaClient) rest(method, path, body string) string {
	c.t.Helper()
	req, err := http.NewRequest(method, "http://"+c.k.Addr("http")+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set(access.KeyName, c.key)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.told(r, text)
}

const oneNumber = `{"inputs":[{"name":"input","shape":[1],"datatype":"FP32","data":[1]}]}`

func (c *quotaClient) infer() {
	c.t.Helper()
	if c.rest("POST", "/v2/models/echo/infer", oneNumber) == "" {
		c.frames++
	}
}

func oneNumberOf() *inferencepb.ModelInferRequest {
	return &inferencepb.ModelInferRequest{ModelName: "echo", Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{
		Name: "input", Datatype: "FP32", Shape: []int64{1},
		Contents: &inferencepb.InferTensorContents{Fp32Contents: []float32{1}},
	}}}
}

func (c *quotaClient) context() context.Context {
	return metadata.AppendToOutgoingContext(c.t.Context(), access.KeyName, c.key)
}

// called counts the error of a gRPC call, and checks its retry time.
func (c *quotaClient) called(err error) {
	c.t.Helper()
	if err == nil {
		c.requests++
		return
	}
	s, again := status.Convert(err), time.Duration(0)
	for _, d := range s.Details() {
		if d, ok := d.(*errdetails.RetryInfo); ok {
			again = d.RetryDelay.AsDuration()
		}
	}
	if s.Code() != codes.ResourceExhausted || again <= 0 || again > time.Hour {
		c.t.Errorf("%v, again after %v", err, again)
	}
	if c.count(s.Message()) != "requests" {
		c.requests++
	}
}

func (c *quotaClient) call() {
	c.t.Helper()
	r, err := c.stub.ModelInfer(c.context(), oneNumberOf())
	c.called(err)
	if r != nil {
		c.frames++
	}
}

// dial opens a WebSocket; nil = refused.
func (c *quotaClient) dial(path string) *websocket.Conn {
	c.t.Helper()
	ws, r, err := websocket.DefaultDialer.Dial("ws://"+c.k.Addr("http")+path, http.Header{access.KeyName: {c.key}})
	if err == nil {
		c.requests++
		c.t.Cleanup(func() { _ = ws.Close() })
		return ws
	}
	if r == nil {
		c.t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	c.told(r, text)
	return nil
}
