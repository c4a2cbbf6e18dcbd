package service_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "millrace/internal/inferencepb"
)

// form is an encoding of the table's infer requests.
type form struct {
	name     string
	protocol int // 0 REST, 1 gRPC
	binary   func(input int) bool
	stream   bool
}

var inferForms = []form{
	{name: "JSON", binary: none},
	{name: "binary", binary: all},
	{name: "mixed", binary: func(input int) bool { return input%2 == 0 }},
	{name: "events", binary: none, stream: true},
	{name: "typed", protocol: 1, binary: none},
	{name: "raw", protocol: 1, binary: all},
	{name: "typed stream", protocol: 1, binary: none, stream: true},
	{name: "raw stream", protocol: 1, binary: all, stream: true},
}

func none(int) bool { return false }
func all(int) bool  { return true }

// fits reports whether a form can carry the requests: JSON cannot carry some data, and other forms cannot carry other
// data.
func (f *form) fits(calls []protocolCall) bool {
	for i := range calls {
		a := &calls[i]
		if !isInfer(a.call) {
			continue
		}
		if a.call == "stream" && !f.stream {
			return false
		}
		if a.only != "" {
			found := false
			for _, name := range strings.Split(a.only, ", ") {
				found = found || name == f.name
			}
			if !found {
				return false
			}
		}
		in := parse(a.body)
		if f.name == "mixed" && (len(in.Inputs) < 2 || strings.Contains(a.body, "shared_memory_region")) {
			return false
		}
		// which the documentation says is refused there
		if f.name == "events" && strings.Contains(a.body, `"sequence_id"`) {
			return false
		}
		for k, t := range in.Inputs {
			_, ok := t.bytes()
			if f.binary(k) && !ok || !f.binary(k) && t.Hex != nil {
				return false
			}
		}
	}
	return true
}

// inferBody is REST's body of an infer request.
type inferBody struct {
	ID         string         `json:"id,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Inputs     []tensor       `json:"inputs"`
	Outputs    []tensor       `json:"outputs,omitempty"`
}

type tensor struct {
	Name       string         `json:"name,omitempty"`
	Datatype   string         `json:"datatype,omitempty"`
	Shape      []json.Number  `json:"shape,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Data       any            `json:"data,omitempty"`
	Hex        *string        `json:"hex,omitempty"`
}

// notFinite are numbers without a JSON form, outside of strings.
var notFinite = regexp.MustCompile(`([\[, ])(-?(?:NaN|Infinity))([\], ])`)

