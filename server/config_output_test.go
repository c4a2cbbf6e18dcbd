package server_test

import (
	"strings"
	"testing"

	"millrace/server"
	"millrace/workers/results/postprocess"
)

func TestOutput(t *testing.T) {
	const head = "models:\n  - name: a\n    source: identity\n"
	for _, c := range []struct {
		name, text string
		want       postprocess.Config
		err        string
	}{
		{name: "none", text: head},
		{name: "a word", text: head + "    output: yolo\n", want: postprocess.Config{Kind: "yolo"}},
		{name: "an empty section", text: head + "    output: {yolo: {}}\n", want: postprocess.Config{Kind: "yolo"}},
		{name: "a section", text: head + "    output: {boxes: {scores: s, threshold: 0.3, background: true}}\n",
			want: postprocess.Config{Kind: "boxes", Scores: "s", Threshold: 0.3, Background: true}},
		{name: "labels", text: head + "    output: {labels: /a/b.txt, classify: {top_k: 3}}\n", want: postprocess.Config{Kind: "classify", TopK: 3, Labels: "/a/b.txt"}},
		{name: "two kinds", text: head + "    output: {boxes: {max: 3}, yolo: {max: 3}}\n", err: "models[0].output: names boxes and yolo"},
		{name: "another word", text: head + "    output: box\n", err: "f.yaml:4: models[0].output: is a section"},
		{name: "another kind", text: head + "    output: {box: {max: 3}}\n", err: "models[0].output.box.max: is no setting"},
		{name: "another setting", text: head + "    output: {boxes: {treshold: 0.3}}\n", err: "models[0].output.boxes.treshold: is no setting (did you mean threshold?)"},
		{name: "out of bounds", text: head + "    output: {boxes: {threshold: 3}}\n", err: "f.yaml:4: models[0].output.boxes.threshold: 3 is not between 0 and 1"},
		{name: "labels of nothing", text: head + "    output: {labels: x, embedding: {normalise: true}}\n", err: "models[0].output.labels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := server.Parse([]byte(c.text), "f.yaml")
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v\nwant %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Models[0].Output != c.want {
				t.Errorf("got %+v, want %+v", cfg.Models[0].Output, c.want)
			}
		})
	}
	m, err := server.ParseModel("a=identity,output=yolo,input=image")
	if err != nil || m.Output.Kind != "yolo" || m.Input.Image == nil {
		t.Errorf("on the command line: %+v, %v", m, err)
	}
}
