package setting_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/setting"
	"millrace/stream/coded"
)

type level int

func (l *level) UnmarshalText(text []byte) error {
	switch string(text) {
	case "low":
		*l = 0
	case "high":
		*l = 1
	default:
		return fmt.Errorf("%q is no level: want low or high", text)
	}
	return nil
}

func (l level) MarshalText() ([]byte, error) { return []byte([]string{"low", "high"}[l]), nil }

type inner struct {
	Size  int64  `yaml:"size" unit:"bytes" default:"1KiB" min:"1B" max:"1MiB" help:"bytes"`
	Fruit string `yaml:"fruit" words:"apple pear" help:"a fruit"`
}

type optional struct {
	Ratio float64 `yaml:"ratio" above:"0" below:"1" help:"a ratio"`
}

type section struct {
	Own  int `yaml:"own" unset:"two" help:"says itself what leaving it out means"`
	None int `yaml:"none" help:"does not"`
}

type shared struct {
	Hosts []string `yaml:"hosts" help:"names"`
}

type all struct {
	Name   string `json:"name,omitempty" help:"its name"`
	Count  int    `yaml:"count" default:"3" max:"1000" request:"64" short:"n number" help:"how many"`
	Zero   int    `yaml:"zero" min:"0" max:"5" help:"0 is a value"`
	Switch bool   `yaml:"switch" request:"any" help:"on or off"`
	Warm   *bool  `yaml:"warm" default:"true" help:"on unless it is said"`
	Late   time.Duration
	Id     string        `yaml:"id" form:"name" help:"a name"`
	Wait   time.Duration `yaml:"wait" default:"1m" min:"1ms" max:"1h" request:"10m" help:"a span"`
	Age    time.Duration `yaml:"age_ms" unit:"ms" help:"milliseconds"`
	Level  level         `yaml:"level" help:"a level"`
	Scale  [3]float32    `yaml:"scale" help:"one or three numbers"`
	Labels string        `yaml:"labels" path:"file" help:"a file"`
	Inner  inner         `yaml:"inner"`
	Maybe  *optional     `yaml:"maybe" request:"any" unset:"none"`
	Other  section       `yaml:"other" unset_all:"that of inner"`
	Shared shared        `yaml:",inline"`
	Models []inner       `yaml:"models"`

	Corners [][]float64 `yaml:"corners" help:"points"`
}

// Each way to write a value gives the same field; a wrong value leaves the field alone.
func TestSet(t *testing.T) {
	for _, c := range []struct {
		path   string
		values []string
		want   func(*all) any
		is     any
		text   string
	}{
		{"name", []string{"x"}, func(a *all) any { return a.Name }, "x", "x"},
		{"count", []string{"7"}, func(a *all) any { return a.Count }, 7, "7"},
		{"zero", []string{"0"}, func(a *all) any { return a.Zero }, 0, ""},
		{"switch", []string{"true"}, func(a *all) any { return a.Switch }, true, "true"},
		{"warm", []string{"false"}, func(a *all) any { return *a.Warm }, false, "false"},
		{"wait", []string{"90s"}, func(a *all) any { return a.Wait }, 90 * time.Second, "1m30s"},
		{"wait", []string{"1h"}, func(a *all) any { return a.Wait }, time.Hour, "1h"},
		{"age_ms", []string{"250"}, func(a *all) any { return a.Age }, 250 * time.Millisecond, "250"},
		{"level", []string{"high"}, func(a *all) any { return a.Level }, level(1), "high"},
		{"scale", []string{"2"}, func(a *all) any { return a.Scale }, [3]float32{2, 2, 2}, "[2,2,2]"},
		{"scale", []string{"1", "0", "0.5"}, func(a *all) any { return a.Scale }, [3]float32{1, 0, 0.5}, "[1,0,0.5]"},
		{"inner.size", []string{"64KiB"}, func(a *all) any { return a.Inner.Size }, int64(64 << 10), "64KiB"},
		{"inner.fruit", []string{"pear"}, func(a *all) any { return a.Inner.Fruit }, "pear", "pear"},
		{"maybe.ratio", []string{"0.5"}, func(a *all) any { return a.Maybe.Ratio }, 0.5, "0.5"},
		{"hosts", []string{"a", "b"}, func(a *all) any { return a.Shared.Hosts }, []string{"a", "b"}, "a,b"},
		{"corners", []string{"1,2.5", "0,0"}, func(a *all) any { return a.Corners }, [][]float64{{1, 2.5}, {0, 0}},
			"[[1,2.5],[0,0]]"},
	} {
		var a all
		table := setting.TableOf("", &a)
		if err := table.Set(c.path, c.values...); err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		f, _ := table.Find(c.path)
		if got := c.want(&a); !reflect.DeepEqual(got, c.is) || f.String() != c.text {
			t.Errorf("%s = %v, shown as %q; want %v, %q", c.path, got, f.String(), c.is, c.text)
		}
	}
}

