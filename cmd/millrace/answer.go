package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/client"
	"millrace/client/play"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
	"millrace/stream/coded"
)

// answerWriter writes the answers of inferences.
type answerWriter struct {
	w      io.Writer
	asJSON bool
	many   bool // each answer under the name of its file
	wrote  bool
}

// inferReply is an answer in the form of --json: a reply of the Open Inference Protocol, and the file of the picture.
type inferReply struct {
	File    string        `json:"file,omitempty"`
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
	Params   stream.Params   `json:"parameters,omitempty"`
	Data     json.RawMessage `json:"data"`
}

// inferFailure is the JSON for one failed picture of several.
type inferFailure struct {
	File  string `json:"file"`
	Error struct {
		Code    coded.Code `json:"code"`
		Message string     `json:"message"`
	} `json:"error"`
}

// failure writes the error of one of several pictures.
func (o *answerWriter) failure(stderr io.Writer, file string, err error) error {
	if !o.asJSON {
		_, err := fmt.Fprintf(stderr, "millrace: %s\n", withFile(file, errorText(err)))
		return err
	}
	f := inferFailure{File: file}
	f.Error.Code, f.Error.Message = coded.CodeOf(err), errorText(err)
	return json.NewEncoder(o.w).Encode(f)
}

// withFile puts the name of the file in front of text unless text names the file.
func withFile(file, text string) string {
	if strings.Contains(text, file) {
		return text
	}
	return file + ": " + text
}

// answer writes an answer; file is "" for a request's answer. saved are the saved outputs.
func (o *answerWriter) answer(file string, a *client.Answer, saved []string) error {
	if o.asJSON {
		return o.json(file, a)
	}
	if o.many {
		space := ""
		if o.wrote {
			space = "\n"
		}
		if _, err := fmt.Fprintf(o.w, "%s%s\n", space, file); err != nil {
			return err
		}
	}
	o.wrote = true
	result, shown := boxesOf(a)
	if err := table(o.w, answerRows(a, shown, saved, !o.many)...); err != nil || shown == nil {
		return err
	}
	if len(result.Boxes) > 0 {
		err := table(o.w, boxRows(result.Boxes)...)
		return errors.Join(err, o.leftOut(a, len(result.Boxes)))
	}
	if _, err := fmt.Fprintln(o.w, "no boxes"); err != nil {
		return err
	}
	return o.leftOut(a, 0)
}

// leftOut writes how many boxes of an answer are not shown: a box with NaN or infinity cannot be drawn.
func (o *answerWriter) leftOut(a *client.Answer, shown int) error {
	for i := range a.Outputs {
		t := &a.Outputs[i]
		if n := len(t.Data) / 16; t.Name == "boxes" && n > shown { // 4 coordinates in FP32
			_, err := fmt.Fprintf(o.w, "not shown: %d of %d boxes, which have NaN or infinity, or are more than can "+
				"be drawn (--json has all)\n", n-shown, n)
			return err
		}
	}
	return nil
}

func (o *answerWriter) json(file string, a *client.Answer) error {
	out := inferReply{File: file, Model: a.Model, Version: a.Version, ID: a.ID, Params: a.Params,
		Outputs: []tensorJSON{}}
	if a.Width > 0 {
		if out.Params == nil {
			out.Params = stream.Params{}
		}
		out.Params["width"], out.Params["height"] = a.Width, a.Height
	}
	for i := range a.Outputs {
		t := &a.Outputs[i]
		data, params, err := elementsJSON(t)
		if err != nil {
			return fmt.Errorf("output %s cannot be written in JSON: %w", t.Name, err)
		}
		out.Outputs = append(out.Outputs, tensorJSON{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape,
			Params: params, Data: data})
	}
	return json.NewEncoder(o.w).Encode(out)
}

// boxesOf returns the boxes of an answer, and the names of the outputs with the boxes; without boxes, no names.
func boxesOf(a *client.Answer) (overlay.Result, []string) {
	r, err := overlay.ReadResult(tensorsOf(a))
	if err != nil || !slices.ContainsFunc(a.Outputs, func(t stream.Tensor) bool { return t.Name == "boxes" }) {
		return overlay.Result{}, nil
	}
	return r, []string{"boxes", "scores", "classes", "labels"}
}

