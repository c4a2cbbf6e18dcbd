package service_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "millrace/internal/inferencepb"
)

// metadataWithErrors asks for the errors of a stream with their status.
func metadataWithErrors(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "triton_grpc_error", "true")
}

// caller makes one call of the protocol other than infer.
type caller struct {
	// at is the method and path of REST's route. MODEL is the name of a model, or of a region.
	at string
	// in makes the message of gRPC from REST's body.
	in func(model, version string, body map[string]any) proto.Message
	// out is the message of the answer, and from converts REST's answer to the message's JSON; nil = no conversion.
	out  proto.Message
	from func(answer any) any
}

// callers are the calls of the table, by gRPC method name. infer and stream (ModelInfer and ModelStreamInfer) are in
// inferForms.
var callers = map[string]caller{
	"infer": {}, "stream": {},
	"ServerLive":     {at: "GET /v2/health/live", in: only(&pb.ServerLiveRequest{}), out: &pb.ServerLiveResponse{}},
	"ServerReady":    {at: "GET /v2/health/ready", in: only(&pb.ServerReadyRequest{}), out: &pb.ServerReadyResponse{}},
	"ServerMetadata": {at: "GET /v2", in: only(&pb.ServerMetadataRequest{}), out: &pb.ServerMetadataResponse{}},
	"ModelReady": {at: "GET /v2/models/MODEL/ready", out: &pb.ModelReadyResponse{}, from: leaving("name"),
		in: func(model, version string, _ map[string]any) proto.Message {
			return &pb.ModelReadyRequest{Name: model, Version: version}
		}},
	"ModelMetadata": {at: "GET /v2/models/MODEL", out: &pb.ModelMetadataResponse{},
		in: func(model, version string, _ map[string]any) proto.Message {
			return &pb.ModelMetadataRequest{Name: model, Version: version}
		}},
	"ModelConfig": {at: "GET /v2/models/MODEL/config", out: &pb.ModelConfigResponse{}, from: within("config"),
		in: func(model, version string, _ map[string]any) proto.Message {
			return &pb.ModelConfigRequest{Name: model, Version: version}
		}},
	"ModelStatistics": {at: "GET /v2/models/MODEL/stats", out: &pb.ModelStatisticsResponse{},
		in: func(model, version string, _ map[string]any) proto.Message {
			return &pb.ModelStatisticsRequest{Name: model, Version: version}
		}},
	"RepositoryIndex": {at: "POST /v2/repository/index", out: &pb.RepositoryIndexResponse{}, from: within("models"),
		in: func(repository, _ string, body map[string]any) proto.Message {
			return &pb.RepositoryIndexRequest{RepositoryName: repository, Ready: body["ready"] == true}
		}},
	"RepositoryModelLoad": {at: "POST /v2/repository/models/MODEL/load", out: &pb.RepositoryModelLoadResponse{},
		in: func(model, _ string, body map[string]any) proto.Message {
			return &pb.RepositoryModelLoadRequest{ModelName: model, Parameters: loadParameters(body)}
		}},
	"RepositoryModelUnload": {at: "POST /v2/repository/models/MODEL/unload", out: &pb.RepositoryModelUnloadResponse{},
		in: func(model, _ string, body map[string]any) proto.Message {
			return &pb.RepositoryModelUnloadRequest{ModelName: model, Parameters: loadParameters(body)}
		}},
	"SystemSharedMemoryStatus": {at: "GET /v2/systemsharedmemory/region/MODEL/status",
		out: &pb.SystemSharedMemoryStatusResponse{}, from: byName,
		in: func(region, _ string, _ map[string]any) proto.Message {
			return &pb.SystemSharedMemoryStatusRequest{Name: region}
		}},
	"SystemSharedMemoryRegister": {at: "POST /v2/systemsharedmemory/region/MODEL/register",
		out: &pb.SystemSharedMemoryRegisterResponse{}, in: func(region, _ string, body map[string]any) proto.Message {
			in := &pb.SystemSharedMemoryRegisterRequest{Name: region}
			in.Key, _ = body["key"].(string)
			in.Offset, in.ByteSize = bytesOf(body["offset"]), bytesOf(body["byte_size"])
			return in
		}},
	"SystemSharedMemoryUnregister": {at: "POST /v2/systemsharedmemory/region/MODEL/unregister",
		out: &pb.SystemSharedMemoryUnregisterResponse{}, in: func(region, _ string, _ map[string]any) proto.Message {
			return &pb.SystemSharedMemoryUnregisterRequest{Name: region}
		}},
	"CudaSharedMemoryStatus": {at: "GET /v2/cudasharedmemory/region/MODEL/status",
		out: &pb.CudaSharedMemoryStatusResponse{}, from: byName,
		in: func(region, _ string, _ map[string]any) proto.Message {
			return &pb.CudaSharedMemoryStatusRequest{Name: region}
		}},
	"CudaSharedMemoryRegister": {at: "POST /v2/cudasharedmemory/region/MODEL/register",
		out: &pb.CudaSharedMemoryRegisterResponse{}, in: func(region, _ string, _ map[string]any) proto.Message {
			return &pb.CudaSharedMemoryRegisterRequest{Name: region}
		}},
	"CudaSharedMemoryUnregister": {at: "POST /v2/cudasharedmemory/region/MODEL/unregister",
		out: &pb.CudaSharedMemoryUnregisterResponse{}, in: func(region, _ string, _ map[string]any) proto.Message {
			return &pb.CudaSharedMemoryUnregisterRequest{Name: region}
		}},
	"LogSettings": {at: "POST /v2/logging", in: logSettings, out: &pb.LogSettingsResponse{}, from: logAnswer},
	"TraceSetting": {at: "POST /v2/models/MODEL/trace/setting", in: traceSettings, out: &pb.TraceSettingResponse{},
		from: traceAnswer},
}

