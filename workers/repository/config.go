package repository

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/internal/inferencepb"
	"millrace/internal/setting"
	"millrace/internal/yamltext"
	"millrace/stream"
	"millrace/workers"
)

// parseText reads a config.pbtxt.
func parseText(text []byte, path string) (*inferencepb.ModelConfig, error) {
	pb := &inferencepb.ModelConfig{}
	if err := (prototext.UnmarshalOptions{}).Unmarshal(yamltext.WithoutMark(text), pb); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "%s: %s", path, plain(err))
	}
	return pb, nil
}

// parseJSON reads the configuration of a load request.
func parseJSON(text []byte) (*inferencepb.ModelConfig, error) {
	if len(text) > maxConfig {
		return nil, stream.Errorf(stream.TooLarge, "config", "is larger than 1 MiB")
	}
	pb := &inferencepb.ModelConfig{}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(text, pb); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "config", "%s", plain(err))
	}
	return pb, nil
}

// plain returns the text of an error of the protobuf library without the library's name. The library varies the
// spaces from program to program.
func plain(err error) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, err.Error())
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}

// kindOf returns the kind of worker of a configuration, or "".
func kindOf(pb *inferencepb.ModelConfig) (string, error) {
	kind := ""
	for _, f := range []struct{ field, value string }{{"backend", pb.Backend}, {"platform", pb.Platform}} {
		if f.value == "" {
			continue
		}
		of := f.value
		if of == "onnxruntime" || of == "onnxruntime_onnx" {
			of = "onnx"
		}
		if of == "ensemble" {
			of = "graph"
		}
		if _, ok := workers.Lookup(of); !ok {
			return "", stream.Errorf(stream.Unsupported, f.field, "%q is not one that this program has: want "+
				"onnxruntime, or a kind of worker (`millrace models --kinds`)", f.value)
		}
		if kind != "" && kind != of {
			return "", stream.Errorf(stream.InvalidArgument, "platform",
				"%q contradicts backend %q: leave one of them out", pb.Platform, pb.Backend)
		}
		kind = of
	}
	return kind, nil
}

// applyVersions sets the version policy.
func applyVersions(cfg *workers.Config, pb *inferencepb.ModelConfig) error {
	p := pb.GetVersionPolicy()
	switch {
	case p.GetAll() != nil:
		cfg.Versions.All = true
	case p.GetSpecific() != nil:
		for _, v := range p.GetSpecific().GetVersions() {
			cfg.Versions.Specific = append(cfg.Versions.Specific, fmt.Sprint(v))
		}
		if cfg.Versions.Specific == nil {
			return stream.Errorf(stream.InvalidArgument, "version_policy.specific.versions", "is empty")
		}
	case p.GetLatest() != nil:
		n := p.GetLatest().GetNumVersions()
		if n < 1 || n > 64 {
			return stream.Errorf(stream.InvalidArgument, "version_policy.latest.num_versions",
				"%d is not between 1 and 64", n)
		}
		cfg.Versions.Latest = int(n)
	}
	return nil
}

// applied are the fields of a configuration used by apply; all other fields are reported as not used.
var applied = []protoreflect.Name{
	"name", "platform", "backend", "max_batch_size", "input", "output", "instance_group", "default_model_filename",
	"version_policy", "dynamic_batching", "sequence_batching", "ensemble_scheduling", "parameters", "response_cache",
	"model_transaction_policy",
}

// refused are fields without which a model would give wrong answers.
var refused = map[protoreflect.Name]string{
	"batch_input":      "is not supported",
	"batch_output":     "is not supported",
	"model_operations": "is not supported: custom operators cannot be loaded",
}

// parameters are the settings for parameters of Triton's backends, and the units of the parameters, by the kind of
// worker.
var parameters = map[string]map[string]struct{ name, unit string }{
	"onnx":     {"intra_op_thread_count": {"threads", ""}, "inter_op_thread_count": {"inter_threads", ""}},
	"identity": {"execute_delay_ms": {"delay", "ms"}, "creation_delay_sec": {"load_delay", "s"}},
}

