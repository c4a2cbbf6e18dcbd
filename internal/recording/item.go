package recording

import (
	"encoding/json"
	"fmt"
	"time"

	"millrace/internal/oip"
)

// Header describes the recording.
type Header struct {
	Model   string            `json:"model"`
	Version string            `json:"version,omitempty"` // of the model; "" = any
	Source  string            `json:"source,omitempty"`  // describes the source of the frames
	Codec   string            `json:"codec,omitempty"`   // of the stream; "" = recognised by content
	Options map[string]string `json:"options,omitempty"` // of the stream, by their names in a request
	Started time.Time         `json:"started"`           // start of the times At
}

// Frame is a frame as sent.
type Frame struct {
	Seq           uint64
	At            time.Duration   // time of sending, since the recording started
	CaptureUS     int64           // by the source's own clock; of a video its presentation time
	Codec         string          // "" = unknown
	Width, Height int             // pixels, upright; 0 = unknown
	Params        json.RawMessage // an object, nil = none
	Payload       []byte
}

type frameJSON struct {
	CaptureUS int64           `json:"capture_us"`
	Codec     string          `json:"codec,omitempty"`
	Width     int             `json:"width,omitempty"`
	Height    int             `json:"height,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
}

// Outcome is how a frame ended.
type Outcome string

// The outcomes.
const (
	Result Outcome = "result"
	Drop   Outcome = "drop"
	Failed Outcome = "error"
)

// Ending is the ending of a frame, or with Partial a part of the frame's result.
type Ending struct {
	Seq           uint64
	At            time.Duration // time of arrival, since the recording started
	Outcome       Outcome
	Partial       bool
	Reason        string // of a drop
	Code, Message string // of an error
	Timing        Timing
	Width, Height int // of the frame, by the server; 0 = not a picture
	Batch         int // rows of the frame's batch
	Model         string
	Outputs       []oip.Tensor
	Params        oip.Params
}

// Timing is the timing of a frame by the server, in microseconds.
type Timing struct {
	Received int64 `json:"received_us,omitempty"` // wall clock, since 1970
	Queue    int64 `json:"queue_us"`
	Prepare  int64 `json:"prepare_us"`
	Run      int64 `json:"run_us"`
	Total    int64 `json:"total_us"`
}

type endingJSON struct {
	Outcome Outcome `json:"outcome"`
	Partial bool    `json:"partial,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Code    string  `json:"code,omitempty"`
	Message string  `json:"message,omitempty"`
	Timing  Timing  `json:"timing"`
	Width   int     `json:"width,omitempty"`
	Height  int     `json:"height,omitempty"`
	Batch   int     `json:"batch,omitempty"`
	Outputs int     `json:"outputs_header,omitempty"` // bytes of the response's JSON
}

// encode returns the record of a frame and its data.
func (f *Frame) encode() (*record, [][]byte, error) {
	text, err := json.Marshal(frameJSON{f.CaptureUS, f.Codec, f.Width, f.Height, f.Params})
	if err != nil {
		return nil, nil, fmt.Errorf("recording: frame %d: its parameters are not JSON: %w", f.Seq, err)
	}
	return &record{kind: kindFrame, seq: f.Seq, at: int64(f.At), json: text}, [][]byte{f.Payload}, nil
}

func (r *record) frame() (*Frame, error) {
	var j frameJSON
	if err := json.Unmarshal(r.json, &j); err != nil {
		return nil, fmt.Errorf("recording: frame %d: %w", r.seq, err)
	}
	return &Frame{Seq: r.seq, At: time.Duration(r.at), CaptureUS: j.CaptureUS, Codec: j.Codec, Width: j.Width,
		Height: j.Height, Params: j.Params, Payload: r.data}, nil
}

// encode returns the record of an ending and its data.
func (e *Ending) encode() (*record, [][]byte, error) {
	j := endingJSON{e.Outcome, e.Partial, e.Reason, e.Code, e.Message, e.Timing, e.Width, e.Height, e.Batch, 0}
	var parts [][]byte
	if e.Outcome == Result {
		head, err := oip.AppendResponse(nil, &oip.InferResponse{ModelName: e.Model, Params: e.Params,
			Outputs: e.Outputs}, oip.AlwaysBinary)
		if err != nil {
			return nil, nil, fmt.Errorf("recording: the outputs of frame %d: %w", e.Seq, err)
		}
		j.Outputs = len(head)
		parts = oip.BinaryParts([][]byte{head}, e.Outputs, oip.AlwaysBinary)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, nil, fmt.Errorf("recording: the ending of frame %d: %w", e.Seq, err)
	}
	return &record{kind: kindEnding, seq: e.Seq, at: int64(e.At), json: text}, parts, nil
}

func (r *record) ending() (*Ending, error) {
	var j endingJSON
	if err := json.Unmarshal(r.json, &j); err != nil {
		return nil, fmt.Errorf("recording: the ending of frame %d: %w", r.seq, err)
	}
	e := &Ending{
		Seq: r.seq, At: time.Duration(r.at), Outcome: j.Outcome, Partial: j.Partial, Reason: j.Reason, Code: j.Code,
		Message: j.Message,
		Timing:  j.Timing, Width: j.Width, Height: j.Height, Batch: j.Batch,
	}
	switch j.Outcome {
	case Drop, Failed:
		return e, nil
	case Result:
	default:
		return nil, fmt.Errorf("recording: the ending of frame %d: %q is not an outcome", r.seq, j.Outcome)
	}
	if j.Outputs < 0 || j.Outputs > len(r.data) {
		return nil,
			fmt.Errorf("recording: the ending of frame %d: its outputs are shorter than their announced length", r.seq)
	}
	var m oip.InferResponse
	if err := oip.DecodeResponse(&m, r.data, j.Outputs, func(n int) []byte {
		return make([]byte, n)
	}, oip.Limits{}); err != nil {
		return nil, fmt.Errorf("recording: the outputs of frame %d: %w", r.seq, err)
	}
	e.Model, e.Outputs, e.Params = m.ModelName, m.Outputs, m.Params
	return e, nil
}
