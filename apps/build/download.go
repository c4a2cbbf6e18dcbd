package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/apps"
	"millrace/apps/modelsource"
	"millrace/internal/modelurl"
	"millrace/internal/rootfile"
)

// ParseFiles reads files of the form PATH=https://HOST/PATH#sha256=HEX.
func ParseFiles(texts []string) (files []apps.File, err error) {
	for i, text := range texts {
		fail := func(format string, args ...any) ([]apps.File, error) {
			return nil, fmt.Errorf("files[%d]: "+format, append([]any{i}, args...)...)
		}
		name, address, ok := strings.Cut(text, "=")
		if !ok {
			return fail("is not PATH=https://HOST/PATH#sha256=HEX")
		}
		if name != path.Clean(name) || !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, "\\\x00") ||
			slices.Contains(strings.Split(name, "/"), ".git") {
			return fail("the path %q must lead to a file in the folder of the configuration file, not in .git", name)
		}
		u, err := modelurl.Parse(address)
		switch {
		case err != nil:
			return fail("%s: the address %s %w", name, modelurl.Mask(address), err)
		case u.Scheme != modelurl.HTTP || u.Path != "":
			return fail("%s: the address %s is not https://HOST/PATH#sha256=HEX", name, modelurl.Mask(address))
		}
		for _, f := range files {
			if f.Path == name || strings.HasPrefix(f.Path, name+"/") || strings.HasPrefix(name, f.Path+"/") {
				return fail("%s and %s cannot both be files", f.Path, name)
			}
		}
		base, _, _ := strings.Cut(address, "#")
		files = append(files, apps.File{Path: name, Address: base, SHA256: u.Digest})
	}
	return files, nil
}

// placed are the files that builds have put into an application, with their SHA-256, by paths.
type placed map[string]string

func placedFile(base string, app *apps.App) string { return filepath.Join(base, id(app)+".files.json") }

func readPlaced(base string, app *apps.App) (placed, error) {
	known := placed{}
	text, err := os.ReadFile(placedFile(base, app))
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err == nil && json.Unmarshal(text, &known) != nil {
		known = placed{}
	}
	return known, err
}

// add notes a file that has the digest: a later build may replace the file. After a failed or killed build, a file is
// the noted one or has the new digest.
func (p placed) add(j *job, f apps.File) error {
	p[f.Path] = f.SHA256
	return writeControl(placedFile(j.base, j.app), p)
}

// checkPlaced refuses an application without a file of an address, and with other digests than at the last build.
func checkPlaced(base string, app *apps.App, files []apps.File) error {
	if len(files) == 0 {
		return nil
	}
	known, err := readPlaced(base, app)
	if err != nil {
		return err
	}
	for _, f := range files {
		if known[f.Path] != f.SHA256 || !isFile(filepath.Join(filepath.Dir(app.File), filepath.FromSlash(f.Path))) {
			return fmt.Errorf("the file %s of %s is not downloaded: add the command build", f.Path, app.Name)
		}
	}
	return nil
}

// download puts the files of addresses into the application, and returns the paths of the new ones. A file that no
// build has put there is not replaced.
func (j *job) download(ctx context.Context) (fresh []string, err error) {
	fresh = []string{}
	if len(j.needs.Files) == 0 {
		return fresh, nil
	}
	root, err := os.OpenRoot(j.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	known, err := readPlaced(j.base, j.app)
	if err != nil {
		return nil, err
	}
	var cache *modelsource.Cache
	defer func() {
		if cache != nil {
			err = errors.Join(err, cache.Close())
		}
	}()
	for _, f := range j.needs.Files {
		now, err := sumIn(root, f.Path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("files: %s: %w", f.Path, err)
		case now == f.SHA256:
			if known[f.Path] != now {
				err = known.add(j, f)
			}
			if err != nil {
				return nil, err
			}
			continue
		case now != "" && now != known[f.Path]:
			return nil, fmt.Errorf("files: %s is there with the SHA-256 %s, and no build has downloaded it: remove "+
				"the file, or correct the digest %s", f.Path, now, f.SHA256)
		}
		if cache == nil {
			if cache, err = modelsource.Open(j.Sources); err != nil {
				return nil, err
			}
		}
		from, err := cache.File(ctx, f.Address, f.SHA256)
		if err != nil {
			return nil, fmt.Errorf("files: %s: %w", f.Path, err)
		}
		if err := copyIn(root, f.Path, from); err != nil {
			return nil, fmt.Errorf("files: %s: %w", f.Path, err)
		}
		if err := known.add(j, f); err != nil {
			return nil, err
		}
		fresh = append(fresh, f.Path)
	}
	return fresh, nil
}

// sumIn returns the SHA-256 of a regular file of root; "" = the file is missing.
func sumIn(root *os.Root, name string) (string, error) {
	f, err := rootfile.Open(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// copyIn copies a file into root. Programs of the application may change the copy, so that no link to the cache serves.
func copyIn(root *os.Root, name, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	return rootfile.Replace(root, name, in, 0o666)
}
