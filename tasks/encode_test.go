package tasks

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"millrace/internal/testseed"
)

// TestEncode: records and answers are the text of encoding/json, whichever fields are set.
func TestEncode(t *testing.T) {
	seed := testseed.First()
	r := rand.New(rand.NewPCG(seed, 0))
	texts := []string{"", "find", `a "quoted" \ text`, "<b>&", "größe\n\x00", "\xff", "~ "}
	bytes := [][]byte{nil, {}, {0}, []byte("contents")}
	for range 2000 {
		var task Task
		fill(t, r, texts, reflect.ValueOf(&task).Elem())
		c := contents{bytes[r.IntN(len(bytes))], bytes[r.IntN(len(bytes))]}
		for _, of := range []struct {
			got  []byte
			want any
		}{{task.AppendJSON(nil), task}, {encode(task, c), record{task, c}}} {
			want, err := json.Marshal(of.want)
			if err != nil {
				t.Fatal(err)
			}
			if string(of.got) != string(want) {
				t.Fatalf("seed %d\n%s, want\n%s", seed, of.got, want)
			}
		}
	}
}

// fill sets half of the fields of v to random values.
func fill(t *testing.T, r *rand.Rand, texts []string, v reflect.Value) {
	t.Helper()
	if r.IntN(2) == 0 && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int64N(1 << r.IntN(62)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, r, texts, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			at := time.Unix(r.Int64N(1<<36), r.Int64N(1e9)*r.Int64N(2)).UTC()
			if r.IntN(4) == 0 {
				at = at.In(time.FixedZone("", 3600))
			}
			if r.IntN(2) == 0 {
				v.Set(reflect.ValueOf(at))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, r, texts, v.Field(i))
			}
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("no values for %v", v.Type())
	}
}
