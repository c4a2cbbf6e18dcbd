package testseed

import "testing"

func TestFirst(t *testing.T) {
	t.Setenv(Variable, "")
	if n := First(); n != 1 {
		t.Errorf("unset: %d", n)
	}
	t.Setenv(Variable, "20260131")
	if n := First(); n != 20260131 {
		t.Errorf("set: %d", n)
	}
	t.Setenv(Variable, "today")
	defer func() {
		if recover() == nil {
			t.Error("no panic at what is no number")
		}
	}()
	First()
}
