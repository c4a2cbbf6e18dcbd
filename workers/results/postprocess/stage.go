package postprocess

import (
	"millrace/stream"
	"millrace/workers/results"
)

// Stage makes results of a worker's outputs, in the section output.
var Stage = results.NewKind("output", newStage)

// On says whether the outputs are made into results.
func (c Config) On() bool { return c.Kind() != "" }

func newStage(c Config, env *results.Env) (results.Stage, error) {
	d, err := New(c, env.Worker)
	if err != nil {
		return results.Stage{}, err
	}
	env.Model.Outputs = d.Specs()
	return results.Stage{After: func(r *stream.Request, in results.Outputs) ([]stream.Tensor, error) {
		return d.Decode(in.Tensors, in.Row, r.Rows, Place{X: r.MapX, Y: r.MapY, Width: r.SentWidth, Height: r.SentHeight})
	}}, nil
}