func only(m proto.Message) func(string, string, map[string]any) proto.Message {
	return func(string, string, map[string]any) proto.Message { return m }
}

func within(field string) func(any) any {
	return func(answer any) any { return map[string]any{field: answer} }
}

func leaving(field string) func(any) any {
	return func(answer any) any {
		delete(answer.(map[string]any), field)
		return answer
	}
}

// byName makes a map of a list of regions.
func byName(answer any) any {
	regions := map[string]any{}
	for _, r := range answer.([]any) {
		regions[r.(map[string]any)["name"].(string)] = r
	}
	return map[string]any{"regions": regions}
}

func bytesOf(v any) (n uint64) {
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

func loadParameters(body map[string]any) map[string]*pb.ModelRepositoryParameter {
	out := map[string]*pb.ModelRepositoryParameter{}
	given, _ := body["parameters"].(map[string]any)
	for key, v := range given {
		p := &pb.ModelRepositoryParameter{}
		switch v := v.(type) {
		case bool:
			p.ParameterChoice = &pb.ModelRepositoryParameter_BoolParam{BoolParam: v}
		case json.Number:
			n, _ := v.Int64()
			p.ParameterChoice = &pb.ModelRepositoryParameter_Int64Param{Int64Param: n}
		case string:
			p.ParameterChoice = &pb.ModelRepositoryParameter_StringParam{StringParam: v}
			if b, err := base64.StdEncoding.DecodeString(v); strings.HasPrefix(key, "file:") && err == nil {
				p.ParameterChoice = &pb.ModelRepositoryParameter_BytesParam{BytesParam: b}
			}
		}
		out[key] = p
	}
	return out
}

func logSettings(_, _ string, body map[string]any) proto.Message {
	in := &pb.LogSettingsRequest{Settings: map[string]*pb.LogSettingsRequest_SettingValue{}}
	for key, v := range body {
		value := &pb.LogSettingsRequest_SettingValue{}
		switch v := v.(type) {
		case bool:
			value.ParameterChoice = &pb.LogSettingsRequest_SettingValue_BoolParam{BoolParam: v}
		case string:
			value.ParameterChoice = &pb.LogSettingsRequest_SettingValue_StringParam{StringParam: v}
		case json.Number:
			value.ParameterChoice = &pb.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: uint32(bytesOf(v))}
		}
		in.Settings[key] = value
	}
	return in
}

