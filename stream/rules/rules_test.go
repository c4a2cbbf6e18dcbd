package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace/stream/coded"
)

const yard = `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1],"classes":["person","2"]}],"zones":[` +
	`{"name":"yard","polygon":[[0,0.5],[1,0.5],[1,1],[0,1]],"dwell":"30s","count":{"over":3,"for":"10s"}}]}`

func TestRulesAreWrittenAsRead(t *testing.T) {
	r, err := Parse([]byte(yard))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("%s: %+v, %v", text, again, err)
	}
	if *r.Zones[0].Count.Over != 3 || len(r.Zones[0].Polygon) != 4 || r.Zones[0].Polygon[2][1] != 1 {
		t.Errorf("%+v", r.Zones[0])
	}
}

// line and zone return rules with one line or one zone.
func line(members string) string { return `{"lines":[{"name":"a",` + members + `}]}` }

func zone(members string) string { return `{"zones":[{"name":"a",` + members + `}]}` }

// ground returns rules with a ground and a line.
func ground(members string) string {
	return `{"ground":{` + members + `},` + line(`"from":[0.5,0],"to":[0.5,1]`)[1:]
}

// when returns rules with a condition, a line l and a zone z.
func when(members string) string {
	return `{"lines":[{"name":"l","from":[0.5,0],"to":[0.5,1]}],"zones":[{"name":"z","polygon":[[0,0],[1,0],[1,1]]}],` +
		`"when":[{` + members + `}]}`
}

func TestWrongRulesAreNamed(t *testing.T) {
	const square = `"polygon":[[0,0],[1,0],[1,1],[0,1]]`
	many := make([]string, 0, 10000)
	for i := range cap(many) {
		many = append(many, fmt.Sprintf(`{"name":"n%d","from":[0,0],"to":[1,1]}`, i))
	}
	for _, test := range []struct{ text, field, says string }{
		{line(`"from":[0,0]`), "lines[0].to", "is missing"},
		{line(`"from":[0,0],"to":[0,0]`), "lines[0].to", "same point"},
		{line(`"from":[0,0],"to":[0,0.00000001]`), "lines[0].to", "same point"},
		{line(`"from":[0,0],"to":[0,1]`), "lines[0].to", "move the line inwards"},
		{line(`"from":[0.75,1],"to":[0.25,1]`), "lines[0].to", "move the line inwards"},
		{`{"width":640,"height":480,` + line(`"from":[640,1],"to":[640,480]`)[1:], "lines[0].to", "inwards"},
		{line(`"from":[0,0],"to":[0,1,2]`), "lines[0].to", "3 numbers"},
		{line(`"from":[0,0],"to":[100,200]`), "lines[0].to", "set width and height"},
		{line(`"from":[0,0],"to":[-0.1,0]`), "lines[0].to", "outside of the picture"},
		{line(`"from":[0,0],"to":["a",0]`), "lines[0].to", "not a number"},
		{`{"width":640,"height":480,` + line(`"from":[0,0],"to":[640,481]`)[1:], "lines[0].to", "640 x 480"},
		{`{"width":640,` + line(`"from":[0,0],"to":[1,1]`)[1:], "width", "without height"},
		{`{"lines":[{"from":[0,0],"to":[1,1]}]}`, "lines[0].name", "is missing"},
		{`{"lines":[{"name":"a/b","from":[0,0],"to":[1,1]}]}`, "lines[0].name", "not a name"},
		{`{"lines":[{"name":"a","from":[0,0],"to":[1,1]},{"name":"a","from":[0,0],"to":[1,1]}]}`, "lines[1].name",
			"lines[0]"},
		{zone(`"polygon":[[0,0],[1,1]]`), "zones[0].polygon", "2 points"},
		{zone(`"polygon":[[0,0],[1,1],[1,0],[0,1]]`), "zones[0].polygon", "after point 0 and the edge after point 2"},
		{zone(`"polygon":[[0,0],[1,1],[0.5,0.5]]`), "zones[0].polygon", "touches itself"},
		{zone(`"polygon":[[0,0],[1,0],[1,1],[0,0]]`), "zones[0].polygon[3]", "repeats the first"},
		{zone(`"polygon":[[0,0],[1,0],[1,0],[0,1]]`), "zones[0].polygon[2]", "repeats the point before"},
		{zone(`"polygon":[[0,0],[1,0],[1,2]]`), "zones[0].polygon[2]", "outside"},
		{zone(`"polygon":[[0,0],[1],[1,1]]`), "zones[0].polygon[1]", "1 numbers"},
		{zone(`"polygon":[[0,0],1,[1,1]]`), "zones[0].polygon", "not a list of numbers"},
		{zone(`"polygon":[[0,0],["1",0],[1,1]]`), "zones[0].polygon", "not a list of numbers"},
		{zone(square + `,"count":{"for":"1s"}`), "zones[0].count.over", "is missing"},
		{zone(square + `,"count":{"over":-1}`), "zones[0].count.over", "between"},
		{zone(square + `,"dwell":"-1s"`), "zones[0].dwell", "negative"},
		{zone(square + `,"score":2`), "zones[0].score", "between"},
		{zone(square + `,"anchor":"feet"`), "zones[0].anchor", "bottom_center"},
		{zone(square + `,"classes":["a","a"]`), "zones[0].classes", "twice"},
		{zone(square + `,"colour":1`), "zones[0].colour", "not a setting"},
		{zone(square + `,"speed":{"over":3}`), "zones[0].speed", "needs ground"},
		{zone(square + `,"speed":{"for":"1s"}`), "zones[0].speed.over", "is missing"},
		{zone(square + `,"speed":{"over":3,"for":"1ms"}`), "zones[0].speed.for", "100ms"},
		{ground(`"points":[[0,0],[1,0],[1,1]],"metres":[[0,0],[1,0],[1,1],[0,1]]`), "ground.points", "3 points"},
		{ground(`"points":[[0,0],[1,0],[1,1],[0,1]]`), "ground.metres", "0 points"},
		{ground(`"points":[[0,0],[1,0],[1,1],[0,2]],"metres":[[0,0],[1,0],[1,1],[0,1]]`), "ground.points[3]", "outside"},
		{ground(`"points":[[0,0],[1,0],[1,1],[0,1]],"metres":[[0,0],[1,0],[1],[0,1]]`), "ground.metres[2]", "1 numbers"},
		{ground(`"points":[[0,0],[1,0],[1,1],[0,1]],"metres":[[0,0],[1e7,0],[1,1],[0,1]]`), "ground.metres[1]", "away"},
		{ground(`"points":[[0,0],[1,0],[1,1],[0,1]],"metres":[[0,0],[1,1],[2,2],[0,1]]`), "ground.points", "on a line"},
		{when(`"if":"now(z) > 1"`), "when[0].name", "is missing"},
		{when(`"name":"z","if":"now(z) > 1"`), "when[0].name", "zones[0]"},
		{when(`"name":"w"`), "when[0].if", "is missing"},
		{when(`"name":"w","if":"now(z) > 1 or now(z) < 0"`), "when[0].if", "not a comparison"},
		{when(`"name":"w","if":"now(z) > 1 and"`), "when[0].if", "not a comparison"},
		{when(`"name":"w","if":"near(z) > 1"`), "when[0].if", "now, in, out"},
		{when(`"name":"w","if":"now(l) > 1"`), "when[0].if", "no zone"},
		{when(`"name":"w","if":"in(z) > 1","within":"1s"`), "when[0].if", "no line"},
		{when(`"name":"w","if":"in(l) > 1"`), "when[0].within", "in(l)"},
		{when(`"name":"w","if":"in(l) > 600","within":"1s"`), "when[0].if", "from 0 to 511"},
		{when(`"name":"w","if":"now(z) == 0.5"`), "when[0].if", "whole number"},
		{when(`"name":"w","if":"now(z) > 1","within":"1s"`), "when[0].within", "leave it out"},
		{zone(square + `,"speed":{"over":0}`), "zones[0].speed.over", "between 0.1"},
		{when(`"name":"w","if":"now(z) > 1` + strings.Repeat(" and now(z) > 1", 8) + `"`), "when[0].if", "9 comparisons"},
		{`{"when":[{"name":"w","if":"now(z) > 1"}]}`, "when[0].if", "no zone"},
		{`{"margin":0.2}`, "lines", "are empty"},
		{`{"lines":[` + strings.Join(many, ",") + `]}`, "lines", "10000 rules"},
	} {
		_, err := Parse([]byte(test.text))
		if err == nil {
			t.Errorf("%.100s: no error", test.text)
			continue
		}
		if e, ok := err.(*coded.Error); !ok || e.Field != test.field || !strings.Contains(e.Msg, test.says) {
			t.Errorf("%.100s: %v", test.text, err)
		}
	}
}