func TestSetRefuses(t *testing.T) {
	for _, c := range []struct {
		path, value, want string
	}{
		{"count", "many", `count: "many" is not a whole number`},
		{"count", "1.5", "is not a whole number"},
		{"count", "0x10", "is not a whole number"},
		{"count", "", "is empty"},
		{"count", "0", "0 is not allowed: leave it out for its default"},
		{"count", "1001", "1001 is more than 1000"},
		{"zero", "6", "6 is not between 0 and 5"},
		{"zero", "-1", "-1 is not between 0 and 5"},
		{"switch", "yes", `"yes" is not true or false`},
		{"wait", "10", `"10" is not a duration`},
		{"wait", "-1s", "is negative"},
		{"wait", "2h", "2h is not between 1ms and 1h"},
		{"wait", "0s", "is not allowed"},
		{"age_ms", "-1", "is negative"},
		{"age_ms", "5ms", "is not a whole number"},
		{"age_ms", "9999999999999999", "is not a whole number"},
		{"level", "top", `level: "top" is no level`},
		{"scale", "x", "is not a number"},
		{"inner.size", "lots", "is not a size"},
		{"inner.size", "2MiB", "2MiB is not between 1B and 1MiB"},
		{"inner.fruit", "plum", `inner.fruit: "plum" is unknown: want apple or pear`},
		{"maybe.ratio", "1", "1 is not less than 1"},
		{"maybe.ratio", "NaN", "is not a number"},
		{"conut", "1", "conut: is not a setting (did you mean count?)"},
		{"inner.colour", "1", "inner.colour: is not a setting: there are fruit, size"},
		{"id", "../x", "is not a name: want 1 to 128 letters"},
		{"id", "", "is not a name"},
		{"late", "1s", "late: is not a setting"},
	} {
		a, before := all{}, all{}
		err := setting.TableOf("", &a).Set(c.path, c.value)
		var e *coded.Error
		if !errors.As(err, &e) || e.Field != c.path || e.Code != coded.InvalidArgument ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: got %v, want %s", c.path, c.value, err, c.want)
		}
		if !reflect.DeepEqual(a, before) {
			t.Errorf("%s=%s: was refused and changed %+v", c.path, c.value, a)
		}
	}
	if err := setting.TableOf("", &all{}).Set("count", "1", "2"); err == nil ||
		!strings.Contains(err.Error(), "is a list") {
		t.Errorf("two values for one: %v", err)
	}
	for _, wrong := range []string{"x", "1,", ""} {
		a := all{}
		err := setting.TableOf("", &a).Set("corners", "1,2", wrong)
		if err == nil || !strings.HasPrefix(err.Error(), "corners[1]: ") || a.Corners != nil {
			t.Errorf("the point %q: %v, %v", wrong, a.Corners, err)
		}
	}
	if err := setting.TableOf("", &all{}).Set("scale", "1", "2"); err == nil ||
		!strings.Contains(err.Error(), "has 2 numbers") {
		t.Errorf("two numbers for three: %v", err)
	}
}

