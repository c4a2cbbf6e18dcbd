package secret_test

import (
	"encoding/json"
	"encoding/pem"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/secret"
)

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", true}, {"secret", "secret", true}, {"secret", "Secret", false}, {"secret", "secret ", false},
		{"secret", "", false}, {"", "x", false},
		{strings.Repeat("x", 100), strings.Repeat("x", 100), true},
		{strings.Repeat("x", 100), strings.Repeat("x", 99) + "y", false},
		{"y" + strings.Repeat("x", 99), strings.Repeat("x", 100), false},
	} {
		if got := secret.Equal(c.a, c.b); got != c.want {
			t.Errorf("Equal(%q, %q) = %t", c.a, c.b, got)
		}
		if got := secret.Same(c.a, c.b); got != c.want {
			t.Errorf("Same(%q, %q) = %t", c.a, c.b, got)
		}
	}
}

func TestIsWithin(t *testing.T) {
	root := t.TempDir()
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	certificate := block("CERTIFICATE", make([]byte, 2000))
	key := block("PRIVATE KEY", make([]byte, 48))
	inJSON, err := json.Marshal(map[string]string{"type": "service_account", "private_key": key})
	if err != nil {
		t.Fatal(err)
	}
	legacy := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: make([]byte, 1200),
		Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}}))
	const source = `PRIVATE = "-----BEGIN PRIVATE KEY-----"` + "\n" + `def is_key(text): return PRIVATE in text`
	for name, text := range map[string]string{
		"a.pem": "-----BEGIN PRIVATE KEY-----", "b.pem": "CERTIFICATE",
		"haproxy.pem": certificate + key, "upper.PEM": certificate + key, "chain.pem": certificate + certificate,
		"bags.txt":   "Bag Attributes\n    friendlyName: a\n" + certificate + "Key Attributes: <No Attributes>\n" + key,
		"deploy_key": block("OPENSSH PRIVATE KEY", make([]byte, 300)), "account.json": string(inJSON),
		"old": strings.ReplaceAll(legacy, "\n", "\r\n"),
		"pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + strings.Repeat("lQdG", 16), "keys.py": source,
		"public": block("PUBLIC KEY", make([]byte, 300)),
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"a.pem": true, "b.pem": false, "gone.pem": false, "x/.env": true,
		".ssh/config": true, "x/.env.example": false, "x/env": false, "the commit 12": false, "haproxy.pem": true,
		"upper.PEM": true, "chain.pem": false, "bags.txt": true, "deploy_key": true, "account.json": true, "old": true,
		"pgp": true, "keys.py": false, "public": false, "store.p12": true, "store.PFX": true, "x/store.jks": true,
		".docker/config.json": true, "docker/file": false} {
		if got := secret.IsWithin(root, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	for _, c := range []struct{ setting, want, err string }{
		{"plain", "plain", ""},
		{"", "", ""},
		{file("line", "k e y\r\n"), "k e y", ""},
		{file("bare", "key"), "key", ""},
		{file("empty", "\n"), "", "is empty"},
		{file("lines", "a\nb\n"), "", "more than one line"},
		{file("long", strings.Repeat("x", 65<<10)), "", "is larger than 64KiB"},
		{"file:" + filepath.Join(dir, "none"), "", "cannot be read"},
	} {
		got, err := secret.Read(c.setting)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("Read(%.60q) = %.20q, %v, want %q, %s", c.setting, got, err, c.want, c.err)
		}
	}
}

// secretName matches names of variables and fields that hold a secret.
var secretName = regexp.MustCompile(
	`(?i)^(.*(api_?key|secret|passw(or)?d|credential|ticket|bearer).*|auth|authorization|token)$`)

// No other package compares secrets, whether by constant-time functions, operators or bytes.Equal on a name that
// suggests a secret. Comparisons with constants, nil and lengths do not count.
func TestComparisons(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Dir(path) == filepath.Join(root, "internal", "secret"):
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Dir(path) == filepath.Join(root, "stream") {
			return nil // its tokens are places in a queue
		}
		for _, found := range comparisons(t, path, text) {
			t.Errorf("%s: use secret.Equal", found)
		}
		return nil
	})
	if err != nil || files < 300 {
		t.Fatalf("%d files were read, %v", files, err)
	}
}

// TestComparisonsAreFound: the search finds each form of comparison.
func TestComparisonsAreFound(t *testing.T) {
	for text, want := range map[string]int{
		`import "crypto/subtle"`:                                            1,
		`func f() { _ = hmac.Equal(a, b) }`:                                 1,
		`func f() { _ = s.cfg.APIKey == key }`:                              1,
		`func f() { _ = x != string(password) }`:                            1,
		`func f() { _ = bytes.Equal(secret, b) }`:                           1,
		`func f() { _ = strings.EqualFold(ticket, b) }`:                     1,
		`func f() { switch token { case want: } }`:                          1,
		`func f() { _ = apiKey == "" || secret == nil || len(token) == n }`: 0,
	} {
		if got := comparisons(t, "x.go", []byte("package x\n"+text)); len(got) != want {
			t.Errorf("%s: %v, want %d", text, got, want)
		}
	}
}

func comparisons(t *testing.T, path string, text []byte) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n ast.Node) { found = append(found, set.Position(n.Pos()).String()) }
	for _, i := range f.Imports {
		if i.Path.Value == `"crypto/subtle"` {
			add(i)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) &&
				(isSecret(n.X) && !isConstant(n.Y) || isSecret(n.Y) && !isConstant(n.X)) {
				add(n)
			}
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					if n.Tag != nil && isSecret(n.Tag) && !isConstant(e) {
						add(e)
					}
				}
			}
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := s.X.(*ast.Ident)
			switch {
			case x == nil || x.Name == "secret":
			case x.Name == "hmac" && s.Sel.Name == "Equal":
				add(n)
			case (x.Name == "bytes" || x.Name == "strings" || x.Name == "slices") &&
				strings.HasPrefix(s.Sel.Name, "Equal"):
				for _, a := range n.Args {
					if isSecret(a) {
						add(n)
						break
					}
				}
			}
		}
		return true
	})
	return found
}

// isSecret reports whether an expression is a variable, a field or a conversion with the name of a secret.
func isSecret(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return secretName.MatchString(e.Name)
	case *ast.SelectorExpr:
		return secretName.MatchString(e.Sel.Name)
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.Ident)
		return ok && f.Name == "string" && len(e.Args) == 1 && isSecret(e.Args[0])
	}
	return false
}

func isConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "true" || e.Name == "false"
	}
	return false
}
