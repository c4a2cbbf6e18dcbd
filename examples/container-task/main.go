// Command count is a container model: it counts the lines, words and bytes of each file in /input.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log"
	"os"
	"strings"
)

func main() {
	var out strings.Builder
	input := os.DirFS("/input")
	err := fs.WalkDir(input, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(input, name)
		fmt.Fprintf(&out, "%s: %d lines, %d words, %d bytes\n", name, bytes.Count(b, []byte("\n")),
			len(bytes.Fields(b)), len(b))
		return err
	})
	if err == nil {
		err = os.WriteFile("/output/counts.txt", []byte(out.String()), 0o644)
	}
	if err != nil {
		log.Fatal(err) // the lines are in the error of the task
	}
}
