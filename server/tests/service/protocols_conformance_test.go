package service_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/config"
	"millrace/ingest/shm"
	pb "millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// conforming is a case of TestConformance: calls made in sequence over one protocol, and then over the other
// protocol. The outcome of each call must match the case, and must be the same over both protocols.
type conforming struct {
	name  string
	calls []protocolCall
}

// protocolCall is one call, independent of the protocol. See callers for the list.
type protocolCall struct {
	call  string
	model string // or MODEL/VERSION; the region of calls about shared memory
	body  string // JSON: REST's body. Data of a tensor may be "hex": "00ff" in place of "data"
	want  string // see outcome; of calls that are not infer, parts of it between " ... "
	only  string // the names of the only forms in which an infer request is sent, or ""
	// differs is the key in differences of a difference between the protocols, or "".
	differs  string
	overGRPC string // expected over gRPC, if different
}

// outcome is the result seen by a client, independent of the protocol. For an answered request text has the results,
// in the form of answerText, or the gRPC message as JSON. For a failed request text has "!", the code of the error,
// and the error's text.
type outcome struct {
	text string
	grpc string // the name of the gRPC code: of REST's, by the table in the documentation
}

func answered(text string) outcome { return outcome{text, "OK"} }

// is reports whether o matches a case.
func (o outcome) is(c *protocolCall, want string) bool {
	want, refused := strings.CutPrefix(want, "!")
	switch {
	case refused:
		code, says, _ := strings.Cut(want, " ")
		return o.grpc == statusTable[code].grpc && strings.Contains(o.text, says)
	case o.grpc != "OK":
		return false
	case isInfer(c.call):
		return o.text == want
	}
	for _, part := range strings.Split(want, " ... ") {
		if !strings.Contains(o.text, part) {
			return false
		}
	}
	return true
}

func isInfer(call string) bool { return call == "infer" || call == "stream" }

func (o outcome) String() string { return o.grpc + " " + o.text }

// differences are the differences between the protocols, with the sentence in docs/open-inference-protocol.md that
// states each.
var differences = map[string]string{
	"data":       "The place and the text of an error about a tensor's data",
	"ready":      "`ModelReady` of a model that is not loaded",
	"extensions": "has the extensions `binary_tensor_data` and `generate`",
}

// conformance runs the cases.
type conformance struct {
	*testing.T
	s    *server.Server
	conn *grpc.ClientConn
	rest string // the address of the HTTP listener
	used map[string]int
}

// TestConformance runs each case of the table over REST and over gRPC. After each failing case, a good request must
// succeed.
func TestConformance(t *testing.T) {
	c := startConformance(t)
	for _, of := range slices.Concat(goodCases(t), badCases(), callCases(), badCalls()) {
		t.Run(of.name, func(t *testing.T) {
			one := *c
			one.T = t
			one.run(&of)
		})
	}
	for call := range callers {
		if c.used[call] == 0 {
			t.Errorf("no case has the call %s", call)
		}
	}
	c.nothingIsLeft()
}

// run makes the calls of a case over each protocol, and of infer requests in each form.
func (c *conformance) run(of *conforming) {
	forms := []form{{}}
	if slices.ContainsFunc(of.calls, func(a protocolCall) bool { return isInfer(a.call) }) {
		forms = inferForms
	}
	first := make([]string, len(of.calls))
	made := [2]int{}
	for _, f := range forms {
		if f.name != "" && !f.fits(of.calls) {
			continue
		}
		for protocol := range 2 {
			if f.protocol >= 0 && f.protocol != protocol && f.name != "" {
				continue
			}
			made[protocol]++
			bad := false
			for i := range of.calls {
				a := &of.calls[i]
				got := c.do(protocol, f, a)
				where := strings.TrimSpace([2]string{"REST", "gRPC"}[protocol] + " " + f.name)
				want := a.want
				if protocol == 1 && a.overGRPC != "" {
					want = a.overGRPC
				}
				bad = bad || strings.HasPrefix(want, "!")
				if !got.is(a, want) {
					c.Errorf("%s, call %d, %s: got %v\nwant %s", where, i, a.call, got, want)
				}
				switch {
				case a.differs != "" && differences[a.differs] == "":
					c.Errorf("%s is no difference", a.differs)
				case first[i] == "":
					first[i] = got.String()
				case a.differs == "" && got.String() != first[i]:
					c.Errorf("%s, call %d, %s: got %v\nbefore: %s", where, i, a.call, got, first[i])
				}
			}
			if bad {
				c.neighbour(protocol)
			}
		}
	}
	if made[0] == 0 || made[1] == 0 {
		c.Errorf("it has run %d times over REST and %d times over gRPC", made[0], made[1])
	}
}

// neighbour sends a good request.
func (c *conformance) neighbour(protocol int) {
	c.Helper()
	a := &protocolCall{call: "infer", model: "add", body: `{"inputs":[{"name":"INPUT0","datatype":"INT32",` +
		`"shape":[1,2],"data":[1,2]},{"name":"INPUT1","datatype":"INT32","shape":[1,2],"data":[10,20]}]}`,
		want: "add/1: OUTPUT0 INT32[1 2]=11,22; OUTPUT1 INT32[1 2]=-9,-18"}
	for _, f := range inferForms {
		if f.protocol == protocol && f.fits([]protocolCall{*a}) {
			if got := c.do(protocol, f, a); !got.is(a, a.want) {
				c.Errorf("a good request after it: %v", got)
			}
			return
		}
	}
}

