package ssf

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/apps"
)

// packageKeys are the fields of package. millrace packs the whole folder, so that inclusions and name have no effect;
// docker is for another way of packing.
var packageKeys = []string{"inclusions", "exclusions", "name", "tag", "docker"}

// pack reads the section package of an application: files to leave out of an image, and the image's name.
func pack(n *apps.Needs, config Section, value any) error {
	section, ok := value.(Section)
	if value != nil && !ok {
		return errors.New("package: want fields, such as tag")
	}
	for _, f := range section {
		if !slices.Contains(packageKeys, f.Name) {
			return fmt.Errorf("package.%s: is not known: there are %s", f.Name, strings.Join(packageKeys, ", "))
		}
	}
	globs, err := texts(section.Get("exclusions"), "\n")
	if err != nil {
		return fmt.Errorf("package.exclusions: %w", err)
	}
	var patterns []*regexp.Regexp
	for _, glob := range globs {
		p, err := globPattern(glob)
		if err != nil {
			return fmt.Errorf("package.exclusions: %q is no pattern of files", glob)
		}
		patterns = append(patterns, p)
	}
	n.Exclude = func(name string) bool {
		base := path.Base(name) // the log of this command is in its working folder, which may be the application's
		return base == logFile || base == earlierLog ||
			slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(name) })
	}
	if tag := section.Get("tag"); tag != nil {
		n.Image = expand(fmt.Sprint(tag), config)
	}
	return nil
}

// globPattern returns the expression for a pattern of Python's glob with recursive=True.
func globPattern(glob string) (*regexp.Regexp, error) {
	glob = path.Clean(filepath.ToSlash(glob))
	if path.IsAbs(glob) || glob == ".." || strings.HasPrefix(glob, "../") {
		return nil, errors.New("leads out of the folder")
	}
	if _, err := path.Match(glob, ""); err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(glob); i++ {
		switch rest := glob[i:]; {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			i++
		case rest[0] == '*':
			b.WriteString("[^/]*")
		case rest[0] == '?':
			b.WriteString("[^/]")
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			b.WriteString(strings.Replace(rest[:end+1], "[!", "[^", 1))
			i += end
		default:
			b.WriteString(regexp.QuoteMeta(rest[:1]))
		}
	}
	return regexp.Compile(b.String() + "$")
}

var reference = regexp.MustCompile(`{{\s*([A-Za-z0-9_.]+)\s*}}`)

// expand replaces {{application.id}} and other references to fields by the values.
func expand(text string, config Section) string {
	return reference.ReplaceAllStringFunc(text, func(whole string) string {
		var value any = config
		for _, name := range strings.Split(reference.FindStringSubmatch(whole)[1], ".") {
			section, _ := value.(Section)
			value = section.Get(name)
		}
		if _, is := value.(Section); is || value == nil {
			return whole
		}
		return fmt.Sprint(value)
	})
}
