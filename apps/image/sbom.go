package image

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/cyclonedx"
)

// part is a part of the image for the bill of materials.
type part struct{ typ, name, version, purl, licence string }

// bill returns the bill of materials of the image.
func bill(o *Options, parts []part) ([]byte, error) {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(strings.Compare(a.purl, b.purl), strings.Compare(a.licence, b.licence),
			strings.Compare(a.name, b.name))
	})
	parts = slices.CompactFunc(parts, func(a, b part) bool { return a.purl == b.purl })
	list := make([]cyclonedx.Component, 0, len(parts))
	for _, p := range parts {
		c := cyclonedx.New(p.typ, p.name, p.version, p.purl, p.licence)
		c.Ref = p.purl // a package of Debian and of Python may have the same name and version
		list = append(list, c)
	}
	var out bytes.Buffer
	err := cyclonedx.Write(&out, cyclonedx.New("application", cmp.Or(o.Title, "application"),
		cmp.Or(o.Version, o.Revision), "", ""), list)
	return out.Bytes(), err
}

// goModules returns the modules of the program.
func goModules(program string) []part {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil // not written in Go
	}
	list := []part{{typ: "application", name: "millrace", version: info.Main.Version,
		purl: "pkg:golang/" + info.Main.Path + "@" + info.Main.Version},
		{typ: "framework", name: "std", version: info.GoVersion, purl: "pkg:golang/std@" + info.GoVersion}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, part{typ: "library", name: m.Path, version: m.Version,
			purl: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	return list
}

// maxMetadata is the part of a distribution's METADATA that is read: the fields come first.
const maxMetadata = 1 << 18

// readDist returns the distribution of Python whose METADATA or PKG-INFO is a file; one without a name is no
// distribution.
func readDist(file string) (part, error) {
	f, err := os.Open(file)
	if err != nil {
		return part{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMetadata))
	return parseDist(string(text)), err
}

var (
	distName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,200}[A-Za-z0-9])?$`)
	distVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.!+_-]{0,100}$`)
	expression  = regexp.MustCompile(`^[A-Za-z0-9.+() -]{1,200}$`)
	separators  = regexp.MustCompile(`[-_.]+`)
)

// parseDist returns the distribution that the fields of METADATA describe.
func parseDist(text string) part {
	p := part{typ: "library"}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break // the description follows
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.EqualFold(name, "Name") && p.name == "" && distName.MatchString(value):
			p.name = value
		case strings.EqualFold(name, "Version") && p.version == "" && distVersion.MatchString(value):
			p.version = value
		case strings.EqualFold(name, "License-Expression") && expression.MatchString(value):
			p.licence = value
		}
	}
	if p.name == "" {
		return part{}
	}
	p.purl = "pkg:pypi/" + strings.ToLower(separators.ReplaceAllString(p.name, "-")) + "@" +
		strings.ReplaceAll(strings.ReplaceAll(p.version, "+", "%2B"), "!", "%21")
	return p
}