// do makes a call over a protocol.
func (c *conformance) do(protocol int, f form, a *protocolCall) (o outcome) {
	c.Helper()
	c.used[a.call]++
	model, version, _ := strings.Cut(a.model, "/v")
	if strings.HasPrefix(a.model, "\x00") { // the whole text is the name
		model, version = a.model[1:], ""
	}
	limit := time.Now().Add(20 * time.Second)
	for {
		switch caller := callers[a.call]; {
		case isInfer(a.call):
			o = f.send(c, a, model, version)
		case protocol == 0:
			o = caller.rest(c, model, version, a.body)
		default:
			o = caller.grpc(c, model, version, a.body)
		}
		if a.call == "ModelStatistics" && model == "" {
			o.text = counts.ReplaceAllString(o.text, "")
		}
		// A run is counted, and the use of a region ends, after its results are sent.
		if a.call != "ModelStatistics" && a.call != "SystemSharedMemoryStatus" || o.is(a, a.want) ||
			time.Now().After(limit) {
			return o
		}
		time.Sleep(time.Millisecond)
	}
}

// nothingIsLeft checks for leftovers of failed requests. TestMain checks for goroutines.
func (c *conformance) nothingIsLeft() {
	c.Helper()
	limit := time.Now().Add(20 * time.Second)
	var left string
	for {
		left = ""
		if m := c.s.Memory().Stats(); m.Leases != 0 {
			left = fmt.Sprintf("%d leases of %d bytes; ", m.Leases, m.Leased)
		}
		for _, g := range c.s.Models().Snapshot() {
			if g.Waiting != 0 || g.Busy != 0 || g.BuffersFree != g.Buffers {
				left += fmt.Sprintf("%s: %+v; ", g.Model.Name, g)
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(limit) {
			c.Fatal(left)
		}
		time.Sleep(time.Millisecond)
	}
}

// sharedKey is the shared memory of the cases.
var sharedKey = fmt.Sprintf("millrace-conformance-%d", os.Getpid())

func startConformance(t *testing.T) *conformance {
	readStatusTable(t)
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Models: []workers.Config{
		{Name: "echo", Source: "identity"}, {Name: "count", Source: "repeat"}, {Name: "add", Kind: "adding"},
		{Name: "flat", Kind: "failing"}, {Name: "scalar", Kind: "failing"},
		{Name: "text", Kind: "failing"}, {Name: "wrong", Kind: "failing"},
		{Name: "sum", Kind: "summing", Sequences: stream.Sequences{Idle: time.Hour}},
	}}
	cfg.Log.Level = "error"
	cfg.Repository = config.Repository{Dir: t.TempDir(), Mode: config.LoadExplicit, Load: []string{"versions"}}
	for path, text := range repositoryFiles {
		at := filepath.Join(cfg.Repository.Dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(shm.Folder, sharedKey), make([]byte, 64), 0o600); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.Remove(filepath.Join(shm.Folder, sharedKey)) })
	s, end := servertest.RunWith(t, cfg)
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
		if m := s.Memory().Stats(); m.Leases != 0 {
			t.Errorf("%d leases are left", m.Leases)
		}
	})
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &conformance{T: t, s: s, conn: conn, rest: "http://" + s.Addr("http"), used: map[string]int{}}
}

// statuses are how an error is sent.
type statuses struct {
	http int
	grpc string
}

// statusTable is the table of docs/open-inference-protocol.md, by the code of the error.
var statusTable map[string]statuses

func readStatusTable(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/open-inference-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	statusTable = map[string]statuses{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d{3})[^|]* \\| `([A-Z_]+)` \\|").FindAllSubmatch(
		text, -1) {
		var s statuses
		fmt.Sscan(string(m[2]), &s.http)
		s.grpc = string(m[3])
		statusTable[string(m[1])] = s
	}
	if len(statusTable) != len(coded.Codes) {
		t.Errorf("%d codes in the documentation, %d in all", len(statusTable), len(coded.Codes))
	}
	for _, words := range differences {
		if !bytes.Contains(text, []byte(words)) {
			t.Errorf("the documentation does not say %q", words)
		}
	}
}

// answerText writes the answer to an infer request: MODEL/VERSION, optional id and parameters, and outputs.
func answerText(r *pb.ModelInferResponse) string {
	text := r.ModelName + "/" + r.ModelVersion
	if r.Id != "" {
		text += " id=" + r.Id
	}
	text += paramsText(r.Parameters) + ":"
	for i, out := range r.Outputs {
		if i > 0 {
			text += ";"
		}
		text += fmt.Sprintf(" %s %s%v%s", out.Name, out.Datatype, out.Shape, paramsText(out.Parameters))
		if i < len(r.RawOutputContents) && out.Parameters["shared_memory_region"] == nil {
			text += "=" + valuesText(out.Datatype, r.RawOutputContents[i])
		}
	}
	if len(r.RawOutputContents) != len(r.Outputs) {
		text += fmt.Sprintf(" (%d contents)", len(r.RawOutputContents))
	}
	return text
}

func paramsText(of map[string]*pb.InferParameter) string {
	var all []string
	for key, v := range of {
		all = append(all, key+"="+cmp.Or(paramText(v), "?"))
	}
	if slices.Sort(all); len(all) == 0 {
		return ""
	}
	return " {" + strings.Join(all, " ") + "}"
}

func paramText(p *pb.InferParameter) string {
	switch v := p.GetParameterChoice().(type) {
	case *pb.InferParameter_BoolParam:
		return fmt.Sprint(v.BoolParam)
	case *pb.InferParameter_Int64Param:
		return fmt.Sprint(v.Int64Param)
	case *pb.InferParameter_StringParam:
		return fmt.Sprintf("%q", v.StringParam)
	case *pb.InferParameter_DoubleParam:
		return fmt.Sprintf("%g.", v.DoubleParam)
	}
	return ""
}
