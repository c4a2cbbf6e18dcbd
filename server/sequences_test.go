package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/workers"
)

// TestSequencesOfClients: over each protocol, a key can neither continue nor end another key's sequence, and each
// open sequence uses the key's quota.
func TestSequencesOfClients(t *testing.T) {
	_, all := startQuotas(t, map[string]map[string]float64{"a": nil, "b": nil, "c": {"streams": 2}}, func(cfg *Config) {
		cfg.Models = []workers.Config{{Name: "sum", Kind: "summing", Sequences: stream.Sequences{Idle: time.Hour}}}
	})
	rest := func(c *quotaClient, id int, flags string, x int) string {
		t.Helper()
		body := fmt.Sprintf(`{"parameters":{"sequence_id":%d%s},"inputs":[{"name":"INPUT","datatype":"INT32",`+
			`"shape":[1,1],"data":[%d]}]}`, id, flags, x)
		req, err := http.NewRequest("POST", "http://"+c.k.Addr("http")+"/v2/models/sum/infer", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(access.KeyName, c.key)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	request := func(id int, flags string, x int) *inferencepb.ModelInferRequest {
		params := map[string]*inferencepb.InferParameter{
			"sequence_id": {ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: int64(id)}}}
		for _, flag := range []string{"sequence_start", "sequence_end"} {
			params[flag] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_BoolParam{
				BoolParam: strings.Contains(flags, flag)}}
		}
		return &inferencepb.ModelInferRequest{ModelName: "sum", Parameters: params,
			Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{
				Name: "INPUT", Datatype: "INT32", Shape: []int64{1, 1},
				Contents: &inferencepb.InferTensorContents{IntContents: []int32{int32(x)}},
			}}}
	}
	answer := func(r *inferencepb.ModelInferResponse, err error) string {
		if err != nil {
			return status.Convert(err).Message()
		}
		return fmt.Sprintf(`"data":[%d]`, r.RawOutputContents[0][0])
	}
	unary := func(c *quotaClient, id int, flags string, x int) string {
		t.Helper()
		return answer(c.stub.ModelInfer(c.context(), request(id, flags, x)))
	}
	call := func(c *quotaClient, id int, flags string, x int) string {
		t.Helper()
		ctx, cancel := context.WithCancel(c.context())
		defer cancel()
		s, err := c.stub.ModelStreamInfer(ctx)
		if err == nil {
			err = s.Send(request(id, flags, x))
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err == nil && r.ErrorMessage != "" {
			return r.ErrorMessage
		}
		return answer(r.GetInferResponse(), err)
	}
	const begin, end, notOpen = `,"sequence_start":true`, `,"sequence_end":true`, "must specify the START flag"
	want := func(got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	a, b := all["a"], all["b"]
	ways := map[string]func(*quotaClient, int, string, int) string{"REST": rest, "ModelInfer": unary,
		"ModelStreamInfer": call}
	for name, ask := range ways {
		want(ask(a, 7, begin, 1), `"data":[1]`)
		for other, ask := range ways {
			for _, flags := range []string{"", end} {
				if got := ask(b, 7, flags, 1); !strings.Contains(got, notOpen) {
					t.Errorf("a sequence of another key that was begun over %s, over %s: %s", name, other, got)
				}
			}
		}
		want(ask(b, 7, begin, 5), `"data":[5]`)
		want(rest(a, 7, "", 1), `"data":[2]`)
		want(unary(a, 7, "", 1), `"data":[3]`)
		want(call(a, 7, end, 1), `"data":[4]`)
		want(ask(b, 7, end, 1), `"data":[6]`)
	}
	c := all["c"]
	want(rest(c, 1, begin, 1), `"data":[1]`)
	want(unary(c, 2, begin, 1), `"data":[1]`)
	want(rest(c, 3, begin, 1), "quotas.streams")
	want(unary(c, 3, begin, 1), "quotas.streams")
	want(rest(a, 3, begin, 1), `"data":[1]`)
	want(rest(c, 1, end, 1), `"data":[2]`)
	want(unary(c, 3, begin, 1), `"data":[1]`)
}
