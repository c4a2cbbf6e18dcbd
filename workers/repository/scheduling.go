package repository

import (
	"math"
	"strconv"
	"strings"

	"millrace/batching"
	"millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/workers"
)

// scheduling describes in a configuration the scheduling of a loaded model's requests, for tools such as
// perf_analyzer: as an ensemble, in sequences, or in batches.
func scheduling(pb *inferencepb.ModelConfig, cfg workers.Config, m *stream.Model) {
	kind, _ := workers.Lookup(cfg.Kind)
	switch {
	case kind.Ensemble != nil:
		// The load of the model has decoded the parameters.
		if settings, err := kind.Decode(cfg.Params); err == nil {
			pb.SchedulingChoice = &inferencepb.ModelConfig_EnsembleScheduling{
				EnsembleScheduling: ensembling(kind.Ensemble(settings))}
		}
	case m.KeepsState():
		pb.SchedulingChoice = &inferencepb.ModelConfig_SequenceBatching{SequenceBatching: sequenceBatching(cfg, m)}
	case batched(m):
		d := &inferencepb.ModelDynamicBatching{MaxQueueDelayMicroseconds: queueDelay(cfg)}
		pb.SchedulingChoice = &inferencepb.ModelConfig_DynamicBatching{DynamicBatching: d}
	}
}

// queueDelay is how long the batcher soft waits for further requests, in microseconds.
func queueDelay(cfg workers.Config) uint64 {
	for _, p := range cfg.Parts {
		if soft, ok := p.(*batching.SoftSettings); ok && cfg.Batching.Kind == batching.Soft {
			return uint64(soft.MaxDelay.Microseconds())
		}
	}
	return 0
}

// sequenceBatching describes the sequences of a model, with the inputs filled by the server and the state. ONNX
// models have these settings as text, checked by the worker.
func sequenceBatching(cfg workers.Config, m *stream.Model) *inferencepb.ModelSequenceBatching {
	d := &inferencepb.ModelSequenceBatching{
		MaxSequenceIdleMicroseconds: uint64(m.Sequences.Idle.Microseconds()),
		StrategyChoice: &inferencepb.ModelSequenceBatching_Oldest{
			Oldest: &inferencepb.ModelSequenceBatching_StrategyOldest{
				MaxCandidateSequences:     int32(min(m.Sequences.Max, math.MaxInt32)),
				MaxQueueDelayMicroseconds: queueDelay(cfg),
			}},
	}
	for input, of := range entries(cfg.Params["controls"]) {
		what, values, _ := strings.Cut(of, ":")
		c := &inferencepb.ModelSequenceBatching_Control{}
		for k, name := range controlKinds {
			if name == strings.TrimSpace(what) {
				c.Kind = k
			}
		}
		if c.Kind != inferencepb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
			if values == "" {
				values = "0,1"
			}
			whole := true
			for v := range strings.SplitSeq(values, ",") {
				n, _ := strconv.ParseFloat(strings.TrimSpace(v), 32)
				c.Fp32FalseTrue = append(c.Fp32FalseTrue, float32(n))
				c.Int32FalseTrue = append(c.Int32FalseTrue, int32(n))
				whole = whole && float64(int32(n)) == n
			}
			if whole {
				c.Fp32FalseTrue = nil
			} else {
				c.Int32FalseTrue = nil
			}
		}
		d.ControlInput = append(d.ControlInput, &inferencepb.ModelSequenceBatching_ControlInput{Name: input,
			Control: []*inferencepb.ModelSequenceBatching_Control{c}})
	}
	for input, output := range entries(cfg.Params["state"]) {
		output, _, _ = strings.Cut(output, ":") // the initial value follows
		d.State = append(d.State, &inferencepb.ModelSequenceBatching_State{InputName: input, OutputName: output})
	}
	return d
}

// entries returns the parts of a setting such as "INPUT=OUTPUT; INPUT=OUTPUT".
func entries(value any) func(func(string, string) bool) {
	text, _ := value.(string)
	return func(yield func(string, string) bool) {
		for entry := range strings.SplitSeq(text, ";") {
			if input, of, ok := strings.Cut(strings.TrimSpace(entry), "="); ok &&
				!yield(strings.TrimSpace(input), strings.TrimSpace(of)) {
				return
			}
		}
	}
}