// tensorsOf returns the outputs of an answer as message tensors.
func tensorsOf(a *client.Answer) []oip.Tensor {
	out := make([]oip.Tensor, len(a.Outputs))
	for i, t := range a.Outputs {
		out[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return out
}

// boxRows returns boxes as rows of a table, with a heading.
func boxRows(boxes []overlay.Box) [][]string {
	rows := [][]string{{"LABEL", "SCORE", "X1", "Y1", "X2", "Y2"}}
	for _, b := range boxes {
		label, score := b.Label, "-"
		switch {
		case label != "":
		case b.Number >= 0:
			label = strconv.Itoa(b.Number)
		default:
			label = "-"
		}
		if !math.IsNaN(b.Score) {
			score = strconv.FormatFloat(b.Score, 'f', 3, 64)
		}
		row := []string{label, score}
		for _, v := range []float64{b.X1, b.Y1, b.X2, b.Y2} {
			row = append(row, strconv.FormatFloat(v, 'f', 1, 64))
		}
		rows = append(rows, row)
	}
	return rows
}

// notFinite matches the words for numbers that JSON lacks.
var notFinite = regexp.MustCompile(`NaN|-?Infinity`)

// elementsJSON returns the elements of a tensor as a flat JSON array, with parameters that describe the encoding:
// elements of BYTES are texts, or all in base64 if an element is not UTF-8.
func elementsJSON(t *stream.Tensor) (data json.RawMessage, params stream.Params, err error) {
	switch t.Datatype {
	case stream.Float16, stream.BFloat:
		t = toFloat32(t)
	case stream.Bytes:
		list := elements(t)
		if slices.ContainsFunc(list, func(e []byte) bool { return !utf8.Valid(e) }) {
			data, err = json.Marshal(list) // []byte in base64
			return data, stream.Params{"content_type": "base64"}, err
		}
		texts := make([]string, len(list))
		for i, e := range list {
			texts[i] = string(e)
		}
		data, err = plainJSON(texts)
		return data, nil, err
	}
	data, err = numbers(t)
	return data, nil, err
}

// plainJSON returns a value as JSON without escaping <, > and &.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// numbers returns the data of a tensor of numbers as a flat JSON array, with "NaN",
// "Infinity" and "-Infinity" in quotes.
func numbers(t *stream.Tensor) (json.RawMessage, error) {
	m := oip.InferResponse{Outputs: []oip.Tensor{{Name: "x", Datatype: string(t.Datatype), Shape: t.Shape,
		Data: t.Data}}, NotFinite: true}
	text, err := oip.AppendResponse(nil, &m, oip.NeverBinary)
	if err != nil {
		return nil, err
	}
	if t.Datatype == stream.Float32 || t.Datatype == stream.Float64 {
		text = notFinite.ReplaceAll(text, []byte(`"$0"`))
	}
	var r struct {
		Outputs []struct{ Data json.RawMessage }
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return r.Outputs[0].Data, nil
}

// answerRows describes an answer as rows of a table, without the outputs in shown. With save, the rows of unsaved
// outputs name the flag for saving.
func answerRows(a *client.Answer, shown, saved []string, save bool) [][]string {
	rows := [][]string{{"model", strings.TrimSuffix(a.Model+" version "+a.Version, " version ")}}
	if a.Width > 0 {
		rows = append(rows, []string{"picture", fmt.Sprintf("%dx%d", a.Width, a.Height)})
	}
	rows = append(rows, []string{"time", fmt.Sprintf("%s (queue %s, prepare %s, run %s)", short(a.Timing.Total),
		short(a.Timing.Queue), short(a.Timing.Prepare), short(a.Timing.Run))})
	keys := make([]string, 0, len(a.Params))
	for k := range a.Params {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		rows = append(rows, []string{k, fmt.Sprint(a.Params[k])})
	}
	for i := range a.Outputs {
		t := &a.Outputs[i]
		if slices.Contains(shown, t.Name) {
			continue
		}
		rows = append(rows, []string{t.Name, fmt.Sprintf("%s %v  %s", t.Datatype, t.Shape,
			summaryOf(t, save && !slices.Contains(saved, t.Name)))})
	}
	return rows
}

// summaryOf describes the elements of a tensor in a line. With save, a shortened line names the flag for saving the
// tensor.
func summaryOf(t *stream.Tensor, save bool) string {
	const most = 72
	flag := func(ending string) string {
		if !save {
			return ""
		}
		return fmt.Sprintf(": --save %s=out.%s", t.Name, ending)
	}
	if t.Datatype == stream.Bytes {
		list := elements(t)
		var line bytes.Buffer
		// in one line, without escaping quotes again
		if len(list) == 1 && len(list[0]) > most && json.Compact(&line, list[0]) == nil {
			if line.Len() <= most {
				return line.String()
			}
			return strings.ToValidUTF8(line.String()[:most], "") + "..." + flag("json")
		}
		if len(list) == 1 && !utf8.Valid(list[0]) {
			if kind := codec.Sniff(list[0]); kind != codec.Unknown {
				return fmt.Sprintf("a picture of type %s, %d bytes%s", kind, len(list[0]), flag(endingOf(kind)))
			}
			return fmt.Sprintf("%d bytes%s", len(list[0]), flag("bin"))
		}
	} else if len(t.Data) > most && pictureOf(t) != nil {
		return "pixels" + flag("png")
	}
	text, params, err := elementsJSON(t)
	if err != nil || params != nil {
		return fmt.Sprintf("%d bytes", len(t.Data))
	}
	if len(text) > most {
		text = append(text[:most:most], "..."...)
	}
	return string(text)
}

// overlays are pictures with boxes drawn over them.
type overlays struct {
	to    string            // a file or a folder, as it was given; "" = none
	files map[string]string // output files, by the file of the picture
}

// open chooses the files to write, and makes their folder.
func (o *overlays) open(files []string, many bool) error {
	if o.to == "" {
		return nil
	}
	info, err := os.Stat(o.to)
	isDir := err == nil && info.IsDir()
	if o.files = map[string]string{}; !many && !isDir && !strings.HasSuffix(o.to, string(filepath.Separator)) {
		if overlay.CheckPicture(o.to) != nil {
			return usagef("--overlay: %s does not end in .png or .jpg, and is not a folder", o.to)
		}
		o.files[files[0]] = o.to
		return o.check()
	}
	if !isDir && overlay.CheckPicture(o.to) == nil {
		return usagef("--overlay: %s is a file: give a folder for several pictures", o.to)
	}
	from := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if file == "-" {
			name = "stdin"
		}
		if overlay.CheckPicture(name) != nil {
			name += ".png"
		}
		to := filepath.Join(o.to, name)
		if first, twice := from[to]; twice {
			return usagef("--overlay: %s and %s have one name: give them apart", first, file)
		}
		from[to], o.files[file] = file, to
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.to, 0o777); err != nil {
		return fmt.Errorf("--overlay: %w", err)
	}
	return nil
}

// check refuses to overwrite one of the pictures.
func (o *overlays) check() error {
	for file, to := range o.files {
		a, errA := os.Stat(file)
		b, errB := os.Stat(to)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return usagef("--overlay: would replace the picture %s: give another name or folder", file)
		}
	}
	return nil
}

// write draws the answer over a picture.
func (o *overlays) write(file string, picture []byte, a *client.Answer) error {
	to := o.files[file]
	if to == "" {
		return nil
	}
	result, err := overlay.ReadResult(tensorsOf(a))
	if err != nil {
		return fmt.Errorf("--overlay: %w", err)
	}
	drawn := func(t stream.Tensor) bool { return slices.Contains([]string{"boxes", "keypoints", "mask"}, t.Name) }
	if result.Empty() && !slices.ContainsFunc(a.Outputs, drawn) {
		var names []string
		for _, t := range a.Outputs {
			names = append(names, t.Name)
		}
		return fmt.Errorf("--overlay: the answer of model %s has no boxes, keypoints, mask or classes to draw: it "+
			"has %s. --save writes an output to a file", a.Model, strings.Join(names, ", "))
	}
	img, err := play.Paint(picture, result)
	if err != nil {
		return fmt.Errorf("--overlay: %w", err)
	}
	if err := overlay.WritePicture(to, img); err != nil {
		return fmt.Errorf("--overlay: %w", err)
	}
	return nil
}