// FuzzParse reads any text: rules are valid, or the error has a text, and valid rules are written as read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(yard))
	f.Add([]byte(zone(`"polygon":[[0,0],[1,1],[1,0],[0,1]]`)))
	f.Add([]byte(ground(`"points":[[0,0],[1,0],[1,1],[0,1]],"metres":[[0,0],[3,0],[3,9],[0,9]]`)))
	f.Add([]byte(when(`"name":"w","if":"now(z) > 1 and in(l) == 0","within":"10s","for":"1m"`)))
	f.Add([]byte(`{"width":640,"height":480,` + line(`"from":[0,0],"to":[640,480]`)[1:]))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			_ = err.Error()
			return
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if rewritten, err := json.Marshal(again); err != nil || string(written) != string(rewritten) {
			t.Fatalf("%s became %s, %v", written, rewritten, err)
		}
	})
}

// A rule may name the labels and the numbers of the classes of one of the models.
func TestClassesOfModels(t *testing.T) {
	coco := []string{"person", "bicycle", "car"}
	for _, c := range []struct {
		class string
		known [][]string
		want  string // in the error; "" = none
	}{
		{"person", [][]string{coco}, ""},
		{"2", [][]string{coco}, ""},
		{"3", [][]string{coco}, `lines[0].classes: "3" is no class of the model: want labels or numbers of the model's 3`},
		{"persn", [][]string{coco}, `"persn" is no class of the model (did you mean person?)`},
		{"dog", [][]string{coco, {"dog"}}, ""},
		{"dog", [][]string{coco, nil}, ""},
		{"7", [][]string{{}}, ""},
		{"person", [][]string{{}}, "set output.labels of the model"},
	} {
		r, err := Parse([]byte(line(fmt.Sprintf(`"from":[0.5,0],"to":[0.5,1],"classes":[%q]`, c.class))))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.CheckClasses(c.known...); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q of %v: %v, want %q", c.class, c.known, err, c.want)
		}
	}
	r, err := Parse([]byte(zone(`"polygon":[[0,0],[1,0],[1,1]],"classes":["person","cat"]`)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CheckClasses(coco); err == nil || !strings.HasPrefix(err.Error(), `zones[0].classes: "cat"`) {
		t.Error(err)
	}
}