func decode(text string, to any) error {
	for range 2 { // matches may share a comma
		text = notFinite.ReplaceAllString(text, `$1"$2"$3`)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

func parse(body string) (in inferBody) {
	if err := decode(body, &in); err != nil {
		panic(fmt.Sprintf("%s: %v", body, err))
	}
	return in
}

// elements flattens nested data.
func elements(data any) (out []any) {
	if list, ok := data.([]any); ok {
		for _, v := range list {
			out = append(out, elements(v)...)
		}
		return out
	}
	return []any{data}
}

// bytes returns the data as a binary tensor; false when the data has no binary form.
func (t *tensor) bytes() (out []byte, ok bool) {
	if t.Hex != nil {
		out, err := hex.DecodeString(*t.Hex)
		return out, err == nil
	}
	if t.Data == nil {
		return nil, true
	}
	return elementBytes(t.Datatype, elements(t.Data))
}

func elementBytes(datatype string, values []any) (out []byte, ok bool) {
	le := binary.LittleEndian
	for _, v := range values {
		text := fmt.Sprint(v)
		switch datatype {
		case "BYTES":
			out = append(le.AppendUint32(out, uint32(len(text))), text...)
			continue
		case "BOOL":
			b, is := v.(bool)
			if !is {
				return nil, false
			}
			out = append(out, map[bool]byte{true: 1}[b])
			continue
		case "FP32", "FP64":
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, false
			}
			if datatype == "FP32" {
				out = le.AppendUint32(out, math.Float32bits(float32(f)))
			} else {
				out = le.AppendUint64(out, math.Float64bits(f))
			}
			continue
		}
		kind, bits, _ := strings.Cut(datatype, "INT")
		size, err := strconv.Atoi(bits)
		if err != nil {
			return nil, false
		}
		var n uint64
		if kind == "U" {
			n, err = strconv.ParseUint(text, 10, size)
		} else {
			var signed int64
			signed, err = strconv.ParseInt(text, 10, size)
			n = uint64(signed)
		}
		if err != nil {
			return nil, false
		}
		out = append(out, le.AppendUint64(nil, n)[:size/8]...)
	}
	return out, true
}

// valuesText writes the elements of a binary tensor.
func valuesText(datatype string, data []byte) string {
	var out []string
	le := binary.LittleEndian
	size := map[string]int{"BOOL": 1, "INT8": 1, "UINT8": 1, "INT16": 2, "UINT16": 2, "FP16": 2, "BF16": 2, "INT32": 4,
		"UINT32": 4, "FP32": 4, "INT64": 8, "UINT64": 8, "FP64": 8}[datatype]
	for len(data) > 0 {
		var text string
		n := size
		if datatype == "BYTES" && len(data) >= 4 {
			n = 4 + int(le.Uint32(data))
		}
		if n == 0 || n > len(data) {
			return fmt.Sprintf("%x?", data)
		}
		one := data[:n]
		padded := append(bytes.Clone(one), make([]byte, 8)...)
		bits := le.Uint64(padded)
		switch datatype {
		case "BYTES":
			text = strconv.Quote(string(one[4:]))
		case "FP32":
			text = fmt.Sprint(math.Float32frombits(uint32(bits)))
		case "FP64":
			text = fmt.Sprint(math.Float64frombits(bits))
		case "FP16", "BF16":
			text = fmt.Sprintf("%04x", bits)
		case "INT8", "INT16", "INT32", "INT64":
			text = fmt.Sprint(int64(bits) << (64 - 8*size) >> (64 - 8*size))
		default:
			text = fmt.Sprint(bits)
		}
		out, data = append(out, text), data[n:]
	}
	return strings.Join(out, ",")
}

func (f *form) send(c *conformance, a *protocolCall, model, version string) outcome {
	c.Helper()
	switch {
	case f.protocol == 0:
		return f.rest(c, a, model, version)
	case f.stream:
		return f.grpcStream(c, a, model, version)
	}
	reply, err := pb.NewGRPCInferenceServiceClient(c.conn).ModelInfer(context.Background(),
		f.message(a, model, version))
	if err != nil {
		return failed(err)
	}
	return answered(answerText(reply))
}

func failed(err error) outcome {
	s := status.Convert(err)
	return outcome{s.Message(), codeName(s.Code())}
}

// codeName returns a code in capitals, as in gRPC's documentation.
func codeName(c codes.Code) string {
	if c == codes.Canceled { // Go's spelling differs
		return "CANCELLED"
	}
	return strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(c.String(), "${1}_$2"))
}

// message makes the gRPC form of a request.
func (f *form) message(a *protocolCall, model, version string) *pb.ModelInferRequest {
	in := parse(a.body)
	out := &pb.ModelInferRequest{ModelName: model, ModelVersion: version, Id: in.ID,
		Parameters: parameters(in.Parameters)}
	for i := range in.Inputs {
		t := &in.Inputs[i]
		to := &pb.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Datatype,
			Parameters: parameters(t.Parameters)}
		for _, d := range t.Shape {
			n, err := d.Int64()
			if err != nil {
				panic(err)
			}
			to.Shape = append(to.Shape, n)
		}
		switch _, shared := t.Parameters["shared_memory_region"]; {
		case t.Data == nil && t.Hex == nil:
		case f.binary(i):
			data, _ := t.bytes()
			out.RawInputContents = append(out.RawInputContents, data)
		case !shared || t.Data != nil:
			to.Contents = contents(t.Datatype, elements(t.Data))
		}
		out.Inputs = append(out.Inputs, to)
	}
	for _, o := range in.Outputs {
		out.Outputs = append(out.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{Name: o.Name,
			Parameters: parameters(o.Parameters)})
	}
	return out
}

