//go:build !linux

package blob

import "os"

func startWriting(*os.File, int64, int64) {}