// The unset text of a setting comes from its own tag or from its section's tag.
func TestUnset(t *testing.T) {
	of := func(of any, path string) string {
		f, _ := setting.TableOf("", of).Find(path)
		return f.Unset
	}
	var plain struct {
		Other section `yaml:"other" unset:"one"`
	}
	for path, want := range map[string][2]string{"other.own": {"that of inner", "two"},
		"other.none": {"that of inner", "one"}} {
		if got := [2]string{of(&all{}, path), of(&plain, path)}; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestFill(t *testing.T) {
	no := false
	a := all{Warm: &no, Wait: time.Second}
	setting.Fill(&a)
	if a.Count != 3 || *a.Warm || a.Wait != time.Second || a.Inner.Size != 1<<10 || a.Maybe != nil {
		t.Errorf("got %+v", a)
	}
	var b all
	setting.Fill(&b)
	if b.Warm == nil || !*b.Warm || b.Wait != time.Minute {
		t.Errorf("got %+v", b)
	}
}

// Values set by a program have the same bounds, all checked at once.
func TestCheck(t *testing.T) {
	a := all{Count: 5000, Inner: inner{Fruit: "plum"}, Maybe: &optional{Ratio: 2}}
	errs := setting.TableOf("top", &a).Check()
	if len(errs) != 3 || !strings.HasPrefix(errs[0].Error(), "top.count: 5000") ||
		!strings.HasPrefix(errs[1].Error(), "top.inner.fruit") ||
		!strings.HasPrefix(errs[2].Error(), "top.maybe.ratio") {
		t.Errorf("got %q", errs)
	}
	setting.Fill(&a.Inner)
	if errs := setting.TableOf("", &all{}).Check(); len(errs) != 0 {
		t.Errorf("zero fields: %q", errs)
	}
}

// Filled fills the copy and leaves the original alone.
func TestFilled(t *testing.T) {
	a := &all{Wait: time.Second}
	b := setting.Filled(a)
	if b.Count != 3 || b.Wait != time.Second || a.Count != 0 || a.Warm != nil {
		t.Errorf("%+v of %+v", b, a)
	}
}

// The tags of a section apply to its settings.
func TestInherit(t *testing.T) {
	table := setting.TableOf("", &all{})
	if f, _ := table.Find("maybe.ratio"); f.Request != "any" || f.Unset != "none" {
		t.Errorf("got %q, %q", f.Request, f.Unset)
	}
	if f, _ := table.Find("inner.size"); f.Request != "" || f.Unset != "" {
		t.Errorf("got %q, %q", f.Request, f.Unset)
	}
}

func TestChoose(t *testing.T) {
	var a all
	table := setting.TableOf("", &a)
	if !table.Choose("maybe") || a.Maybe == nil || table.Choose("inner") || table.Choose("nothing") {
		t.Errorf("got %+v", a)
	}
	if got := table.Below("inner"); !slices.Equal(got, []string{"fruit", "size"}) || table.IsSection("count") ||
		!table.IsSection("maybe") {
		t.Errorf("got %q", got)
	}
}

// Errors about requests name forbidden settings and the largest allowed values.
func TestSetRequest(t *testing.T) {
	a := all{Wait: 30 * time.Minute}
	table := setting.TableOf("", &a)
	for _, c := range []struct {
		name string
		v    any
		want string // "" = taken
	}{
		{"count", int64(64), ""},
		{"number", 5.0, ""},
		{"n", int64(65), "count: 65 is more than the 64 that a request may ask for"},
		{"count", "5", "is not a whole number"},
		{"count", true, "is not a whole number"},
		{"count", 1.5, "is not a whole number"},
		{"switch", true, ""},
		{"switch", "true", ""},
		{"switch", int64(1), "is not true or false"},
		{"wait", "30m", ""},
		{"wait", "31m", "is more than the 30m"},
		{"wait", int64(5), "is not a duration"},
		{"name", "x", "name: can only be set in the server's configuration"},
		{"count", map[string]any{}, "is not a plain value"},
	} {
		f, ok := table.FindRequest(c.name)
		if !ok {
			t.Fatalf("%s is not found", c.name)
		}
		before := f.String()
		err := f.SetRequest(c.v)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: got %v, want %s", c.name, c.v, err, c.want)
		}
		if err != nil && f.String() != before {
			t.Errorf("%s = %v: refused, and %s became %s", c.name, c.v, before, f.String())
		}
	}
	if _, ok := table.FindRequest("nothing"); ok {
		t.Error("a name of nothing was found")
	}
}

// Every set setting goes to JSON and back.
func TestJSON(t *testing.T) {
	a := all{Name: "x", Count: 5, Age: time.Second, Wait: time.Minute, Level: 1, Scale: [3]float32{1, 2, 3},
		Inner: inner{Size: 2 << 10}, Maybe: &optional{Ratio: 0.25}, Shared: shared{Hosts: []string{"h"}},
		Corners: [][]float64{{1, 2.5}, {0, 0}}}
	text, err := json.Marshal(setting.TableOf("", &a).Object())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"age_ms":1000,"corners":[[1,2.5],[0,0]],"count":5,"hosts":["h"],"inner":{"size":2048},"level":"high","maybe":{"ratio":0.25},` +
		`"name":"x","scale":[1,2,3],"wait":"1m"}`; string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var b all
	if err := setting.TableOf("", &b).SetJSON(text, setting.Field.SetAny); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("came back as %+v, %v", b, err)
	}
	for text, want := range map[string]string{
		`[]`:                "is not a JSON object",
		`{} {}`:             "more text follows it",
		`{"inner": 3}`:      "inner: is a section: it has fruit, size",
		`{"inner.size":3}`:  "inner.size: is not a setting",
		`{"count":{"a":1}}`: "count: map[a:1] is not a plain value",
		`{"cuont":1,"inner":{"siez":1}}`: "cuont: is not a setting (did you mean count?)\ninner.siez: is not a " +
			"setting (did you mean size?)",
		`{"count":"1"}`:          "is not a whole number",
		`{"name":1}`:             "is not a string",
		`{"corners":[1]}`:        "corners: has 1, which is not a list of numbers",
		`{"corners":[["1"]]}`:    "corners: has [1], which is not a list of numbers",
		`{"corners":[[1],[{}]]}`: "corners: has [map[]], which is not a list of numbers",
	} {
		if err := setting.TableOf("", &b).SetJSON([]byte(text), setting.Field.SetAny); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

type part struct {
	Speed int `yaml:"speed" default:"4" max:"9" request:"6" help:"of the part"`
}

type host struct {
	Name  string `yaml:"name" help:"of the host"`
	Parts []any
}

func init() { setting.Register[part]("test", "engine") }

// A request that exceeds the limit of a part not yet set leaves the part unset.
func TestSetRequestOfAPart(t *testing.T) {
	var h host
	table := setting.TableOf("", &h)
	table.AddParts("test", &h.Parts)
	f, _ := table.Find("engine.speed")
	if err := f.SetRequest(int64(7)); err == nil || !strings.Contains(err.Error(), "more than the 6 that") ||
		h.Parts != nil {
		t.Errorf("%v, %v", err, h.Parts)
	}
	if err := f.SetRequest(int64(6)); err != nil || len(h.Parts) != 1 {
		t.Errorf("%v, %v", err, h.Parts)
	}
}

// Registered settings appear beside the settings of their scope; setting a value makes the struct.
func TestRegister(t *testing.T) {
	var h host
	table := setting.TableOf("", &h)
	table.AddParts("test", &h.Parts)
	var paths []string
	for _, f := range table.Fields() {
		paths = append(paths, f.Path)
	}
	if !slices.Equal(paths, []string{"name", "engine.speed"}) {
		t.Fatalf("got %q", paths)
	}
	if p, set := setting.Part[part](h.Parts); set || p.Speed != 4 || h.Parts != nil {
		t.Errorf("unset: %+v, %v", p, set)
	}
	if err := table.Set("engine.speed", "10"); err == nil || h.Parts != nil {
		t.Errorf("a bad value: %v, %v", err, h.Parts)
	}
	if err := table.Set("engine.speed", "6"); err != nil {
		t.Fatal(err)
	}
	if p, set := setting.Part[part](h.Parts); !set || p.Speed != 6 || len(h.Parts) != 1 {
		t.Errorf("set: %+v, %v", p, set)
	}
	registers := func(what string, register func(), want ...string) {
		defer func() {
			text := fmt.Sprint(recover())
			for _, word := range want {
				if !strings.Contains(text, word) {
					t.Errorf("%s: %s, want %s", what, text, word)
				}
			}
		}()
		register()
	}
	registers("the same settings twice", func() { setting.Register[part]("test", "") }, "part is registered twice")
	registers("one key twice", func() {
		setting.Register[otherPart]("test", "engine")
	}, "engine.speed", "setting_test.part", "setting_test.otherPart", "begin one of them with")
}

type otherPart struct {
	Fast int `yaml:"speed" help:"of another part"`
}

// Wrong tags are found at the first use of the struct.
func TestBadTags(t *testing.T) {
	for name, ptr := range map[string]any{
		"no name": &struct {
			A int `help:"x"`
		}{},
		"type": &struct {
			A map[string]int `yaml:"a" help:"x"`
		}{},
		"default": &struct {
			A int `yaml:"a" default:"x" help:"x"`
		}{},
		"default size": &struct {
			A int `yaml:"a" default:"5" max:"3" help:"x"`
		}{},
		"bound": &struct {
			A int `yaml:"a" max:"x" help:"x"`
		}{},
		"request": &struct {
			A int `yaml:"a" request:"x" help:"x"`
		}{},
		"default word": &struct {
			A string `yaml:"a" words:"b c" default:"d" help:"x"`
		}{},
		"example": &struct {
			A int `yaml:"a" max:"3" example:"5" help:"x"`
		}{},
		"true or not": &struct {
			A bool `yaml:"a" default:"true" help:"x"`
		}{},
		"zero or not": &struct {
			A int `yaml:"a" min:"0" default:"3" help:"x"`
		}{},
		"twice": &struct {
			A, B int `yaml:"a" help:"x"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: taken", name)
				}
			}()
			setting.TableOf("", ptr)
		}()
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "1KiB": 1 << 10, "8MiB": 8 << 20, "1GiB": 1 << 30, "1.5KiB": 1536, "2 kb": 2000, "3TB": 3e12,
		"1tib": 1 << 40, "5B": 5,
	} {
		if got, err := setting.ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5", "1e3", "0x10", "1 apple", "9999999999GiB", "1.1B", "NaN",
		"inf", "1_0"} {
		if got, err := setting.ParseSize(text); err == nil {
			t.Errorf("%q: %d; want an error", text, got)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"", "8MiB", "1.5KB", "9223372036854775807", "TiB", "1e9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := setting.ParseSize(s)
		if err != nil {
			return
		}
		if again, err := setting.ParseSize(setting.FormatSize(n)); n < 0 || err != nil || again != n {
			t.Errorf("%q is %d, shown as %s, which is %d, %v", s, n, setting.FormatSize(n), again, err)
		}
	})
}

