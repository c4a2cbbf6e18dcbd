package ingest_test

import (
	"testing"

	"millrace/ingest"
	"millrace/stream"
	"millrace/workers"
)

// TestInferStreamVersions: requests without a version are spread by the versions' weights; a requested version is
// kept.
func TestInferStreamVersions(t *testing.T) {
	d := newBackend(t)
	split := workers.Versions{All: true, Weights: []string{"1=1", "2=1"}}
	err := d.Define(workers.Config{Name: "m", Kind: "plain", Version: "1", Versions: split},
		workers.Config{Name: "m", Kind: "plain", Version: "2", Versions: split})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(t.Context(), "m", workers.Load{}); err != nil {
		t.Fatal(err)
	}
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	got := map[string]int{}
	ask := func(version string) {
		r, err := c.InferStream(t.Context(), d.owner(), "m", version, d.frame("x"), func(*stream.Result) error {
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got[r.Model.Version]++
		r.Release()
	}
	for range 4 {
		ask("")
	}
	if got["1"] != 2 || got["2"] != 2 {
		t.Errorf("%v", got)
	}
	ask("1")
	if got["1"] != 3 {
		t.Errorf("%v", got)
	}
}

// TestVersionsThatComeBack: requests without a version go to the chosen version, even when the version was unloaded
// for a while and the streams of earlier requests moved to another version.
func TestVersionsThatComeBack(t *testing.T) {
	d := newBackend(t)
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	serve := func(versions ...string) {
		t.Helper()
		var all []workers.Config
		for _, v := range versions {
			all = append(all, workers.Config{Name: "m", Kind: "plain", Version: v,
				Versions: workers.Versions{All: true}})
		}
		if err := d.Define(all...); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(t.Context(), "m", workers.Load{}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(want string) {
		t.Helper()
		r, err := c.Infer(t.Context(), d.owner(), "m", "", d.frame("x"))
		if err != nil {
			t.Fatal(err)
		}
		if r.Model.Version != want {
			t.Errorf("version %s has answered, want %s", r.Model.Version, want)
		}
		r.Release()
	}
	for range 3 {
		serve("1", "2")
		ask("2")
		serve("1")
		ask("1")
		serve("1", "2")
		ask("2")
		serve("2", "3")
		ask("3")
	}
}
