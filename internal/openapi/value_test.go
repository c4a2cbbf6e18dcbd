package openapi

import (
	"encoding/json"
	"testing"
)

// Examples satisfy their schemas, even for a schema that refers to itself.
func TestExampleValue(t *testing.T) {
	var document map[string]any
	if err := json.Unmarshal([]byte(`{"components":{"schemas":{
		"Node":{"type":"object","properties":{"next":{"$ref":"#/components/schemas/Node"},"n":{"type":"integer"}},"required":["n"]},
		"Ring":{"type":"object","properties":{"next":{"$ref":"#/components/schemas/Ring"}},"required":["next"]},
		"Tree":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/Tree"},"b":{"$ref":"#/components/schemas/Tree"}},"required":["a","b"]},
		"a/b":{"const":7}, "Loop":{"$ref":"#/components/schemas/Loop"}}}}`), &document); err != nil {
		t.Fatal(err)
	}
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"numbers":{"type":"array","items":{"type":"number"}},` +
			`"name":{"type":"string","default":"x"}},"required":["numbers"]}`: `{"numbers":[1]}`,
		`{"$ref":"#/components/schemas/Node"}`:                                  `{"n":1}`,
		`{"$ref":"#/components/schemas/a~1b"}`:                                  `7`,
		`{"$ref":"#/components/schemas/Loop"}`:                                  `{}`,
		`{"$ref":"elsewhere.json"}`:                                             `{}`,
		`{"anyOf":[{"type":"null"},{"type":"boolean"}]}`:                        `false`,
		`{"type":["null","string"],"maxLength":2}`:                              `"te"`,
		`{"enum":["a","b"]}`:                                                    `"a"`,
		`{"type":"integer","minimum":5}`:                                        `5`,
		`{"type":"number","exclusiveMaximum":1}`:                                `0`,
		`{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}]}`: `["text",1]`,
		`{"type":"array","items":{"type":"integer"},"minItems":3}`:              `[1,1,1]`,
		`{"type":"string","format":"date-time"}`:                                `"2026-01-31T12:00:00Z"`,
		`{}`:                                                                    `{}`,
	} {
		var s map[string]any
		if err := json.Unmarshal([]byte(schema), &s); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(ExampleValue(document, s))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", schema, got, err, want)
		}
	}
	for _, name := range []string{"Ring", "Tree"} {
		schema := map[string]any{"$ref": "#/components/schemas/" + name}
		if text, err := json.Marshal(ExampleValue(document, schema)); err != nil || len(text) > 20_000 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
}
