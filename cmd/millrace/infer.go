package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/coded"
)

const inferExamples = `  millrace infer motion picture.jpg
  millrace infer spotter monday/ friday.jpg --overlay drawn/
  millrace infer spotter pictures/ --json
  millrace infer blur picture.jpg --save picture=blurred.png
  millrace infer cost --request request.json --json
  echo '{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}' | millrace infer cost --request -`

// maxInput bounds a picture or a request.
const maxInput = 256 << 20

// inference is the input of the command infer and the form of the answers.
type inference struct {
	model, request string
	files          []string // pictures; with request, only the request's file
	sent           client.Request
	overlay        overlays
	saves          savedOutputs
	out            answerWriter
}

func inferCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "infer MODEL [PICTURE|FOLDER...]",
		Short: "Run inferences on pictures, or a request in JSON",
		Long: `Run an inference on each picture (JPEG, PNG, WebP), or run a request of the Open Inference Protocol in JSON; - is
standard input. Of a folder, the files named *.jpg, *.jpeg, *.png and *.webp are sent. The boxes of an answer are
printed as a table, in pixels of the picture. When a picture fails, the next pictures are still sent, and the exit
status is 1.

A model with further inputs besides the picture gets all inputs in a request: millrace examples MODEL prints a request.

--save writes an output to a file, and the answer says what was written: the one element of BYTES as it is; pixels, UINT8 [height, width, 3] or [height,
width, 1], as a picture when FILE ends in .png or .jpg; all numbers when FILE ends in .npy. --overlay is refused when the
answer has nothing that can be drawn. --save and --overlay replace files that exist. With --json each answer has all elements. Those of BYTES are texts. When one element is not
UTF-8, all elements are in base64, and the output has "parameters":{"content_type":"base64"}.`,
		Example:           inferExamples,
		Args:              wrongUsage(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeArgs(completeModels, completePictures),
	}
	host := remoteFlags(c)
	var (
		in         inference
		deadlineMS int
	)
	f := c.Flags()
	f.StringVar(&in.request, "request", "", "a file with a request in JSON")
	f.StringVar(&in.sent.Version, "version", "", "version of the model (any)")
	f.IntVar(&deadlineMS, "deadline-ms", 0, "time in which a request must be answered (the model's)")
	f.StringVar(&in.overlay.to, "overlay", "",
		"write the picture with its boxes to this file (.png or .jpg), or each picture to this folder")
	f.StringArrayVar(&in.saves.flags, "save", nil,
		"write an output to a file, as OUTPUT=FILE; may be given several times")
	f.BoolVar(&in.out.asJSON, "json", false, "each answer as JSON of the Open Inference Protocol, one on each line")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (len(args) > 1) == (in.request != "") {
			return usagef("infer takes either pictures or --request FILE")
		}
		if err := notZero(f, "deadline-ms"); err != nil {
			return err
		}
		if deadlineMS < 0 {
			return usagef("--deadline-ms: %d is negative", deadlineMS)
		}
		if in.request != "" {
			if err := without(f, "with --request", "overlay"); err != nil {
				return err
			}
		}
		in.sent.Deadline = milliseconds(deadlineMS)
		in.model, in.out.w = args[0], c.OutOrStdout()
		var err error
		if in.files, in.out.many, err = pictures(args[1:]); err != nil {
			return err
		}
		if in.request != "" {
			in.files = []string{in.request}
		}
		if err := in.overlay.open(in.files, in.out.many); err != nil {
			return err
		}
		if err := in.saves.open(in.files, in.out.many); err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		if err := waitLoaded(c.Context(), cl, in.model, c.ErrOrStderr()); err != nil {
			return err
		}
		return in.run(c.Context(), cl, c.InOrStdin(), c.ErrOrStderr())
	}
	return c
}

// run sends the files in order. run returns the error of a single file. When one of several files fails, run writes
// the error and goes on.
func (in *inference) run(ctx context.Context, cl *client.Client, stdin io.Reader, stderr io.Writer) error {
	failed := 0
	for _, file := range in.files {
		err := in.one(ctx, cl, stdin, stderr, file)
		switch {
		case err == nil:
			continue
		case !in.out.many:
			return err
		case ctx.Err() != nil, concernsAll(err):
			return err
		}
		failed++
		if err := in.out.failure(stderr, file, err); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d pictures failed", failed, len(in.files))
	}
	return nil
}

