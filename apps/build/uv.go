package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"millrace/internal/rootfile"
	"millrace/internal/textfile"
)

var uvTable = regexp.MustCompile(`(?m)^\s*\[+\s*tool\s*\.\s*uv\b`)

// noteUnread names the files of projects of uv, which have no effect: an environment follows requirements alone.
func (j *job) noteUnread() {
	for name, instead := range map[string]string{"uv.toml": "write indexes into requirements.txt",
		"uv.lock": "build lock writes the versions into " + filepath.Base(LockFile(j.app))} {
		if isFile(filepath.Join(j.dir, name)) {
			j.note(name + " is not read: " + instead)
		}
	}
	if text, err := textfile.Read(filepath.Join(j.dir, project), maxText); err == nil && uvTable.Match(text) {
		j.note("the tables tool.uv of " + project + " are not read: write indexes into requirements.txt")
	}
}

// uv installs with uv: it resolves the requirements into a file with hashes, and installs exactly these packages.
func (j *job) uv(ctx context.Context, path string) ([]Package, string, error) {
	venv := j.program("environment", path, j.tool.path, "venv", "--allow-existing", "--no-project", "--python",
		j.python.Path, path)
	if _, err := j.run(ctx, venv); err != nil {
		return nil, "", fmt.Errorf("environment: %w", err)
	}
	files, err := j.files(ctx, path)
	if err != nil {
		return nil, "", err
	}
	common := []string{"--python", filepath.Join(path, "bin", "python"), "--no-sources"}
	if j.Wheels != "" {
		common = append(common, "--no-index", "--find-links", j.Wheels)
	}
	install := append([]string{j.tool.path, "pip", "install", "--no-deps"}, common...)
	resolved := filepath.Join(path, resolvedFile)
	if j.lock != nil {
		resolved = filepath.Join(path, lockedFile)
		install = append(install, "--require-hashes")
	} else {
		compile := append([]string{j.tool.path, "pip", "compile", "--quiet", "--generate-hashes", "--no-header",
			"--no-annotate", "--output-file", resolved}, common...)
		if _, err := j.run(ctx, j.program("packages", path, append(compile, files...)...)); err != nil {
			return nil, "", j.explain(err)
		}
		if files = []string{resolved}; len(j.options) > 0 {
			files = append(files, filepath.Join(path, optionsFile))
			if err := rootfile.Write(path, optionsFile, j.options); err != nil {
				return nil, "", err
			}
		}
	}
	for _, file := range files {
		install = append(install, "-r", file)
	}
	if _, err := j.run(ctx, j.program("packages", path, install...)); err != nil {
		return nil, "", j.explain(err)
	}
	text, err := rootfile.Read(path, filepath.Base(resolved), maxReport)
	if err != nil {
		return nil, "", err
	}
	packages, err := installed(filepath.Join(path, "lib", "python"+minor(j.python.Version), "site-packages"))
	if err != nil {
		return nil, "", err
	}
	hashes := resolvedHashes(string(text), j.dir)
	for i := range packages {
		p := &packages[i]
		if p.Hashes = hashes[p.Name]; p.Hashes == nil {
			p.Hashes = hashes[p.URL]
		}
		if p.Hashes == nil {
			p.Hashes = []string{}
		}
	}
	return packages, j.tool.text, removeOwn(path)
}

// installed returns the packages in a folder of packages, without hashes.
func installed(dir string) ([]Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	packages := []Package{}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".dist-info")
		at := strings.LastIndex(name, "-")
		if !is || at < 0 {
			continue
		}
		p := Package{Name: normal(name[:at]), Version: name[at+1:]}
		text, err := rootfile.Read(dir, filepath.Join(e.Name(), "direct_url.json"), maxReport)
		if err == nil {
			var from struct {
				URL string `json:"url"`
			}
			err = json.Unmarshal(text, &from)
			p.URL = from.URL
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the package %s: %w", p.Name, err)
		}
		packages = append(packages, p)
	}
	sortPackages(packages)
	return packages, nil
}

// resolvedHashes reads requirements with hashes. It returns the hashes by the names of packages and, for packages
// without a name, by their addresses. Paths begin in the folder dir.
func resolvedHashes(text, dir string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		what, rest, found := strings.Cut(strings.TrimSpace(line), " --hash=")
		what = strings.TrimSpace(what)
		if !found || strings.HasPrefix(what, "#") || strings.HasPrefix(what, "-") {
			continue
		}
		hashes := strings.Fields(strings.ReplaceAll(rest, "--hash=", " "))
		name, _, named := strings.Cut(what, "==")
		if !named {
			name, _, named = strings.Cut(what, " @ ")
		}
		switch {
		case named:
			name, _, _ = strings.Cut(name, "[")
			name = normal(strings.TrimSpace(name))
		case strings.Contains(what, "://"):
			name = what
		default:
			if name = what; !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			name = (&url.URL{Scheme: "file", Path: name}).String()
		}
		all[name] = hashes
	}
	return all
}
