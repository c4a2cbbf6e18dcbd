package ssf

import (
	"strings"
	"testing"

	"millrace/apps"
)

func TestPackaging(t *testing.T) {
	config, err := parse([]byte("application: {id: app, version: 1.0, package: {tag: 'team/{{application.id}}:" +
		"{{ application.version }}', exclusions: [intermediates/**/*, '*.bin', 'a[!b]c', 'x?/y']}}\nendpoints: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := &apps.Needs{}
	app := config.Get("application").(Section)
	if err := pack(n, config, app.Get("package")); err != nil || n.Image != "team/app:1.0" {
		t.Fatalf("%q %v", n.Image, err)
	}
	for name, want := range map[string]bool{
		"intermediates/a": true, "intermediates/a/b.txt": true, "intermediates": false, "a.bin": true,
		"sub/a.bin": false,
		"adc":       true, "abc": false, "x1/y": true, "x1/z": false, "app.py": false, "abin": false,
	} {
		if n.Exclude(name) != want {
			t.Errorf("%s is left out: %v", name, !want)
		}
	}
	for text, want := range map[string]string{
		"{tags: x}": "package.tags: is not known", "{exclusions: ['[a']}": "no pattern",
		"{exclusions: [../x]}": "no pattern",
		"{exclusions: 3}":      "want a text or a list", "x": "want fields",
	} {
		config, err := parse([]byte("package: " + text))
		if err != nil {
			t.Fatal(err)
		}
		if err := pack(n, config, config.Get("package")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if got := expand("{{a.b}} {{application.package}} {{application.id}}", config); got !=
		"{{a.b}} {{application.package}} app" {
		t.Error(got)
	}
}