// concernsAll reports whether an error would occur with every picture.
func concernsAll(err error) bool {
	switch coded.CodeOf(err) {
	case coded.NotFound, coded.Unavailable, coded.Draining, coded.Unauthenticated, coded.PermissionDenied:
		return !errors.Is(err, fs.ErrNotExist)
	}
	return false
}

// one runs an inference and writes the answer.
func (in *inference) one(ctx context.Context, cl *client.Client, stdin io.Reader, stderr io.Writer, file string) error {
	body, err := readInput(stdin, file)
	if err != nil && in.request != "" {
		return fmt.Errorf("--request: %w", err)
	}
	if err != nil {
		return err
	}
	req := in.sent
	if in.request == "" {
		req.Picture = body
	} else if err := readRequest(&req, body); err != nil {
		return err
	}
	a, err := cl.Infer(ctx, in.model, req)
	if err != nil {
		return in.named(file, suggestModel(ctx, cl, in.model, err))
	}
	if err := in.overlay.write(file, body, a); err != nil {
		return err
	}
	written, err := in.saves.write(a)
	if err != nil {
		return err
	}
	if in.request != "" {
		file = ""
	}
	if err := in.out.answer(file, a, in.saves.outputs()); err != nil {
		return err
	}
	w := in.out.w
	if in.out.asJSON {
		w = stderr
	}
	_, err = io.WriteString(w, written)
	return err
}

// missing returns the error for a picture sent to a model that needs another input, with advice; nil for other
// errors.
func (in *inference) missing(err error) error {
	var e *stream.Error
	if in.request != "" || !errors.As(err, &e) || !strings.HasPrefix(e.Msg, "inputs.") ||
		!strings.HasSuffix(e.Msg, ": is missing") {
		return nil
	}
	return &stream.Error{Code: e.Code, Err: err, Msg: fmt.Sprintf("%s: model %s needs this input besides the picture. "+
		"Send both in one request, as the calls of millrace examples %s do, here by --request FILE", e.Msg, in.model,
		in.model)}
}

// named returns an error in terms of the command, with the flag or file in place of the server's field.
func (in *inference) named(file string, err error) error {
	if missing := in.missing(err); missing != nil {
		return missing
	}
	code := coded.CodeOf(err)
	return withName(err, func(field string) string {
		switch {
		case field == "version":
			return "--version"
		case field == "deadline_ms":
			return "--deadline-ms"
		case in.request != "" && (strings.HasPrefix(field, "inputs") || strings.HasPrefix(field, "outputs")):
			return "--request: " + field
		// the error is about the picture
		case in.request == "" && (code == coded.InvalidArgument || code == coded.Unsupported || code == coded.TooLarge):
			return file
		}
		return field
	})
}

// pictures returns the files in args, with the pictures of a folder in place of the folder. many = answers are
// written under the names of their files.
func pictures(args []string) (files []string, many bool, err error) {
	many = len(args) > 1
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil || !info.IsDir() {
			files = append(files, arg) // reading reports an error later
			continue
		}
		many = true
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, false, err
		}
		n := len(files)
		for _, e := range entries {
			if file := filepath.Join(arg, e.Name()); isPictureName(file) && !e.IsDir() {
				files = append(files, file)
			}
		}
		if len(files) == n {
			return nil, false, fmt.Errorf("%s: has no file whose name ends in .jpg, .jpeg, .png or .webp", arg)
		}
	}
	return files, many, nil
}

// pictureEndings are the endings of names of pictures.
var pictureEndings = []string{"jpg", "jpeg", "png", "webp"}

func isPictureName(file string) bool {
	ending := strings.ToLower(strings.TrimPrefix(filepath.Ext(file), "."))
	for _, e := range pictureEndings {
		if ending == e {
			return true
		}
	}
	return false
}

func readInput(stdin io.Reader, name string) ([]byte, error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil && strings.HasPrefix(name, "{") {
			return nil, errors.New("PICTURE: is JSON, not the name of a file: a request in JSON is read from a file " +
				"by --request, or from standard input by --request -")
		}
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
		req.Params[p.Key] = p.Value()
	}
	for i, t := range m.Inputs {
		if len(t.Params) > 0 {
			return fmt.Errorf("--request: inputs[%d].parameters: are not sent by this command: leave them out", i)
		}
		req.Inputs = append(req.Inputs, stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype),
			Shape: t.Shape, Data: t.Data})
	}
	for i, o := range m.Outputs {
		if len(o.Params) > 0 {
			return fmt.Errorf("--request: outputs[%d].parameters: are not sent by this command: leave them out", i)
		}
		req.Outputs = append(req.Outputs, o.Name)
	}
	return nil
}
