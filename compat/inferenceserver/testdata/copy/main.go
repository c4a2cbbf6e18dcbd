// Command copy is the program of an image for tests: it copies the files of the folders in its arguments to /output.
package main

import (
	"log"
	"os"
)

func main() {
	for _, folder := range os.Args[1:] {
		if err := os.CopyFS("/output", os.DirFS(folder)); err != nil {
			log.Fatal(err)
		}
	}
}
