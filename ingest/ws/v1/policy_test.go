package v1

import (
	"fmt"
	"testing"

	"millrace/internal/setting"
	"millrace/internal/wire"
	"millrace/stream"
)

// TestPolicyBounds checks that messages have the same bounds as the policy's settings.
func TestPolicyBounds(t *testing.T) {
	var p stream.Policy
	table := setting.TableOf("", &p)
	for name, c := range map[string]struct {
		greatest string // of the setting
		beyond   string // a little more, in a message
	}{
		"max_age_ms":  {fmt.Sprint(wire.MaxMS), fmt.Sprint(wire.MaxMS + 1)},
		"deadline_ms": {fmt.Sprint(wire.MaxMS), fmt.Sprint(wire.MaxMS + 1)},
		"window":      {fmt.Sprint(wire.MaxWindow), fmt.Sprint(wire.MaxWindow + 1)},
		"max_fps":     {"1000000", "1000001"},
	} {
		f, ok := table.Find(name)
		if !ok {
			t.Fatalf("%s is not a setting", name)
		}
		open := func(value string) error {
			_, err := wire.ParseControl([]byte(`{"type":"open","sid":1,"policy":{"`+name+`":`+value+`}}`), wire.Client)
			return err
		}
		if err := f.Set(c.greatest); err != nil || len(table.Check()) != 0 || open(c.greatest) != nil {
			t.Errorf("%s of %s: %v, %v, %v", name, c.greatest, err, table.Check(), open(c.greatest))
		}
		if err := f.Set(c.beyond); err == nil && len(table.Check()) == 0 || open(c.beyond) == nil {
			t.Errorf("%s of %s: %v, %v", name, c.beyond, err, open(c.beyond))
		}
		p = stream.Policy{}
	}
}
