// Package cyclonedx writes bills of materials in the form CycloneDX 1.5.
//
// It owns the form. It must not know where the components come from.
package cyclonedx

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Component is a part of a program or image.
type Component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	PURL     string    `json:"purl,omitempty"`
	Licences []License `json:"licenses,omitempty"`
}

// License is a licence of a component.
type License struct {
	Expression string `json:"expression"` // of SPDX
}

// New returns a component of a type, such as library or application. The address and the licence, an expression of
// SPDX, may be "".
func New(typ, name, version, purl, expression string) Component {
	c := Component{Type: typ, Ref: name + "@" + version, Name: name, Version: version, PURL: purl}
	if expression != "" {
		c.Licences = []License{{expression}}
	}
	return c
}

// Write writes the bill of materials of self, made of parts. Equal parts give equal bytes.
func Write(out io.Writer, self Component, parts []Component) error {
	refs := make([]string, 0, len(parts))
	for _, p := range parts {
		refs = append(refs, p.Ref)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"serialNumber": serial(self.Version, refs),
		"metadata":     map[string]any{"component": self},
		"components":   parts,
		"dependencies": []map[string]any{{"ref": self.Ref, "dependsOn": refs}},
	})
}

// serial returns a UUID derived from the parts, so that equal sources give equal files.
func serial(version string, refs []string) string {
	h := sha256.Sum256([]byte(version + "\n" + strings.Join(refs, "\n")))
	h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