func contents(datatype string, values []any) *pb.InferTensorContents {
	c := &pb.InferTensorContents{}
	for _, v := range values {
		text := fmt.Sprint(v)
		n, _ := strconv.ParseInt(text, 10, 64)
		u, _ := strconv.ParseUint(text, 10, 64)
		f, _ := strconv.ParseFloat(text, 64)
		switch datatype {
		case "BOOL":
			c.BoolContents = append(c.BoolContents, v == true)
		case "INT8", "INT16", "INT32":
			c.IntContents = append(c.IntContents, int32(n))
		case "INT64":
			c.Int64Contents = append(c.Int64Contents, n)
		case "UINT8", "UINT16", "UINT32":
			c.UintContents = append(c.UintContents, uint32(u))
		case "UINT64":
			c.Uint64Contents = append(c.Uint64Contents, u)
		case "FP64":
			c.Fp64Contents = append(c.Fp64Contents, f)
		case "BYTES":
			c.BytesContents = append(c.BytesContents, []byte(text))
		default:
			c.Fp32Contents = append(c.Fp32Contents, float32(f))
		}
	}
	return c
}

func parameters(from map[string]any) map[string]*pb.InferParameter {
	out := map[string]*pb.InferParameter{}
	for key, v := range from {
		p := &pb.InferParameter{}
		switch v := v.(type) {
		case bool:
			p.ParameterChoice = &pb.InferParameter_BoolParam{BoolParam: v}
		case string:
			p.ParameterChoice = &pb.InferParameter_StringParam{StringParam: v}
		case json.Number:
			n, err := v.Int64()
			u, unsigned := strconv.ParseUint(v.String(), 10, 64)
			f, _ := v.Float64()
			switch {
			case err == nil:
				p.ParameterChoice = &pb.InferParameter_Int64Param{Int64Param: n}
			case unsigned == nil:
				p.ParameterChoice = &pb.InferParameter_Uint64Param{Uint64Param: u}
			default:
				p.ParameterChoice = &pb.InferParameter_DoubleParam{DoubleParam: f}
			}
		}
		out[key] = p
	}
	return out
}

func (f *form) grpcStream(c *conformance, a *protocolCall, model, version string) outcome {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := pb.NewGRPCInferenceServiceClient(c.conn).ModelStreamInfer(metadataWithErrors(ctx))
	if err != nil {
		return failed(err)
	}
	if err := s.Send(f.message(a, model, version)); err != nil && err != io.EOF {
		return failed(err)
	}
	_ = s.CloseSend()
	var all []string
	for {
		r, err := s.Recv()
		switch {
		case err == io.EOF:
			return answered(strings.Join(all, " | "))
		case err != nil:
			return failed(err)
		}
		delete(r.InferResponse.Parameters, "triton_final_response")
		all = append(all, answerText(r.InferResponse))
	}
}

// rest sends a request over HTTP.
func (f *form) rest(c *conformance, a *protocolCall, model, version string) outcome {
	c.Helper()
	in := parse(a.body)
	body := []byte(a.body)
	length, tail := -1, []byte(nil)
	if f.name == "binary" || f.name == "mixed" {
		for i := range in.Inputs {
			t := &in.Inputs[i]
			data, _ := t.bytes()
			if f.binary(i) && (t.Data != nil || t.Hex != nil) {
				if t.Parameters == nil {
					t.Parameters = map[string]any{}
				}
				t.Parameters["binary_data_size"] = len(data)
				t.Data, t.Hex = nil, nil
				tail = append(tail, data...)
			}
		}
		if in.Parameters == nil {
			in.Parameters = map[string]any{}
		}
		in.Parameters["binary_data_output"] = f.name == "binary"
		// The members are written by hand: encoding/json leaves an empty shape out.
		body = in.text()
		length = len(body)
		body = append(body, tail...)
	}
	call := "/infer"
	if f.stream {
		call = "/infer_stream"
	}
	resp, reply := c.post(c.rest+modelPath(model, version)+call, body, length)
	if resp.StatusCode != http.StatusOK {
		return c.restFailed(resp.StatusCode, reply)
	}
	if !f.stream {
		return answered(c.restAnswer(resp, reply))
	}
	var all []string
	for _, e := range events(reply) {
		switch e.name {
		case "error":
			return c.restFailed(0, []byte(e.data))
		case "end":
			return answered(strings.Join(all, " | "))
		}
		all = append(all, c.restAnswer(resp, []byte(e.data)))
	}
	return answered(strings.Join(all, " | ") + " without an end")
}

