package frames

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// shapeOf returns the shape of a decoded value, measured by the first elements.
func shapeOf(v any) (shape []int) {
	for {
		list, ok := v.([]any)
		if !ok {
			return shape
		}
		if shape = append(shape, len(list)); len(list) == 0 {
			return shape
		}
		v = list[0]
	}
}

// The first elements determine the shape of a value, whatever the other elements and the strings are.
func TestShapeOfValues(t *testing.T) {
	texts := []string{`[]`, ` [ ] `, `[1]`, `[1,2,3]`, `[[1,2],[3]]`, `[[],[1]]`, `[[[]],2]`,
		`["a,b]","[","\\\"",","]`, `[["\\\\"],["]"]]`, `[{"a":[1,2]},2]`, `[1,[2,3],4]`, `[null,true]`,
		"[\n[ 1 ,2\t],[ 3,4]\r]"}
	r := rand.New(rand.NewPCG(1, 2))
	var make func(depth int) any
	make = func(depth int) any {
		if depth == 0 || r.IntN(4) == 0 {
			return []any{1.5, "x", "],[", true, map[string]any{"k": []any{1, 2}}}[r.IntN(5)]
		}
		list := []any{}
		for range r.IntN(4) {
			list = append(list, make(depth-1))
		}
		return list
	}
	for range 2000 {
		text, _ := json.Marshal([]any{make(5), make(2)})
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		shape, data, err := values([]byte(text))
		if err != nil || !slices.Equal(shape, shapeOf(v)) || string(data) != strings.TrimSpace(text) {
			t.Errorf("%s: %v %s, %v", text, shape, data, err)
		}
	}
}

// No level of a nested value is copied for the next level.
func TestDeepValues(t *testing.T) {
	text := []byte(strings.Repeat("[", maxDims) + strings.Repeat("1,", 10_000) + "1" + strings.Repeat("]", maxDims))
	var shape []int
	allocs := testing.AllocsPerRun(3, func() { shape, _, _ = values(text) })
	if len(shape) != maxDims || shape[maxDims-1] != 10_001 || allocs > 10 {
		t.Errorf("%v allocations, %v", allocs, shape)
	}
	if _, _, err := values([]byte(fmt.Sprintf("[%s]", text))); err == nil ||
		!strings.Contains(err.Error(), "64 dimensions") {
		t.Error(err)
	}
}