// An accepted text is shown as a text with the same meaning.
func FuzzSet(f *testing.F) {
	var paths []string
	for _, field := range setting.TableOf("", &all{}).Fields() {
		paths = append(paths, field.Path)
	}
	for i, s := range []string{"1", "5ms", "true", "high", "64KiB", "1e9", "-0", "apple"} {
		f.Add(uint8(i), s)
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		path := paths[int(which)%len(paths)]
		var a, b all
		if setting.TableOf("", &a).Set(path, text) != nil {
			return
		}
		field, _ := setting.TableOf("", &a).Find(path)
		if field.IsList() || strings.HasPrefix(field.String(), "[") || field.String() == "" {
			return
		}
		if err := setting.TableOf("", &b).Set(path, field.String()); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s=%q is shown as %q, which is %+v, %v", path, text, field.String(), b, err)
		}
	})
}

var systems = []string{"one"}

type system string

func (system) Words() []string { return systems }

// The words of a type are those that packages have registered when the table is made, after an earlier table too.
func TestWordsAreRegisteredLater(t *testing.T) {
	type host struct {
		System system `yaml:"system" help:"a system"`
	}
	first := setting.TableOf("", &host{})
	systems = append(systems, "two")
	second := setting.TableOf("", &host{})
	if err := first.Set("system", "two"); err == nil {
		t.Error("the first table has a word that was registered later")
	}
	if err := second.Set("system", "two"); err != nil {
		t.Error(err)
	}
}