// text writes the body, with the original data of JSON.
func (b *inferBody) text() []byte {
	list := func(ts []tensor, input bool) string {
		var out []string
		for _, t := range ts {
			var members []string
			add := func(name string, v any) {
				text, err := json.Marshal(v)
				if err != nil {
					panic(err)
				}
				members = append(members, `"`+name+`":`+string(text))
			}
			if t.Name != "" {
				add("name", t.Name)
			}
			if t.Datatype != "" {
				add("datatype", t.Datatype)
			}
			if input && t.Shape != nil {
				add("shape", t.Shape)
			}
			if t.Parameters != nil {
				add("parameters", t.Parameters)
			}
			if t.Data != nil {
				add("data", t.Data)
			}
			out = append(out, "{"+strings.Join(members, ",")+"}")
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	params, _ := json.Marshal(b.Parameters)
	id, _ := json.Marshal(b.ID)
	text := fmt.Sprintf(`{"id":%s,"parameters":%s,"inputs":%s`, id, params, list(b.Inputs, true))
	if b.Outputs != nil {
		text += `,"outputs":` + list(b.Outputs, false)
	}
	return []byte(text + "}")
}

func modelPath(model, version string) string {
	path := "/v2/models/" + url.PathEscape(model)
	if version != "" {
		path += "/versions/" + url.PathEscape(version)
	}
	return path
}

func (c *conformance) post(url string, body []byte, jsonLength int) (*http.Response, []byte) {
	c.Helper()
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if jsonLength >= 0 {
		req.Header.Set("Inference-Header-Content-Length", strconv.Itoa(jsonLength))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	return resp, reply
}

// restFailed reads an error of REST, and checks that the status matches the code; status 0 means an event, without a
// status.
func (c *conformance) restFailed(status int, body []byte) outcome {
	c.Helper()
	var e struct{ Error, Code string }
	if err := json.Unmarshal(body, &e); err != nil || e.Error == "" {
		c.Errorf("%d %q is no error", status, body)
	}
	row, known := statusTable[e.Code]
	if !known || status != 0 && row.http != status {
		c.Errorf("the code %s with status %d, which the documentation does not have: %s", e.Code, status, e.Error)
	}
	return outcome{e.Error, row.grpc}
}

// restAnswer reads an answer of REST.
func (c *conformance) restAnswer(resp *http.Response, body []byte) string {
	c.Helper()
	var tail []byte
	if n, err := strconv.Atoi(resp.Header.Get("Inference-Header-Content-Length")); err == nil && n <= len(body) {
		body, tail = body[:n], body[n:]
	}
	var in struct {
		inferBody
		ModelName    string `json:"model_name"`
		ModelVersion string `json:"model_version"`
	}
	if err := decode(string(body), &in); err != nil {
		c.Errorf("%s: %v", body, err)
	}
	out := &pb.ModelInferResponse{ModelName: in.ModelName, ModelVersion: in.ModelVersion, Id: in.ID,
		Parameters: parameters(in.Parameters)}
	for _, o := range in.Outputs {
		to := &pb.ModelInferResponse_InferOutputTensor{Name: o.Name, Datatype: o.Datatype}
		for _, d := range o.Shape {
			n, _ := d.Int64()
			to.Shape = append(to.Shape, n)
		}
		size, isBinary := o.Parameters["binary_data_size"]
		delete(o.Parameters, "binary_data_size")
		to.Parameters = parameters(o.Parameters)
		var data []byte
		if isBinary {
			n, _ := strconv.Atoi(fmt.Sprint(size))
			if n > len(tail) {
				c.Errorf("%s: %d bytes follow", body, len(tail))
				n = len(tail)
			}
			data, tail = tail[:n], tail[n:]
		} else if o.Data != nil {
			var ok bool
			if data, ok = elementBytes(o.Datatype, elements(o.Data)); !ok {
				c.Errorf("%s: data that are not %s", body, o.Datatype)
			}
		}
		out.Outputs, out.RawOutputContents = append(out.Outputs, to), append(out.RawOutputContents, data)
	}
	if len(tail) > 0 {
		c.Errorf("%s: %d more bytes", body, len(tail))
	}
	return answerText(out)
}

type event struct{ name, data string }

// events reads server-sent events.
func events(body []byte) (out []event) {
	var e event
	for s := bufio.NewScanner(bytes.NewReader(body)); s.Scan(); {
		switch key, value, _ := strings.Cut(s.Text(), ": "); key {
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.data != "" {
				out = append(out, e)
			}
			e = event{}
		}
	}
	return out
}
