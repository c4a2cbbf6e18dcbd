package access

import (
	"strings"
	"testing"
)

// TestOpenWithCredentials: an Access with credentials cannot also let everybody in.
func TestOpenWithCredentials(t *testing.T) {
	for name, o := range map[string]Options{
		"key": {Key: "k"}, "keys": {Keys: "k.yaml"}, "users": {Users: "u.yaml"}, "certificates": {ClientCA: "ca.pem"},
		"module": {Module: ModuleOptions{File: "m.py"}},
		"tokens": {OIDC: OIDCOptions{Issuer: "https://id.example.org"}},
	} {
		o.Open = true
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "Open") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHasShortKey: the answer follows the key with which the server started, not the file of the key.
func TestHasShortKey(t *testing.T) {
	for key, want := range map[string]bool{"": false, "secret": true, "fifteen letters": true,
		"sixteen letters!": false, "äöüäöüäöüäöüäöü": true} {
		a, err := New(Options{Open: key == "", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.HasShortKey(); got != want {
			t.Errorf("%q: %v", key, got)
		}
		a.Close()
	}
}
