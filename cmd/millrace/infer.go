package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/stream"
)

const inferExamples = `  millrace infer motion picture.jpg
  millrace infer cost --request request.json --json
  echo '{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}' | millrace infer cost --request -`

// maxInput bounds a picture or a request.
const maxInput = 256 << 20

func inferCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "infer MODEL [PICTURE]",
		Short:   "Run one inference",
		Long:    "Run one inference on a picture (JPEG, PNG, WebP), or with a request of the Open Inference Protocol in JSON; - is standard input.",
		Example: inferExamples,
		Args:    wrongUsage(cobra.RangeArgs(1, 2)),
	}
	host := remoteFlags(c)
	var (
		request, version string
		deadline         time.Duration
		asJSON           bool
	)
	f := c.Flags()
	f.StringVar(&request, "request", "", "a file with a request in JSON")
	f.StringVar(&version, "model-version", "", "version of the model (any)")
	f.DurationVar(&deadline, "deadline", 0, "time in which the request must be answered, such as 500ms (the model's)")
	f.BoolVar(&asJSON, "json", false, "the answer as JSON of the Open Inference Protocol")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (len(args) == 2) == (request != "") {
			return usagef("infer takes either a PICTURE or --request FILE")
		}
		if err := notZero(c.Flags(), "deadline"); err != nil {
			return err
		}
		if deadline < 0 {
			return usagef("--deadline: %v is negative", deadline)
		}
		req := client.Request{Version: version, Deadline: deadline}
		name := request
		if len(args) == 2 {
			name = args[1]
		}
		body, err := readInput(c.InOrStdin(), name)
		if err != nil && request != "" {
			return fmt.Errorf("--request: %w", err)
		}
		if err != nil {
			return err
		}
		if request == "" {
			req.Picture = body
		} else if err := readRequest(&req, body); err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		a, err := cl.Infer(c.Context(), args[0], req)
		if err != nil {
			return withName(err, func(field string) string {
				switch {
				case field == "version":
					return "--model-version"
				case field == "deadline_ms":
					return "--deadline"
				case strings.HasPrefix(field, "inputs") || strings.HasPrefix(field, "outputs"):
					return sent(name, request, field, body)
				}
				return field
			})
		}
		if asJSON {
			return writeAnswer(c.OutOrStdout(), a)
		}
		return table(c.OutOrStdout(), answerRows(a)...)
	}
	return c
}

// sent names what the server calls field: a part of the request, or the picture.
func sent(name, request, field string, body []byte) string {
	switch {
	case request != "":
		return "--request: " + field
	case codec.Sniff(body) == codec.Unknown:
		return name + " (neither JPEG, PNG nor WebP)"
	}
	return name
}

func readInput(stdin io.Reader, name string) ([]byte, error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	body, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, err
	}
	switch {
	case len(body) == 0:
		return nil, fmt.Errorf("%s is empty", name)
	case len(body) > maxInput:
		return nil, fmt.Errorf("%s is larger than 256MiB", name)
	}
	return body, nil
}

func readRequest(req *client.Request, body []byte) error {
	var m oip.InferRequest
	if err := oip.DecodeRequest(&m, body, -1, func(n int) []byte { return make([]byte, n) }, oip.Limits{}); err != nil {
		return fmt.Errorf("--request: %w", err)
	}
	req.ID, req.Params = m.ID, stream.Params{}
	for _, p := range m.Params {
		req.Params[p.Key] = p.Any()
	}
	for i, t := range m.Inputs {
		if len(t.Params) > 0 {
			return fmt.Errorf("--request: inputs[%d].parameters: are not sent by this command: leave them out", i)
		}
		req.Inputs = append(req.Inputs, stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype), Shape: t.Shape, Data: t.Data})
	}
	for i, o := range m.Outputs {
		if len(o.Params) > 0 {
			return fmt.Errorf("--request: outputs[%d].parameters: are not sent by this command: leave them out", i)
		}
		req.Outputs = append(req.Outputs, o.Name)
	}
	return nil
}

// inferReply is an answer as --json writes it: a reply of the Open Inference Protocol.
type inferReply struct {
	Model   string        `json:"model_name"`
	Version string        `json:"model_version,omitempty"`
	ID      string        `json:"id,omitempty"`
	Params  stream.Params `json:"parameters,omitempty"`
	Outputs []tensorJSON  `json:"outputs"`
}

type tensorJSON struct {
	Name     string          `json:"name"`
	Datatype stream.Datatype `json:"datatype"`
	Shape    []int           `json:"shape"`
	Data     json.RawMessage `json:"data,omitempty"` // omitted when a value has no JSON notation
}

func writeAnswer(w io.Writer, a *client.Answer) error {
	out := inferReply{Model: a.Model, Version: a.Version, ID: a.ID, Params: a.Params, Outputs: []tensorJSON{}}
	if a.Width > 0 {
		if out.Params == nil {
			out.Params = stream.Params{}
		}
		out.Params["width"], out.Params["height"] = a.Width, a.Height
	}
	for i := range a.Outputs {
		t := &a.Outputs[i]
		data, _ := numbers(t)
		out.Outputs = append(out.Outputs, tensorJSON{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Data: data})
	}
	return writeJSON(w, out)
}

// numbers returns the data of a tensor as a flat JSON array.
func numbers(t *stream.Tensor) (json.RawMessage, error) {
	m := oip.InferResponse{Outputs: []oip.Tensor{{Name: "x", Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}}}
	text, err := oip.AppendResponse(nil, &m, oip.Never)
	if err != nil {
		return nil, err
	}
	var r struct {
		Outputs []struct{ Data json.RawMessage }
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return r.Outputs[0].Data, nil
}

func answerRows(a *client.Answer) [][]string {
	rows := [][]string{{"model", strings.TrimSuffix(a.Model+" version "+a.Version, " version ")}}
	if a.Width > 0 {
		rows = append(rows, []string{"picture", fmt.Sprintf("%dx%d", a.Width, a.Height)})
	}
	rows = append(rows, []string{"time", fmt.Sprintf("%s (queue %s, prepare %s, run %s)", short(a.Timing.Total), short(a.Timing.Queue), short(a.Timing.Prepare), short(a.Timing.Run))})
	keys := make([]string, 0, len(a.Params))
	for k := range a.Params {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		rows = append(rows, []string{k, fmt.Sprint(a.Params[k])})
	}
	const most = 72
	for i := range a.Outputs {
		t := &a.Outputs[i]
		text, err := numbers(t)
		if err != nil {
			text = fmt.Appendf(nil, "%d bytes", len(t.Data))
		}
		if len(text) > most {
			text = append(text[:most:most], "..."...)
		}
		rows = append(rows, []string{t.Name, fmt.Sprintf("%s %v  %s", t.Datatype, t.Shape, text)})
	}
	return rows
}