// logAnswer leaves of REST's answer the settings of the protocol.
func logAnswer(answer any) any {
	settings := map[string]any{}
	for key, v := range answer.(map[string]any) {
		if !strings.HasPrefix(key, "log_") {
			continue
		}
		switch v := v.(type) {
		case bool:
			settings[key] = map[string]any{"bool_param": v}
		case json.Number:
			settings[key] = map[string]any{"uint32_param": v}
		default:
			settings[key] = map[string]any{"string_param": v}
		}
	}
	return map[string]any{"settings": settings}
}

func traceSettings(model, _ string, body map[string]any) proto.Message {
	in := &pb.TraceSettingRequest{ModelName: model, Settings: map[string]*pb.TraceSettingRequest_SettingValue{}}
	for key, v := range body {
		value := &pb.TraceSettingRequest_SettingValue{}
		if v != nil {
			for _, one := range elements(v) {
				value.Value = append(value.Value, fmt.Sprint(one))
			}
		}
		in.Settings[key] = value
	}
	return in
}

func traceAnswer(answer any) any {
	settings := map[string]any{}
	for key, v := range answer.(map[string]any) {
		settings[key] = map[string]any{"value": elements(v)}
	}
	return map[string]any{"settings": settings}
}

// path is the route of a call, for a model or version.
func (of *caller) path(model, version string) (method, path string) {
	method, path, _ = strings.Cut(of.at, " ")
	name := url.PathEscape(model)
	if version != "" {
		name += "/versions/" + url.PathEscape(version)
	}
	if model == "" { // of all
		path = strings.NewReplacer("/models/MODEL", "/models", "/region/MODEL", "").Replace(path)
		path = strings.Replace(path, "/v2/models/trace", "/v2/trace", 1)
	}
	if model != "" && path == "/v2/repository/index" {
		path = "/v2/repository/" + name + "/index"
	}
	return method, strings.Replace(path, "MODEL", name, 1)
}

func (of *caller) rest(c *conformance, model, version, body string) outcome {
	c.Helper()
	method, path := of.path(model, version)
	req, err := http.NewRequest(method, c.rest+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK && !(resp.StatusCode == http.StatusServiceUnavailable &&
		strings.Contains(string(text), `"ready"`)) {
		return c.restFailed(resp.StatusCode, text)
	}
	if len(text) == 0 {
		text = []byte("{}")
	}
	var answer any
	if err := decode(string(text), &answer); err != nil {
		c.Errorf("%s %s: %q: %v", method, path, text, err)
		return outcome{}
	}
	endpoint := ""
	if loaded, ok := answer.(map[string]any); ok && loaded["endpoint"] != nil {
		endpoint = fmt.Sprint(" endpoint=", loaded["endpoint"])
		answer = map[string]any{}
	}
	if of.from != nil {
		answer = of.from(answer)
	}
	text, err = json.Marshal(answer)
	if err != nil {
		c.Fatal(err)
	}
	m := proto.Clone(of.out)
	if err := protojson.Unmarshal(text, m); err != nil {
		c.Errorf("%s %s: %s: %v", method, path, text, err)
	}
	return answered(messageText(m) + endpoint)
}

func (of *caller) grpc(c *conformance, model, version, body string) outcome {
	c.Helper()
	var given map[string]any
	if body != "" {
		if err := decode(body, &given); err != nil {
			c.Fatal(err)
		}
	}
	in, out := of.in(model, version, given), proto.Clone(of.out)
	method := strings.TrimSuffix(string(in.ProtoReflect().Descriptor().Name()), "Request")
	var header metadata.MD
	if err := c.conn.Invoke(context.Background(), "/inference.GRPCInferenceService/"+method, in, out,
		grpc.Header(&header)); err != nil {
		return failed(err)
	}
	text := messageText(out)
	if e := header.Get("millrace-endpoint"); len(e) == 1 {
		text += " endpoint=" + e[0]
	} else if method == "RepositoryModelUnload" {
		text += " endpoint=" + model
	}
	return answered(text)
}

// times are the statistics values that differ between runs.
var times = regexp.MustCompile(`"(ns|last_inference)":"?\d+"?`)

// messageText writes a message as JSON, without times.
func messageText(m proto.Message) string {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err.Error()
	}
	text, _ = json.Marshal(v)
	return times.ReplaceAllString(string(text), `"$1":0`)
}

// counts are the statistics values that depend on earlier requests.
var counts = regexp.MustCompile(`"(count|execution_count|inference_count)":"\d+",?`)