// apply sets the settings of a configuration in cfg, and returns the unused parts of the configuration. request means
// a configuration from a load request, with fewer rights.
func apply(cfg *workers.Config, pb *inferencepb.ModelConfig, request bool) (notes []string, err error) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	bad := func(field, format string, args ...any) ([]string, error) {
		return nil, stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	if pb.Name != "" && pb.Name != cfg.Name {
		return bad("name", "is %q, and the model is %q: leave it out", pb.Name, cfg.Name)
	}
	pb.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		why, no := refused[f.Name()]
		switch {
		case no:
			err = stream.Errorf(stream.Unsupported, string(f.Name()), "%s", why)
		case !slices.Contains(applied, f.Name()):
			note("%s", f.Name())
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(notes)
	// set sets a setting of the model; field is the setting's place in the configuration.
	set := func(field, path string, value any) {
		if err != nil {
			return
		}
		t := cfg.Table()
		if request {
			f, ok := t.FindRequest(path)
			if !ok {
				err = stream.Errorf(stream.InvalidArgument, field, "cannot be set by a request")
			} else if e := f.SetRequest(value); e != nil {
				err = stream.Errorf(stream.InvalidArgument, field, "%w", e)
			}
			return
		}
		if e := t.Set(path, fmt.Sprint(value)); e != nil {
			err = stream.Errorf(stream.InvalidArgument, field, "%w", e)
		}
	}
	kind, _ := workers.Lookup(cfg.Kind)
	own := kind.Table()
	parameter := func(field, name string, value any) {
		f, ok := own.Find(name)
		if !ok {
			note("%s", field)
			return
		}
		if present, has := cfg.Params[name]; request && (f.File || slices.Contains(kind.HostParams, name)) &&
			!(has && fmt.Sprint(present) == fmt.Sprint(value)) {
			err = stream.Errorf(stream.InvalidArgument, field, "can only be set in the server's configuration")
			return
		}
		if e := f.Set(fmt.Sprint(value)); e != nil {
			err = stream.Errorf(stream.InvalidArgument, field, "%w", e)
			return
		}
		cfg.Params = maps.Clone(cfg.Params)
		if cfg.Params == nil {
			cfg.Params = stream.Params{}
		}
		cfg.Params[name] = f.Value()
	}
	switch n := pb.MaxBatchSize; {
	case n < 0:
		return bad("max_batch_size", "%d is negative", n)
	case n > 0:
		set("max_batch_size", "batching.max_size", int64(n))
	case len(pb.Input) > 0 && cfg.Kind == "onnx": // the configured dims are complete: no batch axis
		parameter("max_batch_size", "batch_axis", false)
	}
	if d := pb.GetDynamicBatching(); d != nil {
		if us := d.MaxQueueDelayMicroseconds; us > 0 {
			set("dynamic_batching", "batching.kind", "soft")
			set("dynamic_batching.max_queue_delay_microseconds", "batching.max_delay", fmt.Sprintf("%dus", us))
		}
		if len(d.PreferredBatchSize) > 0 {
			note("dynamic_batching.preferred_batch_size (batches are as large as the waiting requests make them, up " +
				"to max_batch_size)")
		}
		if d.PreserveOrdering {
			note("dynamic_batching.preserve_ordering (answers of a stream are always in the order of its requests, " +
				"those of others are not held back)")
		}
		if d.PriorityLevels > 0 || d.DefaultPriorityLevel > 0 || len(d.PriorityQueuePolicy) > 0 {
			note("dynamic_batching.priority_levels (there are always high, normal and low)")
		}
		notes = append(notes, queuePolicy(d.DefaultQueuePolicy, func(path string) bool {
			_, ok := cfg.Table().Find(path)
			return ok
		}, set)...)
	}
	if d := pb.GetSequenceBatching(); d != nil {
		if err := sequences(cfg.Kind, own, d, set, parameter, note); err != nil {
			return nil, err
		}
	}
	if len(pb.InstanceGroup) > 0 {
		n := int32(0)
		for i, g := range pb.InstanceGroup {
			at := fmt.Sprintf("instance_group[%d].", i)
			if g.Count < 0 || g.Count > 1024 {
				return bad(at+"count", "%d is not between 0 and 1024", g.Count)
			}
			if n += max(g.Count, 1); g.Kind == inferencepb.ModelInstanceGroup_KIND_GPU || len(g.Gpus) > 0 {
				note("%skind and gpus (set the parameters provider and device)", at)
			}
			if g.Passive || len(g.Profile) > 0 || len(g.SecondaryDevices) > 0 || g.HostPolicy != "" ||
				g.RateLimiter != nil {
				note("%s: all but count", strings.TrimSuffix(at, "."))
			}
		}
		set("instance_group", "instances", int64(n))
	}
	for _, name := range slices.Sorted(maps.Keys(pb.Parameters)) {
		field := "parameters." + name
		if to, ok := parameters[cfg.Kind][name]; ok {
			// 0: the runtime decides
			if value := pb.Parameters[name].GetStringValue(); value == "0" && to.unit == "" {
				continue
			}
			parameter(field, to.name, pb.Parameters[name].GetStringValue()+to.unit)
			continue
		}
		parameter(field, name, pb.Parameters[name].GetStringValue())
	}
	if pb.GetEnsembleScheduling() != nil {
		if err := ensemble(cfg, pb); err != nil {
			return nil, err
		}
	}
	if pb.GetResponseCache().GetEnable() {
		set("response_cache", "cache.size", "64MiB")
	}
	decoupled := pb.GetModelTransactionPolicy().GetDecoupled()
	if _, is := own.Find("decoupled"); is {
		parameter("model_transaction_policy", "decoupled", decoupled)
	}
	if decoupled && cfg.Kind == "onnx" {
		return bad("model_transaction_policy.decoupled", "is true, and an ONNX model answers each request once")
	}
	if err != nil {
		return nil, err
	}
	cfg.Declared, err = declared(pb, cfg.Kind)
	return notes, err
}

// controlKinds are the values of the setting controls for those of the protocol.
var controlKinds = map[inferencepb.ModelSequenceBatching_Control_Kind]string{
	inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START:  "start",
	inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END:    "end",
	inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY:  "ready",
	inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID: "id",
}

// sequences applies sequence_batching: the bounds of sequences, the inputs filled by the server, and the state.
func sequences(kind string, own *setting.Table, d *inferencepb.ModelSequenceBatching, set,
	parameter func(field, name string, value any), note func(string, ...any)) error {
	const at = "sequence_batching"
	if d.IterativeSequence {
		return stream.Errorf(stream.Unsupported, at+".iterative_sequence", "is not supported")
	}
	if _, is := own.Find("stateful"); is {
		parameter(at, "stateful", true)
		if len(d.ControlInput)+len(d.State) > 0 {
			return stream.Errorf(stream.Unsupported, at, "with control_input or state is for ONNX models")
		}
	} else if kind != "onnx" {
		return stream.Errorf(stream.Unsupported, at,
			"is for ONNX models and kinds of workers with the parameter stateful")
	}
	if us := d.MaxSequenceIdleMicroseconds; us > 0 {
		set(at+".max_sequence_idle_microseconds", "sequences.idle", fmt.Sprintf("%dus", us))
	}
	us := d.GetDirect().GetMaxQueueDelayMicroseconds()
	if us = max(us, d.GetOldest().GetMaxQueueDelayMicroseconds()); us > 0 {
		set(at, "batching.kind", "soft")
		set(at+".max_queue_delay_microseconds", "batching.max_delay", fmt.Sprintf("%dus", us))
	}
	if d.GetDirect().GetMinimumSlotUtilization() > 0 {
		note(at + ".direct.minimum_slot_utilization (batches are as large as the waiting requests make them)")
	}
	if d.GetOldest().GetMaxCandidateSequences() > 0 {
		note(at + ".oldest.max_candidate_sequences (requests of all sequences share batches as they come)")
	}
	var controls, states []string
	for i, in := range d.ControlInput {
		for j, c := range in.Control {
			field := fmt.Sprintf("%s.control_input[%d].control[%d]", at, i, j)
			entry := in.Name + "=" + controlKinds[c.Kind]
			var values []any
			for _, v := range c.Int32FalseTrue {
				values = append(values, v)
			}
			for _, v := range c.Fp32FalseTrue {
				values = append(values, v)
			}
			for _, v := range c.BoolFalseTrue {
				values = append(values, map[bool]int{true: 1}[v])
			}
			switch {
			case c.Kind == inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID && len(values) > 0,
				c.Kind != inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID && len(values) != 2:
				return stream.Errorf(stream.InvalidArgument, field, "has %d values: want the two of "+
					"int32_false_true, fp32_false_true or bool_false_true, and none of CONTROL_SEQUENCE_CORRID",
					len(values))
			case len(values) == 2:
				entry += fmt.Sprintf(":%v,%v", values[0], values[1])
			}
			controls = append(controls, entry)
		}
	}
	for i, s := range d.State {
		if len(s.InitialState) > 1 || len(s.InitialState) == 1 && s.InitialState[0].GetDataFile() != "" {
			return stream.Errorf(stream.Unsupported, fmt.Sprintf("%s.state[%d].initial_state", at, i),
				"is only supported with zero_data")
		}
		states = append(states, s.InputName+"="+s.OutputName)
	}
	if len(controls) > 0 {
		parameter(at+".control_input", "controls", strings.Join(controls, "; "))
	}
	if len(states) > 0 {
		parameter(at+".state", "state", strings.Join(states, "; "))
	}
	return nil
}

// ensemble makes the model the graph of ensemble_scheduling.
func ensemble(cfg *workers.Config, pb *inferencepb.ModelConfig) error {
	if cfg.Kind != "graph" {
		return stream.Errorf(stream.InvalidArgument, "ensemble_scheduling", "needs platform: \"ensemble\"")
	}
	kind, _ := workers.Lookup(cfg.Kind)
	described, err := ensembleOf(pb)
	if err != nil {
		return err
	}
	params, err := kind.FromEnsemble(described)
	if err != nil {
		return err
	}
	cfg.Params = maps.Clone(cfg.Params)
	if cfg.Params == nil {
		cfg.Params = stream.Params{}
	}
	maps.Copy(cfg.Params, params)
	return nil
}

// queuePolicy sets the default queue policy.
func queuePolicy(p *inferencepb.ModelQueuePolicy, known func(path string) bool,
	set func(field, path string, value any)) (notes []string) {
	const at = "dynamic_batching.default_queue_policy"
	if p == nil {
		return nil
	}
	if !known("queue.max_size") {
		return []string{at}
	}
	if p.MaxQueueSize > 0 {
		set(at+".max_queue_size", "queue.max_size", int64(p.MaxQueueSize))
	}
	if us := p.DefaultTimeoutMicroseconds; us > 0 {
		set(at+".default_timeout_microseconds", "queue.timeout", fmt.Sprintf("%dus", us))
		set(at+".timeout_action", "queue.timeout_action", strings.ToLower(p.TimeoutAction.String()))
	}
	set(at+".allow_timeout_override", "queue.allow_timeout_override", p.AllowTimeoutOverride)
	return nil
}

func datatype(of inferencepb.DataType) stream.Datatype {
	if of == inferencepb.DataType_TYPE_STRING {
		return stream.Bytes
	}
	return stream.Datatype(strings.TrimPrefix(of.String(), "TYPE_"))
}

func dataTypeOf(d stream.Datatype) inferencepb.DataType {
	if d == stream.Bytes {
		return inferencepb.DataType_TYPE_STRING
	}
	return inferencepb.DataType(inferencepb.DataType_value["TYPE_"+string(d)])
}

// Config returns the configuration of a loaded model in the protocol's form.
func Config(g *workers.Group, versions []string) *inferencepb.ModelConfig {
	m, cfg := g.Model(), g.Config()
	pb := &inferencepb.ModelConfig{
		Name: m.Name, Platform: m.Platform, Backend: cfg.Kind, DefaultModelFilename: filename(cfg),
		InstanceGroup: []*inferencepb.ModelInstanceGroup{{Name: m.Name, Count: int32(g.Workers()),
			Kind: inferencepb.ModelInstanceGroup_KIND_CPU}},
		Parameters: map[string]*inferencepb.ModelParameter{},
	}
	switch cfg.Kind {
	case "graph":
		pb.Backend = ""
	case "onnx":
		pb.Backend = "onnxruntime"
		if cfg.Params["provider"] == "cuda" {
			pb.InstanceGroup[0].Kind = inferencepb.ModelInstanceGroup_KIND_GPU
		}
	}
	dims := func(s *stream.TensorSpec) (out []int64) {
		shape := m.Shape(s)
		if batched(m) && len(shape) > 0 {
			shape = shape[1:]
		}
		for _, d := range shape {
			out = append(out, int64(d))
		}
		return out
	}
	for i := range m.Inputs {
		s := &m.Inputs[i]
		d := find(cfg.Declared.Inputs, s.Name)
		pb.Input = append(pb.Input, &inferencepb.ModelInput{
			Name: s.Name, DataType: dataTypeOf(s.Datatype), Dims: dims(s), Reshape: reshapePB(d.Reshape),
			Optional: s.Optional,
			Format:   inferencepb.ModelInput_Format(inferencepb.ModelInput_Format_value[d.Format]),
		})
	}
	for i := range m.Outputs {
		s := &m.Outputs[i]
		d := find(cfg.Declared.Outputs, s.Name)
		pb.Output = append(pb.Output, &inferencepb.ModelOutput{
			Name: s.Name, DataType: dataTypeOf(s.Datatype), Dims: dims(s), Reshape: reshapePB(d.Reshape),
			LabelFilename: d.LabelFile,
		})
	}
	if batched(m) {
		pb.MaxBatchSize = int32(m.MaxBatch)
	}
	scheduling(pb, cfg, m)
	if cfg.Cache.Size > 0 {
		pb.ResponseCache = &inferencepb.ModelResponseCache{Enable: true}
	}
	if m.Decoupled {
		pb.ModelTransactionPolicy = &inferencepb.ModelTransactionPolicy{Decoupled: true}
	}
	pb.VersionPolicy = policyOf(cfg.Versions, versions)
	for name, value := range m.Params {
		pb.Parameters[name] = &inferencepb.ModelParameter{StringValue: fmt.Sprint(value)}
	}
	return pb
}

// batched reports whether requests have a free batch axis, not listed in dims.
func batched(m *stream.Model) bool { return m.Axis == stream.FreeAxis && !m.AcceptsAnyInput }

func filename(cfg workers.Config) string {
	if cfg.Folder == "" {
		return ""
	}
	return filepath.Base(cfg.Source)
}

// policyOf returns the version policy of a model with the served versions.
func policyOf(v workers.Versions, served []string) *inferencepb.ModelVersionPolicy {
	switch {
	case v.All:
		return &inferencepb.ModelVersionPolicy{PolicyChoice: &inferencepb.ModelVersionPolicy_All_{
			All: &inferencepb.ModelVersionPolicy_All{}}}
	case len(v.Specific) > 0:
		only := &inferencepb.ModelVersionPolicy_Specific{}
		for _, name := range served {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil {
				only.Versions = append(only.Versions, n)
			}
		}
		return &inferencepb.ModelVersionPolicy{PolicyChoice: &inferencepb.ModelVersionPolicy_Specific_{Specific: only}}
	}
	return &inferencepb.ModelVersionPolicy{PolicyChoice: &inferencepb.ModelVersionPolicy_Latest_{
		Latest: &inferencepb.ModelVersionPolicy_Latest{NumVersions: uint32(max(v.Latest, 1))}}}
}
