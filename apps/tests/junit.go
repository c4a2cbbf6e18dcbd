package tests

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"millrace/internal/newfile"
)

// junitCase is a testcase element.
type junitCase struct {
	XMLName xml.Name      `xml:"testcase"`
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Seconds float64       `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Skipped *junitSkipped `xml:"skipped,omitempty"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

// encode counts the cases, and encodes them.
func (s *Suite) encode(cases []junitCase) (err error) {
	s.Tests, s.Failed, s.Skipped = len(cases), 0, 0
	for _, c := range cases {
		if c.Failure != nil {
			s.Failed++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
	}
	s.document, err = xml.MarshalIndent(struct {
		XMLName xml.Name `xml:"testsuite"`
		Name    string   `xml:"name,attr"`
		Tests   int      `xml:"tests,attr"`
		Failed  int      `xml:"failures,attr"`
		Errors  int      `xml:"errors,attr"`
		Skipped int      `xml:"skipped,attr"`
		Seconds float64  `xml:"time,attr"`
		Cases   []junitCase
	}{Name: s.Name, Tests: s.Tests, Failed: s.Failed, Skipped: s.Skipped, Seconds: s.Seconds, Cases: cases}, "  ", "  ")
	return err
}

// maxReport is the largest report of pytest, in bytes.
const maxReport = 64 << 20

// read reads a report of pytest.
func (s *Suite) read(file string) error {
	st, err := os.Lstat(file)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxReport {
		return errors.New("the report of pytest is no file, or too large")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var all struct {
		Suites []struct {
			Attributes []xml.Attr `xml:",any,attr"`
			Inner      []byte     `xml:",innerxml"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("the report of pytest: %w", err)
	}
	for _, suite := range all.Suites {
		count := func(name string) int {
			for _, a := range suite.Attributes {
				if a.Name.Local == name {
					n, _ := strconv.Atoi(a.Value)
					return n
				}
			}
			return 0
		}
		s.Tests += count("tests")
		s.Failed += count("failures") + count("errors")
		s.Skipped += count("skipped")
		part, err := xml.Marshal(struct {
			XMLName    xml.Name   `xml:"testsuite"`
			Attributes []xml.Attr `xml:",any,attr"`
			Inner      []byte     `xml:",innerxml"`
		}{Attributes: suite.Attributes, Inner: suite.Inner})
		if err != nil {
			return err
		}
		s.document = append(append(s.document, part...), '\n')
	}
	return nil
}

// WriteJUnit writes the report of all suites.
func WriteJUnit(file string, suites []*Suite) error {
	return newfile.Write(file, func(w io.Writer) error {
		_, err := io.WriteString(w, xml.Header+"<testsuites>\n")
		for _, s := range suites {
			if err == nil {
				_, err = w.Write(append(s.document, '\n'))
			}
		}
		if err == nil {
			_, err = io.WriteString(w, "</testsuites>\n")
		}
		return err
	})
}
