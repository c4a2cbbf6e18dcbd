package config_test

import (
	"reflect"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/setting"
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
		{name: "a word", text: head + "    output: yolo\n", want: postprocess.Config{YOLO: &postprocess.YOLO{}}},
		{name: "an empty section", text: head + "    output: {yolo: {}}\n",
			want: postprocess.Config{YOLO: &postprocess.YOLO{}}},
		{name: "a section", text: head + "    output: {boxes: {scores: s, threshold: 0.3, background: true}}\n",
			want: postprocess.Config{Boxes: &postprocess.Boxes{Scores: "s", Threshold: 0.3, Background: true}}},
		{name: "labels", text: head + "    output: {labels: /a/b.txt, classify: {top_k: 3}}\n",
			want: postprocess.Config{Labels: "/a/b.txt", Classify: &postprocess.Classify{TopK: 3}}},
		{name: "two kinds", text: head + "    output: {boxes: {max: 3}, yolo: {max: 3}}\n",
			err: "models[0].output: has boxes and yolo"},
		{name: "another word", text: head + "    output: box\n", err: "f.yaml:4: models[0].output: is a section"},
		{name: "another kind", text: head + "    output: {box: {max: 3}}\n",
			err: "models[0].output.box.max: is not a setting"},
		{name: "another setting", text: head + "    output: {boxes: {treshold: 0.3}}\n",
			err: "models[0].output.boxes.treshold: is not a setting (did you mean threshold?)"},
		{name: "out of bounds", text: head + "    output: {boxes: {threshold: 3}}\n",
			err: "f.yaml:4: models[0].output.boxes.threshold: 3 is more than 1"},
		{name: "labels of nothing", text: head + "    output: {labels: x, embedding: {normalise: true}}\n",
			err: "models[0].output.labels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := config.Parse([]byte(c.text), "f.yaml")
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v\nwant %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _ := setting.Part[postprocess.Config](cfg.Models[0].Parts)
			setting.Fill(&c.want)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	m, err := config.ParseModel("a=identity,output=yolo,input=image")
	if got, _ := setting.Part[postprocess.Config](m.Parts); err != nil || got.YOLO == nil || m.Image == nil {
		t.Errorf("on the command line: %+v, %v", m, err)
	}
}
